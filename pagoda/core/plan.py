"""What one step does: the scheduler's orders for the executor, as differences from the step before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from pagoda.core.sampling_params import SamplingParams

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class PageCopy(NamedTuple):
    """Copy a page of every layer in the group before anything of this step is computed."""

    group: int
    source: int
    target: int


class TableUpdate(NamedTuple):
    """Write `pages` into a row's page table of one group, from entry `start` on."""

    row: int
    group: int
    start: int
    pages: tuple[int, ...]


class RowStart(msgspec.Struct, frozen=True):
    """A row gets a new tenant: a request that was admitted, came back after preemption, or was forked."""

    row: int
    sequence: int
    request_id: str
    sample_index: int
    num_computed: int
    page_tables: tuple[tuple[int, ...], ...]
    adapter_slot: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class StepPlan:
    """The orders are carried out from top to bottom. Entry i of each array speaks of row `rows[i]`."""

    step_id: int
    stopped: tuple[int, ...]
    """Rows whose tenant left since the last plan; a row may start again in the same plan."""
    page_copies: tuple[PageCopy, ...]
    started: tuple[RowStart, ...]
    table_updates: tuple[TableUpdate, ...]
    rows: IntArray
    sequences: LongArray
    """Whose tokens these are, since a row may have another tenant by the time the result is back."""
    num_tokens: IntArray
    num_drafts: IntArray
    """How many of the row's tokens are guesses to be verified; they come after its last known token."""
    draws: BoolArray
    """Whether the row reaches its last known token, so that the next one is drawn."""

    @property
    def is_empty(self) -> bool:
        return not len(self.rows)


@dataclass(frozen=True, eq=False, slots=True)
class RowPayload:
    """What only the executor needs to know of a new tenant; the scheduler never sees token ids."""

    sequence: int
    token_ids: IntArray
    num_prompt_tokens: int
    sampling: SamplingParams
    seed: int
    pooling: Literal["", "mean", "last"] = ""
    """Not empty: a vector is wanted of the whole text, and no token."""
    embedding_overrides: tuple[tuple[int, bytes], ...] = ()
    position_axes: int = 1
