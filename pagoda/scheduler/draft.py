"""A plan while it is being made, and the memory of plans whose results are still to come."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from pagoda.core.plan import BoolArray, IntArray, LongArray, PageCopy, RowStart, StepPlan, TableUpdate

IndexArray = npt.NDArray[np.intp]
AnyArray = TypeVar("AnyArray", IntArray, BoolArray)
_encoder = msgspec.msgpack.Encoder()


class Decoders(NamedTuple):
    """Entry i of both arrays speaks of row i, whether it decodes in this plan or not."""

    is_ready: BoolArray
    step: BoolArray | LongArray
    """Tokens to compute: one, and the drafts after it."""


@dataclass(eq=False, slots=True)
class PlanDraft:
    """Collects what a step will do. `grants` are the prompt tokens of rows that are not decoding yet."""

    step_id: int
    stopped: list[int]
    table_updates: list[TableUpdate]
    page_copies: list[PageCopy] = field(default_factory=list)
    started: list[RowStart] = field(default_factory=list)
    grants: dict[int, tuple[int, bool]] = field(default_factory=dict)  # row -> (tokens, draws)
    held_back: set[int] = field(default_factory=set)  # rows that found no page for their next token
    decoders: Decoders | None = None  # None: to be worked out

    def take_back(self, row: int) -> None:
        """The row's tenant was pushed back in this very plan: undo what the plan had for it."""
        self.decoders = None
        self.grants.pop(row, None)
        self.held_back.discard(row)
        self.started = [start for start in self.started if start.row != row]
        self.table_updates = [update for update in self.table_updates if update.row != row]

    def hold_back(self, row: int) -> None:
        self.decoders = None
        self.held_back.add(row)

    def add_pages(self, row: int, start: int, added: list[list[int]]) -> None:
        for group, pages in enumerate(added):
            if pages:
                self.table_updates.append(TableUpdate(row, group, start, tuple(pages)))


class StepInFlight(NamedTuple):
    """What a step was asked to do, kept until its result is back."""

    step_id: int
    rows: IndexArray
    sequences: LongArray
    num_tokens: IntArray
    num_drafts: IntArray
    draws: BoolArray
    num_moves: int
    """How often tenants had moved or paused by then; unchanged, every row still has the same one."""
    ones: LongArray | None = None
    """In a step that repeats the one before it: by row of the table, 1 for those that compute a token, 0 for others."""


def plan_digest(plan: StepPlan) -> bytes:
    """Equal plans have equal digests, here and in a replay."""
    return _digest(plan, _array_bytes(plan))


class PlanDigester:
    """`plan_digest` for plans that come one after the other and mostly share their arrays."""

    def __init__(self) -> None:
        self._last: StepPlan | None = None
        self._bytes = b""

    def digest(self, plan: StepPlan) -> bytes:
        last = self._last
        if (
            last is None
            or plan.rows is not last.rows
            or plan.sequences is not last.sequences
            or plan.num_tokens is not last.num_tokens
            or plan.num_drafts is not last.num_drafts
            or plan.draws is not last.draws
        ):
            self._last, self._bytes = plan, _array_bytes(plan)
        return _digest(plan, self._bytes)


def _array_bytes(plan: StepPlan) -> bytes:
    arrays = (plan.rows, plan.sequences, plan.num_tokens, plan.num_drafts, plan.draws)
    return b"".join([array.tobytes() for array in arrays])


def _digest(plan: StepPlan, array_bytes: bytes) -> bytes:
    digest = hashlib.blake2b(plan.step_id.to_bytes(8, "little") + array_bytes, digest_size=8)
    if plan.stopped or plan.page_copies or plan.started or plan.table_updates:
        orders = (plan.stopped, plan.page_copies, plan.started, plan.table_updates)
        digest.update(_encoder.encode(orders))
    return digest.digest()


def as_ints(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int32)


def constant(array: AnyArray) -> AnyArray:
    """An array that many plans may share, since nobody can write to it."""
    array.setflags(write=False)
    return array
