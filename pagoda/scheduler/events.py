"""All that ever enters the scheduler. Feed the same events to the same state and the same plans come out.

Those of every step are kept by the ten thousand and hold no cycles: the garbage collector need not see them.
"""

from __future__ import annotations

import msgspec

from pagoda.core.request import FinishReason


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """A new request, reduced to counts and page names: the scheduler never sees a token id."""

    request_id: str
    num_prompt_tokens: int
    max_total_tokens: int
    """Prompt and answer together never get longer than this."""
    num_samples: int = 1
    priority: int = 0
    page_names: tuple[bytes, ...] = ()
    """Hashes of the full pages of the prompt."""
    reads_prefix_cache: bool = True


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The request is no longer wanted, in whatever state it is."""

    request_id: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """One sequence has its answer (a stop string was seen, for instance)."""

    sequence: int
    reason: FinishReason


class PushBack(msgspec.Struct, frozen=True, tag="push_back"):
    """Take a running sequence's pages and put it back into the queue."""

    sequence: int


class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """Nobody takes what the request says: it gets no more tokens until `Resume`."""

    request_id: str


class Resume(msgspec.Struct, frozen=True, tag="resume"):
    request_id: str


class PageNames(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Hashes of pages that became full of known tokens."""

    sequence: int
    names: tuple[bytes, ...]


class Finished(msgspec.Struct, frozen=True, gc=False, array_like=True):
    sequence: int
    reason: FinishReason


class StepOutcome(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag="outcome"):
    """What became of a planned step."""

    step_id: int
    num_new: tuple[int, ...] | None = None
    """New tokens by plan entry; None: one for each row that drew, so no draft was refused."""
    finished: tuple[Finished, ...] = ()
    page_names: tuple[PageNames, ...] = ()


class PlanMade(msgspec.Struct, frozen=True, gc=False, tag="plan"):
    """A plan was asked for at the time `now`; its digest tells whether a replay made the same one."""

    step_id: int
    now: float
    digest: bytes


Event = Submit | Cancel | Stop | PushBack | Pause | Resume | StepOutcome | PlanMade
