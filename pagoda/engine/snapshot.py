"""An engine as it stands between two steps: what a dashboard shows. Taking one costs a few milliseconds at most."""

from __future__ import annotations

import msgspec

from pagoda.engine.loop import EngineLoop
from pagoda.kv_cache.page_map import MOST_CELLS, PageMap, map_pages
from pagoda.observability.steps import StepRecord
from pagoda.scheduler.decisions import Decision
from pagoda.scheduler.view import SequenceView, running_tables, view_running, view_waiting

MOST_DECISIONS = 200


class GroupMap(msgspec.Struct, frozen=True, array_like=True):
    """The pages of one cache group. Owner i of the map is running sequence i."""

    kind: str
    pages: PageMap


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    running: tuple[SequenceView, ...]
    waiting: tuple[SequenceView, ...]
    """Those that are next; there may be more."""
    groups: tuple[GroupMap, ...]
    steps: tuple[StepRecord, ...]
    decisions: tuple[Decision, ...]
    """Of those steps, or the newest of them."""


def take_snapshot(loop: EngineLoop) -> Snapshot:
    scheduler = loop.scheduler
    board, cache = scheduler.board, scheduler.cache
    most_cells = MOST_CELLS // len(cache.pools)
    groups = [
        GroupMap(spec.kind, map_pages(pool, running_tables(board, group), most_cells))
        for group, (spec, pool) in enumerate(zip(cache.groups, cache.pools, strict=True))
    ]
    steps = tuple(loop.steps)
    first = steps[0].step_id if steps else 0
    return Snapshot(
        running=tuple(view_running(board)),
        waiting=tuple(view_waiting(board)),
        groups=tuple(groups),
        steps=steps,
        decisions=tuple(scheduler.log.newest(MOST_DECISIONS, first)),
    )
