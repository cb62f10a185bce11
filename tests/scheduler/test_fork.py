"""Several samples of one request: the prompt is computed once, then every sample goes its own way."""

from __future__ import annotations

from pagoda.core.plan import PageCopy
from pagoda.scheduler import Cancel, PushBack, Stop
from pagoda.scheduler.decisions import Reason
from pagoda.scheduler.sequence import State
from tests.scheduler.desk import FULL, WINDOW, Desk, text


def pages(desk: Desk, request_id: str, index: int, group: int = 0) -> list[int]:
    table = desk.sample(request_id, index).table
    assert table is not None
    return table.pages[group]


def test_whole_pages_are_shared_and_just_the_unfinished_one_is_copied() -> None:
    desk = Desk()
    desk.submit("a", text(0, 11), num_samples=3)
    assert desk.tokens(desk.step()) == {"a": 10}  # all but the last token, once
    plan = desk.plan()
    assert desk.tokens(plan) == {"a": 3}  # the last token, by each sample for itself
    assert plan.draws.all()
    trunk = pages(desk, "a", 0)
    assert pages(desk, "a", 1)[:2] == pages(desk, "a", 2)[:2] == trunk[:2]
    targets = [pages(desk, "a", index)[2] for index in (1, 2)]
    assert plan.page_copies == tuple(PageCopy(0, trunk[2], target) for target in targets)
    assert len({trunk[2], *targets}) == 3
    assert [start.num_computed for start in plan.started] == [10, 10]
    assert desk.last("a", Reason.FORKED).values == (10, 1)


def test_nothing_is_copied_at_a_page_boundary() -> None:
    desk = Desk()
    desk.submit("a", text(0, 9), num_samples=2)
    desk.step()
    plan = desk.plan()
    assert plan.page_copies == ()
    assert pages(desk, "a", 0)[:2] == pages(desk, "a", 1)[:2]
    assert pages(desk, "a", 0)[2] != pages(desk, "a", 1)[2]


def test_every_cache_group_is_forked() -> None:
    desk = Desk(groups=[FULL, WINDOW])
    desk.submit("a", text(0, 23), num_samples=2)
    desk.step()
    plan = desk.plan()
    assert [copy.group for copy in plan.page_copies] == [0, 1]
    assert pages(desk, "a", 0, 1)[:5] == pages(desk, "a", 1, 1)[:5]


def test_a_prompt_of_one_token_forks_without_computing() -> None:
    desk = Desk()
    desk.submit("a", [7], num_samples=2)
    assert desk.step().is_empty
    assert desk.tokens(desk.step()) == {"a": 2}


def test_samples_without_a_row_queue_and_find_the_prompt_in_the_cache() -> None:
    desk = Desk(max_num_seqs=2)
    desk.submit("a", text(0, 11), num_samples=3)
    desk.step()
    assert desk.tokens(desk.step()) == {"a": 2}
    assert desk.reasons("a", 2)[:2] == [Reason.QUEUED, Reason.WAITS_FOR_ROW]
    desk.step("a")
    assert desk.tokens(desk.plan()) == {"a": 1 + 3}
    assert desk.last("a", Reason.ADMITTED).values == (8, 3)


def test_samples_without_a_page_queue() -> None:
    desk = Desk(num_pages=3, max_num_seqs=4)
    desk.submit("a", text(0, 11), max_new=1, num_samples=2)
    desk.step()
    assert desk.tokens(desk.step("a")) == {"a": 1}
    assert desk.reasons("a", 1) == [Reason.QUEUED, Reason.WAITS_FOR_PAGES]
    assert desk.tokens(desk.step()) == {"a": 3}


def test_the_samples_of_one_request_rank_by_their_number() -> None:
    desk = Desk(num_pages=9, caching=False)
    desk.submit("a", text(0, 6), max_new=20, num_samples=3)
    while not desk.scheduler.board.num_preemptions:
        desk.step()
    assert desk.sample("a", 2).state is State.WAITING
    assert desk.sample("a", 1).state is State.RUNNING


def test_a_trunk_that_is_pushed_back_forks_when_it_is_back() -> None:
    desk = Desk(max_num_batched_tokens=8)
    desk.submit("a", text(0, 20), num_samples=2)
    desk.step()
    desk.scheduler.push_back(PushBack(desk.sample("a").number))
    plans = [desk.step() for _ in range(4)]
    assert sum(len(plan.started) for plan in plans) == 2
    assert [sample.is_trunk for sample in desk.scheduler.board.requests["a"]] == [False, False]


def test_one_sample_may_end_before_the_others() -> None:
    desk = Desk()
    desk.submit("a", text(0, 11), num_samples=3)
    desk.step()
    desk.step()
    desk.scheduler.stop(Stop(desk.sample("a", 0).number, "stop"))
    assert desk.tokens(desk.step()) == {"a": 2}
    desk.scheduler.cancel(Cancel("a"))
    desk.step()
    assert desk.cache.pools[0].num_used == 0


def test_siblings_follow_when_shared_pages_are_exchanged_for_equal_ones() -> None:
    """Forked before the result of its last chunk, a single token, was back; another request had published that page."""
    desk = Desk(num_pages=30, max_num_seqs=4, max_num_batched_tokens=24)
    desk.submit("other", text(0, 12) + [77], reads_prefix_cache=False)
    desk.submit("a", text(0, 12) + [5], num_samples=2)
    assert [desk.tokens(desk.plan()) for _ in range(3)] == [
        {"other": 13, "a": 11},
        {"other": 1, "a": 1},
        {"other": 1, "a": 2},
    ]
    for _ in range(3):
        desk.commit()
    other = desk.sample("other").table
    assert other is not None
    assert pages(desk, "a", 0)[:3] == pages(desk, "a", 1)[:3] == other.pages[0][:3]
    plan = desk.plan()
    told = {update.row for update in plan.table_updates if update.start == 2}
    assert told == {desk.sample("a", 0).row, desk.sample("a", 1).row}
    desk.scheduler.stop(Stop(desk.sample("other").number, "stop"))
    desk.scheduler.stop(Stop(desk.sample("a").number, "stop"))
    desk.scheduler.check_integrity()
    assert desk.cache.pools[0].refs[other.pages[0][0] if other.pages[0] else pages(desk, "a", 1)[0]] == 1
