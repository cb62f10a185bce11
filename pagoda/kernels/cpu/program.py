"""A recorded forward pass, laid out in memory and run by one native call a step."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Hashable
from functools import cached_property
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from pagoda.core.cache import KVCacheType
from pagoda.kernels.base import NUMPY_TYPES, FloatArray, IntArray, KVPages, RaggedBatch
from pagoda.kernels.cpu import library as native
from pagoda.kernels.cpu.memory import address, aligned_floats
from pagoda.kernels.cpu.recorder import Operation, Recorded, Recorder
from pagoda.kernels.cpu.step import StepInputs
from pagoda.kernels.cpu.workspace import PART_FLOATS, Workspace, round_up, workspace_of
from pagoda.kernels.symbol import Symbol

SLOTS = 16
MANY_TOKENS, SINGLE_TOKEN = 1, 2  # the steps before whose instruction threads meet
HALF_BLOCK = 16
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


programs: WeakSet[Program] = WeakSet()


def _renew_locks() -> None:
    """In a child process nobody is left to give back a lock that another thread held at the fork."""
    for program in programs:
        program._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


class Program:
    """Everything the library reads is kept alive here."""

    def __init__(
        self,
        recorder: Recorder,
        logits: Symbol,
        max_tokens: int,
        num_threads: int,
        instructions: str,
        kept: Symbol | None = None,
        max_rows: int = 0,
    ) -> None:
        recorder.weights.pack_all()
        self._recorder = recorder
        self._num_threads = num_threads
        self._instruction_set = instructions.encode()
        self._library = native.load_library()
        self._max_tokens = max_tokens
        self._own = own_values(recorder.instructions, logits)
        self._kept = kept
        self._places = assign_places(recorder.instructions, logits, self._own, kept)
        self._logits_place = self._places[logits.value]
        self._left = left_memory(recorder.instructions, self._places, logits, self._own)
        self._workspace = workspace_of(recorder, logits, self._places, self._left, max_tokens, max_rows, num_threads)
        self._num_logits = logits.width
        self._memory: list[npt.NDArray[Any]] = []
        self._kept_memory: FloatArray | None = None
        self._program = self._lay_out()
        self._logits_record = self._buffers[self._logits_place]
        self._reserve_scratch()
        self._inputs = self._new_inputs(0)
        self._logits: FloatArray | None = None  # where the last run wrote
        self._logits_memory = aligned_floats(*self._workspace.logits)
        self._lock = threading.Lock()
        programs.add(self)
        num_pages = [len(pages.keys) for pages in recorder.layers]
        self._limits = native.Limits(max_tokens, 0, (ctypes.c_int64 * len(num_pages))(*num_pages))
        self.nanoseconds: npt.NDArray[np.int64] | None = None

    def measure(self) -> npt.NDArray[np.int64]:
        """From now on add up where the first thread's time goes: by `Operation`, and last its waiting for others."""
        self.nanoseconds = np.zeros(len(Operation) + 1, np.int64)
        self._inputs.record.nanoseconds = address(self.nanoseconds)
        return self.nanoseconds

    def run(
        self, batch: RaggedBatch, logit_rows: IntArray, out: FloatArray | None = None, num_logits: int | None = None
    ) -> FloatArray:
        """The logits of the given tokens of the step. Threads that call at once take turns.

        `out` may be what an earlier run gave and nobody needs any more: where it is large enough it is used again.
        With `num_logits` the others of these tokens go no further than to the value that is kept.
        """
        with self._lock:
            count = len(logit_rows) if num_logits is None else num_logits
            logits = self._logits
            if logits is None or out is not logits or len(out) != count:
                logits = self._new_logits(count, is_free=logits is None or out is logits)
            if count == len(logit_rows):
                self._run(self._program, batch, logit_rows)
            else:
                before, behind = self._halves
                self._run(before, batch, logit_rows)
                self._run(behind, batch, logit_rows[:count])
            return logits

    def kept(self, num_rows: int) -> FloatArray:
        """Of the last run: the value that was to be kept, for its first rows. The next run writes over it."""
        assert self._kept is not None and self._kept_memory is not None
        return self._kept_memory[:num_rows, : self._kept.width]

    def _run(self, program: native.Program, batch: RaggedBatch, logit_rows: IntArray) -> None:
        inputs = self._inputs
        if not inputs.has(batch, logit_rows):
            inputs = self._take(batch, logit_rows)
        problem = self._library.pagoda_run_checked(
            program, inputs.record, self._limits, self._instruction_set, self._num_threads
        )
        if problem:
            raise IndexError(PROBLEMS[problem])

    @cached_property
    def _halves(self) -> tuple[native.Program, native.Program]:
        """Up to the instruction that makes the kept value, and from the one after it."""
        assert self._kept is not None
        writes = [self._kept in recorded.writes for recorded in self._recorder.instructions]
        count = len(writes) - writes[::-1].index(True)
        return self._part(0, count), self._part(count, len(writes) - count)

    def _part(self, first: int, count: int) -> native.Program:
        part = native.Program.from_buffer_copy(self._program)
        size = ctypes.sizeof(native.Instruction)
        part.instructions = (native.Instruction * count).from_buffer(self._instructions, first * size)
        part.num_instructions = count
        return part

    def _take(self, batch: RaggedBatch, logit_rows: IntArray) -> StepInputs:
        if len(batch.page_tables) != self._inputs.num_groups:
            self._inputs = self._new_inputs(len(batch.page_tables))
            self._limits.num_groups = len(batch.page_tables)
        inputs = self._inputs
        inputs.put(batch, logit_rows)
        inputs.record.nanoseconds = None if self.nanoseconds is None else address(self.nanoseconds)
        return inputs

    def allocated_bytes(self) -> tuple[int, int]:
        """What the program works in, and what it hands logits out in."""
        scratch = (self._scratch, self._parts, self._arrivals, self._claims)
        return sum(array.nbytes for array in (*self._memory, *scratch)), self._logits_memory.nbytes

    def _new_logits(self, num_rows: int, is_free: bool) -> FloatArray:
        """In the memory that is kept ready, if it is free; whoever wants more rows than that gets them for once."""
        max_rows, stride = self._workspace.logits
        memory = self._logits_memory
        is_spare = len(memory) > max_rows >= num_rows > 0
        if not is_free or is_spare or num_rows > len(memory):
            memory = self._logits_memory = aligned_floats(max(num_rows, max_rows), stride)
        self._logits_record.data = address(memory)
        self._logits = memory[:num_rows, : self._num_logits]
        return self._logits

    def _new_inputs(self, num_groups: int) -> StepInputs:
        inputs = StepInputs(num_groups)
        record = inputs.record
        record.scratch, record.scratch_stride = address(self._scratch), self._scratch.shape[1]
        record.parts, record.num_part_floats = address(self._parts), len(self._parts)
        record.arrivals, record.num_arrivals = address(self._arrivals), len(self._arrivals)
        record.claims = address(self._claims)
        return inputs

    def _reserve_scratch(self) -> None:
        """What each thread needs for itself, and what threads share."""
        self._scratch = aligned_floats(*self._workspace.scratch)
        self._parts = aligned_floats(PART_FLOATS)
        self._arrivals = np.zeros(self._workspace.num_arrivals, np.int32)
        self._claims = np.zeros(self._workspace.num_claims, np.int32)

    def _lay_out(self) -> native.Program:
        recorder = self._recorder
        self._buffers = self._make_buffers()
        self._instructions = (native.Instruction * len(recorder.instructions))()
        halved = wanting_halves(recorder)
        many = find_barriers(recorder.instructions, self._places)
        alone = find_barriers(recorder.instructions, self._places, self._own)
        runs = find_runs(recorder.instructions, many)
        for index, (record, recorded) in enumerate(zip(self._instructions, recorder.instructions, strict=True)):
            record.operation = recorded.operation
            record.barriers = MANY_TOKENS * many[index] + SINGLE_TOKEN * alone[index]
            record.run = runs[index]
            for number, argument in enumerate(recorded.arguments):
                place = self._places[argument.value] if isinstance(argument, Symbol) else argument
                record.arguments[number] = place
            for number, factor in enumerate(recorded.factors):
                record.factors[number] = factor
            if recorded.operation is Operation.QUANTIZE:
                record.arguments[2] = recorded.writes[0].value in halved
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
        memories: dict[int, FloatArray] = {}
        for place, symbol in widths.items():
            record = buffers[place]
            record.width, record.stride, record.is_rows = symbol.width, round_up(symbol.width), symbol.is_rows
            record.own_stride = record.stride if symbol.value in self._own else 0
            if place in self._workspace.buffers:  # logits have memory of their own
                memory = aligned_floats(*self._workspace.buffers[place])
                self._memory.append(memory)
                record.data = address(memory)
                memories[place] = memory
        for place, source in self._left.items():
            memories[place] = memories[source]
            buffers[place].data = address(memories[source])
        if self._kept is not None:
            self._kept_memory = memories[self._places[self._kept.value]]
        return buffers

    def _make_ropes(self) -> Any:
        ropes = (native.Rope * max(1, len(self._recorder.ropes)))()
        shapes = self._workspace.ropes
        for record, rope, (_, num_floats) in zip(ropes, self._recorder.ropes, shapes, strict=False):
            frequencies = np.ascontiguousarray(rope.inverse_frequencies, np.float32)
            record.own_stride = round_up(len(frequencies))
            cos, sin = (aligned_floats(num_floats) for _ in range(2))
            self._memory += [frequencies, cos, sin]
            record.frequencies, record.factor = address(frequencies), rope.magnitude
            record.num_pairs, record.interleaved = len(frequencies), rope.interleaved
            record.cos, record.sin = address(cos), address(sin)
        return ropes


def planned_workspace(
    recorder: Recorder, logits: Symbol, max_tokens: int, kept: Symbol | None, max_rows: int, num_threads: int
) -> Workspace:
    """What a program of this recording will work in; nothing is taken for it."""
    own = own_values(recorder.instructions, logits)
    places = assign_places(recorder.instructions, logits, own, kept)
    left = left_memory(recorder.instructions, places, logits, own)
    return workspace_of(recorder, logits, places, left, max_tokens, max_rows, num_threads)


def wanting_halves(recorder: Recorder) -> set[int]:
    """Rounded inputs that meet a weight with a scale for every 16 columns: their sums are wanted as finely."""
    products = (r for r in recorder.instructions if r.operation is Operation.LINEAR_INTEGER)
    return {r.reads[0].value for r in products if recorder.weights.packed[_index(r.arguments[1])].block == HALF_BLOCK}


def _index(argument: int | Symbol) -> int:
    assert isinstance(argument, int)
    return argument


def own_values(instructions: list[Recorded], logits: Symbol) -> frozenset[int]:
    """What every thread makes for itself in a step of one token."""
    symbols = (symbol for recorded in instructions if recorded.is_small for symbol in recorded.writes)
    return frozenset(symbol.value for symbol in symbols if isinstance(symbol, Symbol)) - {logits.value}


def rounded_values(instructions: list[Recorded]) -> frozenset[int]:
    """Their rows lie otherwise in a buffer than others."""
    return frozenset(one.writes[0].value for one in instructions if one.operation is Operation.QUANTIZE)


def assign_places(
    instructions: list[Recorded], logits: Symbol, own: frozenset[int], kept: Symbol | None = None
) -> dict[int, int]:
    """A buffer for each value. Values of one width that are never alive together share one; `kept` outlives the run."""
    last_use: dict[int, int] = {}
    for index, recorded in enumerate(instructions):
        for symbol in (*recorded.reads, *recorded.writes):
            if isinstance(symbol, Symbol):
                last_use[symbol.value] = index
    for symbol in (logits, kept):
        if symbol is not None:
            last_use[symbol.value] = len(instructions)
    places: dict[int, int] = {}
    free: dict[Hashable, list[int]] = {}

    rounded = rounded_values(instructions)

    def kind(symbol: Symbol) -> Hashable:
        return symbol.width, symbol.is_rows, symbol.value in own, symbol.value in rounded

    for index, recorded in enumerate(instructions):
        for symbol in recorded.writes:
            if isinstance(symbol, Symbol) and symbol.value not in places:
                spare = free.get(kind(symbol), [])
                is_logits = symbol.value == logits.value
                places[symbol.value] = spare.pop() if spare and not is_logits else len(set(places.values()))
        for symbol in dict.fromkeys((*recorded.reads, *recorded.writes)):
            if isinstance(symbol, Symbol) and last_use[symbol.value] == index:
                free.setdefault(kind(symbol), []).append(places[symbol.value])
    return places


def left_memory(
    instructions: list[Recorded], places: dict[int, int], logits: Symbol, own: frozenset[int]
) -> dict[int, int]:
    """By place of rows: the place of tokens whose memory it takes over.

    Behind the last attention, where all threads meet, of the tokens' values only those are read that rows are taken of.
    """
    attentions = [index for index, one in enumerate(instructions) if one.operation is Operation.ATTENTION]
    last = attentions[-1] if attentions else len(instructions)
    behind = [
        symbol for one in instructions[last:] for symbol in (*one.reads, *one.writes) if isinstance(symbol, Symbol)
    ]
    busy = {places[symbol.value] for symbol in behind if not symbol.is_rows}
    rounded = rounded_values(instructions)

    def kind(symbol: Symbol) -> Hashable:
        return symbol.width, symbol.value in own, symbol.value in rounded

    spare: dict[Hashable, list[int]] = {}
    for one in instructions[:last]:
        for symbol in one.writes:
            if isinstance(symbol, Symbol) and not symbol.is_rows and places[symbol.value] not in busy:
                found = spare.setdefault(kind(symbol), [])
                if places[symbol.value] not in found:
                    found.append(places[symbol.value])
    left: dict[int, int] = {}
    for symbol in behind:
        place = places[symbol.value]
        if symbol.is_rows and place != places[logits.value] and place not in left:
            found = spare.get(kind(symbol), [])
            if found:
                left[place] = found.pop()
    return left


def find_barriers(
    instructions: list[Recorded], places: dict[int, int], own: frozenset[int] | None = None
) -> list[bool]:
    """Threads must meet before an instruction that reads or overwrites what others may still be at.

    In a step of many tokens what is done row by row follows at once on what was done row by row: the same thread takes
    the same rows. In a step of one token (`own` is given) what a thread made for itself concerns no other."""
    barriers = []
    met = _Meeting()
    for recorded in instructions:
        by_rows = recorded.is_row_by_row and own is None
        reads = {_place(item, places) for item in recorded.reads if not _is_own(item, own)}
        writes = {_place(item, places) for item in recorded.writes if not _is_own(item, own)}
        if not by_rows:
            met.end_run()
        needed = met.forbids(reads, writes, by_rows)
        if needed:
            met = _Meeting()
        met.note(reads, writes, by_rows)
        barriers.append(needed)
    return barriers


def find_runs(instructions: list[Recorded], barriers: list[bool]) -> list[int]:
    """For each instruction that begins a run: how many, done row by row, follow without a meeting between. Else 0."""
    runs = [0] * len(instructions)
    first = None
    for index, recorded in enumerate(instructions):
        if not recorded.is_row_by_row:
            first = None
            continue
        if first is None or barriers[index]:
            first = index
        runs[first] += 1
    return runs


class _Meeting:
    """What was read and written since threads last met: by the run of row by row that is under way, and otherwise."""

    def __init__(self) -> None:
        self._read: dict[bool, set[Hashable]] = {True: set(), False: set()}
        self._written: dict[bool, set[Hashable]] = {True: set(), False: set()}

    def forbids(self, reads: set[Hashable], writes: set[Hashable], by_rows: bool) -> bool:
        # Row by row on row by row is the same thread's doing.
        kinds = (False,) if by_rows else (False, True)
        return any(reads & self._written[kind] or writes & (self._read[kind] | self._written[kind]) for kind in kinds)

    def end_run(self) -> None:
        self._read = {True: set(), False: self._read[False] | self._read[True]}
        self._written = {True: set(), False: self._written[False] | self._written[True]}

    def note(self, reads: set[Hashable], writes: set[Hashable], by_rows: bool) -> None:
        self._read[by_rows] |= reads
        self._written[by_rows] |= writes


def _is_own(item: Any, own: frozenset[int] | None) -> bool:
    if own is None:
        return False
    return item.value in own if isinstance(item, Symbol) else item[0] == "rope"


def _place(item: Any, places: dict[int, int]) -> Hashable:
    return ("buffer", places[item.value]) if isinstance(item, Symbol) else item


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
