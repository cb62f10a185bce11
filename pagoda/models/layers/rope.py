"""Inverse frequencies of rope, plain and scaled. Dynamic NTK and LongRoPE depend on the length and are refused."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pagoda.kernels.base import RopeFrequencies
from pagoda.models.config import DivisorScaling, LinearScaling, Llama3Scaling, RopeConfig, YarnScaling

Frequencies = npt.NDArray[np.float64]


def rope_frequencies(config: RopeConfig) -> RopeFrequencies:
    exponents = np.arange(0, config.rotary_dim, 2, dtype=np.float64) / config.rotary_dim
    plain = config.theta**-exponents
    magnitude = config.scaling.magnitude if isinstance(config.scaling, YarnScaling) else 1.0
    return RopeFrequencies(scaled(plain, config).astype(np.float32), config.interleaved, magnitude)


def scaled(plain: Frequencies, config: RopeConfig) -> Frequencies:
    match config.scaling:
        case None:
            return plain
        case LinearScaling(factor=factor):
            return plain / factor
        case DivisorScaling(divisors=divisors):
            return plain / np.asarray(divisors)
        case Llama3Scaling() as scaling:
            return llama3(plain, scaling)
        case YarnScaling() as scaling:
            return yarn(plain, config, scaling)


def llama3(plain: Frequencies, scaling: Llama3Scaling) -> Frequencies:
    turns = scaling.original_max_positions * plain / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return kept * plain + (1 - kept) * plain / scaling.factor


def yarn(plain: Frequencies, config: RopeConfig, scaling: YarnScaling) -> Frequencies:
    def dimension_of(num_turns: float) -> float:
        """The dimension whose pair makes so many turns over the original length."""
        ratio = scaling.original_max_positions / (num_turns * 2 * math.pi)
        return config.rotary_dim * math.log(ratio) / (2 * math.log(config.theta))

    low = max(math.floor(dimension_of(scaling.beta_fast)), 0)
    high = min(math.ceil(dimension_of(scaling.beta_slow)), config.rotary_dim - 1)
    width = high - low if high != low else 0.001
    kept = 1 - np.clip((np.arange(len(plain)) - low) / width, 0.0, 1.0)
    return kept * plain + (1 - kept) * plain / scaling.factor
