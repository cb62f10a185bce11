"""What sampled rows ask for, in NumPy for the twin and as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pagoda.kernels.cuda.sampling import DrawTensors
from pagoda.kernels.sampling import Draws
from tests.kernels.cuda.device import on_device


def new_draws(num_rows: int, temperature: Any, seed: int = 0, **filters: np.ndarray) -> Draws:
    rng = np.random.default_rng(seed)
    return Draws(
        temperature=np.broadcast_to(np.float32(temperature), (num_rows,)).copy(),
        seeds=rng.integers(0, 2**64, num_rows, np.uint64),
        sample_indices=np.arange(num_rows, dtype=np.int32),
        positions=rng.integers(0, 5000, num_rows).astype(np.int32),
        **filters,
    )


def draw_tensors(draws: Draws) -> DrawTensors:
    return DrawTensors(
        on_device(draws.temperature),
        on_device(draws.seeds.view(np.int64)),
        on_device(draws.sample_indices),
        on_device(draws.positions),
    )
