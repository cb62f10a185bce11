"""Every instruction but products and attention against its twin in float64."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda.kernels.base import RopeFrequencies
from pagoda.kernels.cpu import CpuKernels
from tests.kernels.cpu.programs import assert_same_bits, flat_batch, normal, over, run_native, run_twin
from tests.kernels.reference.dense_weight import DenseWeight

WIDTHS = (1, 15, 16, 17, 48, 100)
TOKENS = (1, 2, 5, 13)
EXTREMES = np.array([0.0, 1e-30, 1e-6, 0.5, 1, 5, 20, 60, 87, 88.5, 89, 100, 1e4, 1e30, 3e38], np.float32)


def both(kernels: CpuKernels, function, *inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    forward, batch = over(function, *inputs), flat_batch(len(inputs[0]))
    return run_native(kernels, forward, batch), run_twin(forward, batch)


@pytest.mark.parametrize("num_tokens", TOKENS)
def test_sums_and_multiples_are_those_of_single_precision(kernels: CpuKernels, num_tokens: int):
    for width in WIDTHS:
        x, y = normal(num_tokens, width), normal(num_tokens, width, seed=1)
        assert_same_bits(*both(kernels, lambda table, x, y: table.add(x, y), x, y))
        assert_same_bits(*both(kernels, lambda table, x: table.scale(x, 0.1), x))


@pytest.mark.parametrize("num_tokens", TOKENS)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_norms_over_the_whole_width(kernels: CpuKernels, num_tokens: int, offset: float):
    for width in (16, 48, 576):
        weight = DenseWeight(normal(width, seed=width))
        for factor in (1.0, 1e-4, 1e8):
            x = normal(num_tokens, width) * np.float32(factor)
            pair = both(kernels, lambda table, x, weight=weight: table.rms_norm(x, weight, 1e-5, offset), x)
            np.testing.assert_allclose(*pair, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("heads", [1, 3])
def test_norms_over_each_head(kernels: CpuKernels, heads: int):
    weight = DenseWeight(normal(32))

    def forward(table, x):
        return table.rms_norm(x.reshape(len(x), heads, 32), weight, 1e-6, 1.0)

    for num_tokens in TOKENS:
        x = normal(num_tokens, 32 * heads) * np.arange(1, heads + 1, dtype=np.float32).repeat(32)
        np.testing.assert_allclose(*both(kernels, forward, x), rtol=2e-6, atol=1e-7)


def test_the_norm_of_nothing_is_nothing(kernels: CpuKernels):
    weight = DenseWeight(np.ones(16))
    actual = run_native(
        kernels, over(lambda table, x: table.rms_norm(x, weight, 1e-6), np.zeros((3, 16), np.float32)), flat_batch(3)
    )
    assert_same_bits(actual, np.zeros((3, 16)))


@pytest.mark.parametrize("gate", ["gated_silu", "gated_gelu"])
def test_gates(kernels: CpuKernels, gate: str):
    for num_tokens in TOKENS:
        for width in WIDTHS:
            x, y = 4 * normal(num_tokens, width), normal(num_tokens, width, seed=1)
            # What is near 0 is the difference of numbers the size of x: the error is relative to x.
            actual, expected = both(kernels, lambda table, x, y: getattr(table, gate)(x, y), x, y)
            assert np.max(np.abs(actual - expected) / (np.abs(x * y) + 1e-30)) < 4e-7


@pytest.mark.parametrize("gate", ["gated_silu", "gated_gelu"])
def test_gates_at_the_extremes(kernels: CpuKernels, gate: str):
    x = np.concatenate([-EXTREMES[::-1], EXTREMES])[None]
    with np.errstate(over="ignore", invalid="ignore"):
        actual, expected = both(kernels, lambda table, x, y: getattr(table, gate)(x, y), x, np.ones_like(x))
    assert np.isfinite(actual).all()
    assert np.max(np.abs(actual - expected) / (np.abs(x) + 1e-37)) < 4e-7
    # Far below zero a gate is shut, whatever comes in.
    assert np.abs(actual[x < -100]).max() < 1e-30


@pytest.mark.parametrize("cap", [3.0, 30.0])
def test_a_cap(kernels: CpuKernels, cap: float):
    for num_tokens in TOKENS:
        x = 3 * cap * normal(num_tokens, 33)
        actual, expected = both(kernels, lambda table, x: table.soft_cap(x, cap), x)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=3e-7 * cap)
    x = np.concatenate([-EXTREMES, EXTREMES])[None]
    actual, expected = both(kernels, lambda table, x: table.soft_cap(x, cap), x)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=3e-7 * cap)


def test_what_is_no_number_stays_none(kernels: CpuKernels):
    """A damaged model must show as NaN, never as a plausible number."""
    x = normal(2, 20)
    x[0, 3] = x[1, 17] = np.nan
    one = np.ones_like(x)
    functions = [
        lambda table, x, y: table.gated_silu(x, y),
        lambda table, x, y: table.gated_silu(y, x),
        lambda table, x, y: table.gated_gelu(x, y),
        lambda table, x, y: table.gated_gelu(y, x),
        lambda table, x, y: table.add(x, y),
        lambda table, x, y: table.soft_cap(x, 5.0),
        lambda table, x, y: table.scale(x, 2.0),
    ]
    for function in functions:
        actual = run_native(kernels, over(function, x, one), flat_batch(2))
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(x))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary", [2, 10, 16, 24, 32])
@pytest.mark.parametrize("magnitude", [1.0, 1.3])
def test_rope(kernels: CpuKernels, interleaved: bool, rotary: int, magnitude: float):
    rates = (1e4 ** -(np.arange(rotary // 2) * 2.0 / rotary)).astype(np.float32)
    frequencies = RopeFrequencies(rates, interleaved, magnitude)
    for num_tokens, heads in ((1, 1), (2, 3), (13, 2)):
        positions = np.random.default_rng(num_tokens).integers(0, 100_000, num_tokens)
        batch = flat_batch(num_tokens, positions)
        weight = DenseWeight(normal(num_tokens, 32 * heads))

        def forward(table, batch, _, weight=weight, heads=heads):
            x = table.embed(weight, batch.token_ids)
            turns = table.rope_table(batch.positions, frequencies)
            return table.rope(x.reshape(len(x), heads, 32), turns)

        np.testing.assert_allclose(run_native(kernels, forward, batch), run_twin(forward, batch), rtol=0, atol=1e-6)


def test_two_ropes_in_one_program(kernels: CpuKernels):
    slow, fast = (RopeFrequencies(np.array([rate], np.float32)) for rate in (0.001, 1.0))
    weight = DenseWeight(normal(5, 16))

    def forward(table, batch, _):
        x = table.embed(weight, batch.token_ids)
        turns = [table.rope_table(batch.positions, rates) for rates in (slow, fast)]
        x = x.reshape(len(x), 1, 16)
        return table.add(table.rope(x, turns[0]), table.rope(x, turns[1]))

    batch = flat_batch(5)
    np.testing.assert_allclose(run_native(kernels, forward, batch), run_twin(forward, batch), rtol=0, atol=1e-6)
