"""A recorded forward pass, laid out in memory and run by one native call a step."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.core.cache import KVCacheType
from pagoda.kernels.base import NUMPY_TYPES, FloatArray, IntArray, KVPages, RaggedBatch
from pagoda.kernels.cpu import library as native
from pagoda.kernels.cpu.memory import address, aligned_floats
from pagoda.kernels.cpu.recorder import LANES, Operation, Recorded, Recorder, Symbol

SLOTS = 16
# For each thread attention keeps so many vectors of a head, and so many single numbers.
SCRATCH_VECTORS = 24 + 24 + 12 + 128  # queries, what they gathered, a tile of it, a span of keys or values
SCRATCH_NUMBERS = 24 * 128  # scores
SPLITS_A_THREAD = 4  # with fewer blocks of queries than that, attention is shared out by spans of tokens
PART_FLOATS = 1 << 20  # what threads leave each other of it, at most; memory that nobody touches costs nothing
PANEL_GROUPS = 2  # the most groups of rows that are decoded at once
KV_TYPES = {"float32": 0, "float16": 1, "int8": 2}
# What `pagoda_check_step` finds, by number.
PROBLEMS = (
    "",
    "the step has more tokens than the program was made for",
    "row_starts and context_lens do not fit the tokens of the step",
    "a token id is outside the vocabulary",
    "page table: a page that the step needs is not held",
    "a row of logits is asked for that the step does not have",
)


def round_up(count: int, unit: int = LANES) -> int:
    return -(-count // unit) * unit


class Program:
    """Everything the library reads is kept alive here."""

    def __init__(
        self, recorder: Recorder, logits: Symbol, max_tokens: int, num_threads: int, instructions: str
    ) -> None:
        self._recorder = recorder
        self._num_threads = num_threads
        self._instruction_set = instructions.encode()
        self._library = native.load_library()
        self._max_tokens = max_tokens
        self._places = assign_places(recorder.instructions, logits)
        self._logits_place = self._places[logits.value]
        self._num_logits = logits.width
        self._memory: list[Any] = []
        self._panel_floats = PANEL_GROUPS * LANES * max(w.num_columns for w in recorder.weights.packed)
        self._head_width = max(pages.values.shape[-1] for pages in recorder.layers)
        self._program = self._lay_out()
        self._reserve_scratch()
        num_pages = [len(pages.keys) for pages in recorder.layers]
        self._limits = native.Limits(max_tokens, 0, (ctypes.c_int64 * len(num_pages))(*num_pages))
        self.nanoseconds: npt.NDArray[np.int64] | None = None

    def measure(self) -> npt.NDArray[np.int64]:
        """From now on add up where the first thread's time goes: by `Operation`, and last its waiting for others."""
        self.nanoseconds = np.zeros(len(Operation) + 1, np.int64)
        return self.nanoseconds

    def run(self, batch: RaggedBatch, logit_rows: IntArray) -> FloatArray:
        """The logits of the given tokens of the step."""
        num_rows = len(logit_rows)
        logits = aligned_floats(num_rows, round_up(self._num_logits))
        self._buffers[self._logits_place].data = address(logits)
        tables = (native.PageTables * len(batch.page_tables))()
        kept = [np.ascontiguousarray(table, np.int32) for table in batch.page_tables]
        orders = np.empty((len(kept), len(batch.context_lens)), np.int32)
        for record, table, order in zip(tables, kept, orders, strict=True):
            record.pages, record.stride, record.order = address(table), table.shape[1], address(order)
        arrays = [np.ascontiguousarray(array, np.int32) for array in _arrays(batch, logit_rows)]
        token_ids, positions, row_starts, context_lens, rows = arrays
        step = native.Step(
            address(token_ids),
            address(positions),
            address(row_starts),
            address(context_lens),
            tables,
            len(tables),
            address(rows),
            len(token_ids),
            len(context_lens),
            num_rows,
            ctypes.cast(address(self._scratch), ctypes.POINTER(ctypes.c_float)),
            self._scratch.shape[1],
            address(self._parts),
            len(self._parts),
            address(self._arrivals),
            len(self._arrivals),
            address(self._claims),
            None if self.nanoseconds is None else address(self.nanoseconds),
        )
        self._limits.num_groups = len(tables)
        problem = self._library.pagoda_check_step(self._program, step, self._limits)
        if problem:
            raise IndexError(PROBLEMS[problem])
        self._library.pagoda_run(self._program, step, self._instruction_set, self._num_threads)
        return logits[:, : self._num_logits]

    def _reserve_scratch(self) -> None:
        """For each thread a decoded panel, or the block of queries that attention is at; and what threads share."""
        block = SCRATCH_VECTORS * self._head_width + SCRATCH_NUMBERS
        self._scratch = aligned_floats(self._num_threads, round_up(max(self._panel_floats, block)))
        self._parts = aligned_floats(PART_FLOATS)
        self._arrivals = np.zeros(SPLITS_A_THREAD * self._num_threads, np.int32)
        self._claims = np.zeros(len(self._instructions), np.int32)

    def _lay_out(self) -> native.Program:
        recorder = self._recorder
        self._buffers = self._make_buffers()
        self._instructions = (native.Instruction * len(recorder.instructions))()
        barriers = find_barriers(recorder.instructions, self._places)
        for record, recorded, barrier in zip(self._instructions, recorder.instructions, barriers, strict=True):
            record.operation = recorded.operation
            record.needs_barrier = barrier
            for index, argument in enumerate(recorded.arguments):
                place = self._places[argument.value] if isinstance(argument, Symbol) else argument
                record.arguments[index] = place
            for index, factor in enumerate(recorded.factors):
                record.factors[index] = factor
        self._weights = (native.PackedWeight * len(recorder.weights.packed))(*recorder.weights.packed)
        self._vectors = (native.Vector * max(1, len(recorder.vectors)))()
        for record, vector in zip(self._vectors, recorder.vectors, strict=False):
            record.data, record.length = address(vector), len(vector)
        self._ropes = self._make_ropes()
        self._layers = (native.LayerPages * len(recorder.layers))()
        for record, pages in zip(self._layers, recorder.layers, strict=True):
            record.keys, record.values = address(pages.keys), address(pages.values)
            if pages.key_scales is not None and pages.value_scales is not None:
                record.key_scales, record.value_scales = address(pages.key_scales), address(pages.value_scales)
            record.type, record.number_bytes = KV_TYPES[pages.keys.dtype.name], pages.keys.itemsize
            record.num_heads, record.head_width = pages.values.shape[1], pages.values.shape[3]
        return native.Program(
            self._instructions,
            len(recorder.instructions),
            self._buffers,
            self._weights,
            self._vectors,
            self._ropes,
            self._layers,
            SLOTS,
        )

    def _make_buffers(self) -> Any:
        widths: dict[int, Symbol] = {}
        for symbol in self._recorder.values:
            widths.setdefault(self._places[symbol.value], symbol)
        buffers = (native.Buffer * len(widths))()
        for place, symbol in widths.items():
            record = buffers[place]
            record.width, record.stride, record.is_rows = symbol.width, round_up(symbol.width), symbol.is_rows
            if place != self._logits_place:  # those come anew for every step
                memory = aligned_floats(self._max_tokens, record.stride)
                self._memory.append(memory)
                record.data = address(memory)
        return buffers

    def _make_ropes(self) -> Any:
        ropes = (native.Rope * max(1, len(self._recorder.ropes)))()
        for record, rope in zip(ropes, self._recorder.ropes, strict=False):
            frequencies = np.ascontiguousarray(rope.inverse_frequencies, np.float32)
            cos, sin = (aligned_floats(self._max_tokens, len(frequencies)) for _ in range(2))
            self._memory += [frequencies, cos, sin]
            record.frequencies, record.factor = address(frequencies), rope.magnitude
            record.num_pairs, record.interleaved = len(frequencies), rope.interleaved
            record.cos, record.sin = address(cos), address(sin)
        return ropes


def assign_places(instructions: list[Recorded], logits: Symbol) -> dict[int, int]:
    """A buffer for each value. Values of one width that are never alive together share one."""
    last_use: dict[int, int] = {}
    for index, recorded in enumerate(instructions):
        for symbol in (*recorded.reads, *recorded.writes):
            if isinstance(symbol, Symbol):
                last_use[symbol.value] = index
    last_use[logits.value] = len(instructions)
    places: dict[int, int] = {}
    free: dict[Hashable, list[int]] = {}
    for index, recorded in enumerate(instructions):
        for symbol in recorded.writes:
            if isinstance(symbol, Symbol) and symbol.value not in places:
                spare = free.get((symbol.width, symbol.is_rows), [])
                is_logits = symbol.value == logits.value
                places[symbol.value] = spare.pop() if spare and not is_logits else len(set(places.values()))
        for symbol in dict.fromkeys((*recorded.reads, *recorded.writes)):
            if isinstance(symbol, Symbol) and last_use[symbol.value] == index:
                free.setdefault((symbol.width, symbol.is_rows), []).append(places[symbol.value])
    return places


def find_barriers(instructions: list[Recorded], places: dict[int, int]) -> list[bool]:
    """Threads must meet before an instruction that reads or overwrites what others may still be at."""
    barriers = []
    read: set[Hashable] = set()
    written: set[Hashable] = set()

    def place(item: Any) -> Hashable:
        return ("buffer", places[item.value]) if isinstance(item, Symbol) else item

    for recorded in instructions:
        reads = {place(item) for item in recorded.reads}
        writes = {place(item) for item in recorded.writes}
        needed = bool(reads & written or writes & (read | written))
        if needed:
            read, written = set(), set()
        read |= reads
        written |= writes
        barriers.append(needed)
    return barriers


def _arrays(batch: RaggedBatch, logit_rows: IntArray) -> tuple[npt.NDArray[Any], ...]:
    return batch.token_ids, batch.positions, batch.row_starts, batch.context_lens, logit_rows


def new_pages(
    num_pages: int, page_size: int, num_kv_heads: int, head_dim: int, kv_cache_type: KVCacheType = "f32"
) -> KVPages:
    """Keys lie with their slots side by side, values with their elements: what a lane of each kernel wants."""
    number = NUMPY_TYPES[kv_cache_type]
    keys = np.zeros((num_pages, num_kv_heads, head_dim, page_size), number)
    values = np.zeros((num_pages, num_kv_heads, page_size, head_dim), number)
    if kv_cache_type != "int8":
        return KVPages(keys, values)
    scales = (num_pages, num_kv_heads, page_size)
    return KVPages(keys, values, np.zeros(scales, np.float32), np.zeros(scales, np.float32))
