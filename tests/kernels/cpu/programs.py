"""One forward function, run by the native kernels and by their NumPy twins.

A program takes in nothing but tokens, so a matrix of inputs enters as the F32 table that the tokens are looked up in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pagoda.kernels.base import KVPages, RaggedBatch
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.program import Program
from pagoda.kernels.reference import ReferenceOperators
from tests.kernels.reference.dense_weight import DenseWeight

Forward = Callable[[Any, RaggedBatch, list[KVPages]], Any]


def compile_program(kernels: CpuKernels, forward: Forward, layers: list[KVPages], max_tokens: int) -> Program:
    recorder = kernels.recorder(layers)
    batch = recorder.batch()
    output = forward(recorder, batch, layers)
    return kernels.compile(recorder, recorder.take_rows(output, batch.token_ids), max_tokens)


def run_native(
    kernels: CpuKernels, forward: Forward, batch: RaggedBatch, layers: Sequence[KVPages] = (), rows: Any = None
) -> np.ndarray:
    layers = list(layers) or [kernels.new_pages(1, 16, 1, 16)]
    num_tokens = len(batch.token_ids)
    program = compile_program(kernels, forward, layers, max(1, num_tokens))
    return program.run(batch, np.arange(num_tokens, dtype=np.int32) if rows is None else rows)


def run_twin(
    forward: Forward, batch: RaggedBatch, layers: Sequence[KVPages] = (), accumulate: Any = np.float64
) -> np.ndarray:
    output = forward(ReferenceOperators(accumulate), batch, list(layers))
    return output.reshape(len(output), -1)


def flat_batch(num_tokens: int, positions: Any = None) -> RaggedBatch:
    """One row of so many tokens that never touches a page: token t is number t of every table."""
    tokens = np.arange(num_tokens, dtype=np.int32)
    starts = np.array([0, num_tokens], np.int32)
    where = tokens if positions is None else np.asarray(positions, np.int32)
    return RaggedBatch(tokens, where, starts, starts[1:], (np.zeros((1, 1), np.int32),))


def over(function: Callable[..., Any], *inputs: np.ndarray) -> Forward:
    """function(operators, x, y, ...) with the rows of each input standing for the tokens."""
    weights = [DenseWeight(values) for values in inputs]

    def forward(operators: Any, batch: RaggedBatch, _layers: list[KVPages]) -> Any:
        return function(operators, *(operators.embed(weight, batch.token_ids) for weight in weights))

    return forward


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(
        np.ascontiguousarray(actual, np.float32).view(np.uint32),
        np.ascontiguousarray(expected, np.float32).view(np.uint32),
    )
