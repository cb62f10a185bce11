"""A plan while it is being made, and the memory of plans whose results are still to come."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from pagoda.core.plan import BoolArray, IntArray, LongArray, PageCopy, RowStart, StepPlan, TableUpdate

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
    rows: IntArray
    sequences: LongArray
    num_tokens: IntArray
    num_drafts: IntArray
    draws: BoolArray
    num_moves: int
    """How often rows had changed their tenants by then; unchanged, every row still has the same one."""


def plan_digest(plan: StepPlan) -> bytes:
    """Equal plans have equal digests, here and in a replay."""
    digest = hashlib.blake2b(plan.step_id.to_bytes(8, "little"), digest_size=8)
    for array in (plan.rows, plan.sequences, plan.num_tokens, plan.num_drafts, plan.draws):
        digest.update(array.data)
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
