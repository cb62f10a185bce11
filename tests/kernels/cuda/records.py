"""Records of rows, written bit by bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pagoda.kernels.cuda import sampling_rules as kernel


@dataclass(frozen=True)
class Rules:
    """Of one row. `masks`: the tokens that may be drawn before `stops_from`, and from there on."""

    num_prompt_tokens: int = 0
    strengths: tuple[float, float, float] | None = None
    stops_from: int = 0
    masks: tuple[Iterable[int], Iterable[int]] | None = None
    biases: Mapping[int, float] = field(default_factory=dict)
    num_best: int | None = None


def record(rules: Rules, vocab_size: int) -> np.ndarray:
    record = np.zeros(kernel.record_width(vocab_size), np.int32)
    reals = record.view(np.float32)
    record[1] = rules.num_prompt_tokens
    if rules.strengths is not None:
        record[0] = 1
        reals[2:5] = rules.strengths
    if rules.masks is not None:
        record[5] = 1 + rules.stops_from
        words = record[kernel.MASKS.value :].view(np.uint32).reshape(2, -1)
        for own, tokens in zip(words, rules.masks, strict=True):
            for token in tokens:
                own[token // 32] |= np.uint32(1 << token % 32)
    record[6] = len(rules.biases)
    for place, (token, value) in enumerate(rules.biases.items()):
        record[kernel.HEAD.value + place] = token
        reals[kernel.BIAS_VALUES.value + place] = value
    record[7] = 0 if rules.num_best is None else 1 + rules.num_best
    return record


def records_of(rules: Sequence[Rules], vocab_size: int) -> np.ndarray:
    return np.stack([record(one, vocab_size) for one in rules])
