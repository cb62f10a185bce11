"""How much memory a program works in, told before any of it is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pagoda.kernels.cpu.library import load_library
from pagoda.kernels.cpu.recorder import LANES, Recorder
from pagoda.kernels.symbol import Symbol

# For each thread attention keeps so many vectors of a head, and so many single numbers.
SCRATCH_VECTORS = 48 + 48 + 12 + 128  # queries, what they gathered, a tile of it, a span of keys or values
SCRATCH_NUMBERS = 48 * 128  # scores
SPLITS_A_THREAD = 4  # with fewer blocks of queries than that, attention is shared out by spans of tokens
PART_FLOATS = 1 << 20  # what threads leave each other of it, at most; memory that nobody touches costs nothing
PANEL_GROUPS = 2  # the most groups of rows that are decoded at once
NUMBER_BYTES = 4  # floats and counts alike


def round_up(count: int, unit: int = LANES) -> int:
    return -(-count // unit) * unit


@dataclass(frozen=True)
class Workspace:
    """The shapes of all arrays that a program owns. Logits stand apart: they are handed out."""

    buffers: dict[int, tuple[int, int]]
    """By place: rows, and floats from one row to the next."""
    ropes: tuple[tuple[int, int], ...]
    """For each table: frequencies, and floats of its cosines and of its sines."""
    scratch: tuple[int, int]
    """Threads, and floats for each."""
    num_arrivals: int
    num_claims: int
    logits: tuple[int, int]
    """Rows that are kept ready, and floats from one to the next."""

    @property
    def num_bytes(self) -> int:
        floats = sum(math.prod(shape) for shape in self.buffers.values()) + math.prod(self.scratch) + PART_FLOATS
        floats += sum(frequencies + 2 * table for frequencies, table in self.ropes)
        return NUMBER_BYTES * (floats + self.num_arrivals + self.num_claims)

    @property
    def logits_bytes(self) -> int:
        return NUMBER_BYTES * math.prod(self.logits)


def workspace_of(
    recorder: Recorder,
    logits: Symbol,
    places: dict[int, int],
    left: dict[int, int],
    max_tokens: int,
    max_rows: int,
    num_threads: int,
) -> Workspace:
    """For steps of at most so many tokens, of which up to `max_rows` have logits; `left` places need no memory."""
    num_rows = max(max_tokens, num_threads)
    buffers: dict[int, tuple[int, int]] = {}
    for symbol in recorder.values:
        buffers.setdefault(places[symbol.value], (num_rows, round_up(symbol.width)))
    for place in (places[logits.value], *left):
        del buffers[place]
    ropes = []
    for rope in recorder.ropes:
        count = len(rope.inverse_frequencies)
        ropes.append((count, max(max_tokens * count, num_threads * round_up(count))))
    return Workspace(
        buffers=buffers,
        ropes=tuple(ropes),
        scratch=(num_threads, round_up(_scratch_floats(recorder, max_tokens))),
        num_arrivals=SPLITS_A_THREAD * num_threads,
        num_claims=len(recorder.instructions),
        logits=(max_rows, round_up(logits.width)),
    )


def _scratch_floats(recorder: Recorder, max_tokens: int) -> int:
    """For one thread what a product needs, or the block of queries attention is at."""
    num_columns = max(weight.num_columns for weight in recorder.weights.packed)
    head_width = max(pages.values.shape[-1] for pages in recorder.layers)
    block = SCRATCH_VECTORS * head_width + SCRATCH_NUMBERS
    panel = PANEL_GROUPS * LANES * num_columns
    if recorder.computes_in_integers:
        panel = max(panel, int(load_library().pagoda_integer_scratch(num_columns, max_tokens)))
    return max(panel, block)
