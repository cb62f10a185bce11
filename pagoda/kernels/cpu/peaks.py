"""What this machine's cores can do at most: memory that is only read, products that never leave the registers."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pagoda.kernels.base import Arithmetic
from pagoda.kernels.cpu.library import available_instruction_sets, load_library
from pagoda.kernels.cpu.memory import address
from pagoda.kernels.peaks import Peaks

MEMORY_BYTES = 512 << 20  # more than most caches hold
NUM_TRIES = 5
TRY_SECONDS = 0.03
MATRIX_WIDTH = 1024  # for NumPy


def measure_peaks(num_threads: int, memory_bytes: int = MEMORY_BYTES, try_seconds: float = TRY_SECONDS) -> Peaks:
    """The best of some tries each. Without the native library NumPy is measured, with as many threads as it takes."""
    sets = available_instruction_sets()
    words = np.ones(memory_bytes // 8, np.uint64)
    if not sets:
        return Peaks(_best_rate(lambda: _sum(words)), {"f32": _best_rate(_numpy_product())})
    library = load_library()

    def read() -> int:
        library.pagoda_read(address(words), len(words), num_threads)
        return words.nbytes

    def multiplying(in_bytes: bool) -> Callable[[], int]:
        def multiply(num_rounds: int) -> int:
            return int(library.pagoda_multiply(sets[0].encode(), in_bytes, num_rounds, num_threads))

        num_rounds = _enough(multiply, try_seconds)
        return lambda: multiply(num_rounds)

    rates: dict[Arithmetic, float] = {
        "f32": _best_rate(multiplying(in_bytes=False)),
        "int8": _best_rate(multiplying(in_bytes=True)),
    }
    return Peaks(_best_rate(read), rates)


def _best_rate(work: Callable[[], int]) -> float:
    """`work` says how much it did."""
    best = 0.0
    for _ in range(NUM_TRIES):
        start = time.perf_counter()
        done = work()
        best = max(best, done / (time.perf_counter() - start))
    return best


def _enough(work: Callable[[int], int], seconds: float) -> int:
    """Rounds that take at least so long."""
    num_rounds = 1000
    while True:
        start = time.perf_counter()
        work(num_rounds)
        if time.perf_counter() - start >= seconds:
            return num_rounds
        num_rounds *= 2


def _sum(words: npt.NDArray[np.uint64]) -> int:
    words.sum()
    return words.nbytes


def _numpy_product() -> Callable[[], int]:
    matrix = np.ones((MATRIX_WIDTH, MATRIX_WIDTH), np.float32)

    def multiply() -> int:
        matrix @ matrix
        return 2 * MATRIX_WIDTH**3

    return multiply
