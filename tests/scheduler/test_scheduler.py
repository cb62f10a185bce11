from __future__ import annotations

import pytest

from pagoda.core.errors import CapacityError, InvalidRequest
from pagoda.scheduler import Cancel, PushBack, Stop
from pagoda.scheduler.decisions import Reason
from pagoda.scheduler.sequence import State
from tests.scheduler.desk import FULL, WINDOW, Desk, text


def test_every_step_lets_newcomers_in_beside_those_that_decode() -> None:
    desk = Desk()
    desk.submit("a", text(0, 5))
    assert desk.tokens(desk.step()) == {"a": 5}
    desk.submit("b", text(100, 7))
    assert desk.tokens(desk.step()) == {"a": 1, "b": 7}
    desk.submit("c", text(200, 3))
    assert desk.tokens(desk.step("a")) == {"a": 1, "b": 1, "c": 3}
    assert desk.tokens(desk.step()) == {"b": 1, "c": 1}


def test_a_long_prompt_is_cut_and_never_starves_those_that_decode() -> None:
    desk = Desk(max_num_batched_tokens=8, max_num_seqs=4)
    desk.submit("a", text(0, 4))
    desk.submit("b", text(50, 4))
    desk.step()
    desk.submit("long", text(100, 20))
    shares = [desk.tokens(desk.step()) for _ in range(5)]
    assert shares == [{"a": 1, "b": 1, "long": 6}] * 3 + [{"a": 1, "b": 1, "long": 2}, {"a": 1, "b": 1, "long": 1}]
    chunked = desk.last("long", Reason.CHUNKED)
    assert chunked.values == (6, 0, 20, 6)
    assert desk.reasons("long").count(Reason.CHUNKED) == 1  # said once, when it began


def test_only_the_last_chunk_draws() -> None:
    desk = Desk(max_num_batched_tokens=8, max_num_seqs=4)
    desk.submit("a", text(0, 17))
    assert [desk.step().draws.tolist() for _ in range(4)] == [[False], [False], [True], [True]]


def test_the_budget_is_never_exceeded_and_used_in_full() -> None:
    desk = Desk(max_num_batched_tokens=16, max_num_seqs=8)
    for index in range(8):
        desk.submit(f"r{index}", text(100 * index, 11))
    totals = [int(desk.step().num_tokens.sum()) for _ in range(7)]
    assert max(totals) <= 16
    assert totals[:5] == [16] * 5


def test_first_come_first_served() -> None:
    desk = Desk(max_num_seqs=2)
    for index, priority in enumerate([5, 5, 0, 1]):
        desk.submit(f"r{index}", text(100 * index, 4), priority=priority)
    assert set(desk.tokens(desk.step())) == {"r0", "r1"}
    assert set(desk.tokens(desk.step("r1"))) == {"r0", "r1"}
    assert set(desk.tokens(desk.step())) == {"r0", "r2"}
    assert desk.last("r2", Reason.WAITS_FOR_ROW).values == (2,)


def test_by_priority_and_then_by_arrival() -> None:
    desk = Desk(max_num_seqs=1, policy="priority")
    for request_id, priority in (("late", 2), ("first", 1), ("second", 1)):
        desk.submit(request_id, text(ord(request_id[0]) * 100, 4), priority=priority)
    order = []
    for _ in range(3):
        (request_id,) = desk.tokens(desk.plan())
        order.append(request_id)
        desk.commit(request_id)
    assert order == ["first", "second", "late"]


def test_a_request_of_higher_priority_displaces_a_lower_one() -> None:
    desk = Desk(max_num_seqs=1, policy="priority")
    desk.submit("low", text(0, 9), priority=5)
    desk.step()
    desk.submit("high", text(100, 4), priority=1)
    plan = desk.step()
    assert desk.tokens(plan) == {"high": 4}
    assert plan.stopped == (0,)
    assert desk.last("low", Reason.PREEMPTED).other == "high"
    desk.step("high")
    assert desk.tokens(desk.step()) == {"low": 2}  # 8 of its 10 tokens are still in the prefix cache
    assert desk.last("low", Reason.RESUMED).values == (8, 2)


def test_an_equal_priority_displaces_nobody() -> None:
    desk = Desk(max_num_seqs=1, policy="priority")
    desk.submit("one", text(0, 4), priority=1)
    desk.step()
    desk.submit("two", text(100, 4), priority=1)
    assert desk.tokens(desk.step()) == {"one": 1}


def test_who_waited_for_the_displaced_one_keeps_its_place_in_the_queue() -> None:
    """Displacing wakes those that waited for the displaced one's prefix, and one of them may come first."""
    desk = Desk(num_pages=12, policy="priority", max_num_seqs=2, max_num_batched_tokens=10)
    desk.submit("owner", text(0, 25), priority=2)
    desk.step()
    desk.step()
    desk.submit("waiter", text(0, 25), priority=0)
    desk.plan()
    assert desk.sample("waiter").state is State.BLOCKED
    desk.submit("between", text(100, 20), max_new=20, priority=1)
    plan = desk.plan()
    assert list(desk.tokens(plan)) == ["waiter"]
    assert desk.sample("between").state is State.WAITING


def crowded(**config: int) -> Desk:
    """Two requests whose answers do not fit side by side: 6 pages, of which each ends up wanting 5."""
    desk = Desk(num_pages=6, caching=False, **config)
    desk.submit("old", text(0, 5), max_new=15)
    desk.submit("young", text(100, 5), max_new=15)
    return desk


def test_the_youngest_is_pushed_back_when_pages_run_out_and_computes_its_tokens_anew() -> None:
    desk = crowded()
    pushed_at = None
    for step in range(1, 12):
        plan = desk.step()
        if plan.stopped:
            pushed_at = step
            break
    assert pushed_at is not None
    assert desk.tokens(plan) == {"old": 1}
    assert desk.sample("young").state is State.WAITING
    known = desk.sample("young").num_known
    assert desk.last("young", Reason.PREEMPTED).values == (3, 1)
    assert desk.last("young", Reason.PREEMPTED).other == "old"
    while "old" in desk.scheduler.board.requests:
        desk.step(*(["old"] if desk.scheduler.board.rows.known[desk.sample("old").row] == 20 else []))
    assert desk.tokens(desk.step()) == {"young": known}
    assert desk.last("young", Reason.RESUMED).values == (0, known)


def test_after_too_many_times_it_starts_with_a_promise_and_stays() -> None:
    desk = crowded(max_preemptions=2)
    desk.step()
    young = desk.sample("young")
    for _ in range(2):
        desk.scheduler.push_back(PushBack(young.number))
        desk.step()
    # 5 + 15 tokens are 5 pages, and the older one holds 2 of the 6.
    assert desk.last("young", Reason.WAITS_FOR_PAGES).values == (5, 4, 6)
    for _ in range(3):
        desk.step()
        assert young.state is State.WAITING
    desk.scheduler.cancel(Cancel("old"))
    desk.step()
    assert young.table is not None and young.table.promised == [5]
    desk.submit("third", text(200, 3), max_new=2)
    while young.number in desk.scheduler.board.sequences:
        desk.step(*(["young"] if desk.scheduler.board.rows.known[young.row] == 20 else []))
    assert desk.reasons("young").count(Reason.PREEMPTED) == 2
    assert Reason.SAT_OUT not in desk.reasons("young")


def test_an_older_one_sits_out_when_nobody_may_be_pushed_back() -> None:
    desk = Desk(num_pages=6, caching=False, max_preemptions=1)
    desk.submit("old", text(0, 7), max_new=13)
    desk.step()
    desk.submit("young", text(100, 3), max_new=9)
    desk.step()
    young = desk.sample("young")
    desk.scheduler.push_back(PushBack(young.number))
    desk.step()  # comes back with all of its 3 pages promised
    assert young.table is not None and young.table.promised == [3]
    for _ in range(6):
        desk.step()
    assert desk.last("old", Reason.SAT_OUT).values == (1, 0, 6)
    assert young.state is State.RUNNING
    desk.step("young")
    assert desk.tokens(desk.step()) == {"old": 1}


def test_a_request_that_can_never_fit_is_refused_with_the_numbers() -> None:
    desk = Desk(num_pages=4)
    desk.submit("fits", text(0, 10), max_new=6)
    with pytest.raises(CapacityError, match="10 prompt tokens growing to 17 need 5 pages of 4 tokens, and there are 4"):
        desk.submit("huge", text(0, 10), max_new=7)
    assert desk.last("huge", Reason.REFUSED).values == (5, 4, 0)
    assert "huge" not in desk.scheduler.board.requests
    desk.submit("huge", text(0, 3))  # the name is not taken


def test_a_window_refuses_only_what_its_window_needs() -> None:
    desk = Desk(num_pages=12, groups=[WINDOW], max_num_batched_tokens=16)
    desk.submit("endless", text(0, 100), max_new=1000)
    for _ in range(200):
        desk.step()
    assert desk.cache.pools[0].num_used <= 7


def test_a_name_that_is_in_use_is_refused() -> None:
    desk = Desk()
    desk.submit("a", text(0, 3))
    with pytest.raises(InvalidRequest, match="request_id"):
        desk.submit("a", text(0, 3))


@pytest.mark.parametrize(
    ("prompt", "max_new", "fields"),
    [(0, 5, {}), (5, 0, {}), (5, 5, {"num_samples": 0})],
)
def test_a_request_that_makes_no_sense_is_refused(prompt: int, max_new: int, fields: dict[str, int]) -> None:
    desk = Desk()
    with pytest.raises(InvalidRequest):
        desk.submit("a", text(0, prompt), max_new=max_new, **fields)
    assert not desk.scheduler.has_work


def test_cancelled_while_waiting() -> None:
    desk = Desk(max_num_seqs=1)
    desk.submit("a", text(0, 3))
    desk.submit("b", text(100, 3))
    desk.step()
    assert len(desk.scheduler.cancel(Cancel("b"))) == 1
    assert desk.scheduler.num_waiting == 0
    assert desk.reasons("b")[-1] is Reason.CANCELLED


def test_cancelled_while_running_frees_row_and_pages_at_once() -> None:
    desk = Desk(caching=False)
    desk.submit("a", text(0, 9))
    desk.step()
    desk.scheduler.cancel(Cancel("a"))
    assert desk.cache.pools[0].num_used == 0
    assert desk.plan().stopped == (0,)
    assert not desk.scheduler.has_work


def test_cancelled_with_steps_on_the_device() -> None:
    desk = Desk()
    desk.submit("a", text(0, 9))
    desk.plan()
    desk.plan()
    desk.scheduler.cancel(Cancel("a"))
    desk.submit("b", text(100, 9))
    plan = desk.plan()  # takes over the row while results of the last tenant are under way
    assert plan.rows.tolist() == [0]
    for _ in range(3):
        desk.commit()
    assert desk.scheduler.board.rows.settled[0] == 9


def test_cancelled_while_draining() -> None:
    desk = Desk()
    desk.submit("a", text(0, 9))
    desk.plan()
    desk.scheduler.push_back(PushBack(desk.sample("a").number))
    assert desk.sample("a").state is State.DRAINING
    desk.scheduler.cancel(Cancel("a"))
    desk.commit()
    assert not desk.scheduler.has_work and desk.scheduler.num_waiting == 0


def test_cancelled_while_its_samples_are_still_one() -> None:
    desk = Desk(max_num_batched_tokens=8)
    desk.submit("a", text(0, 20), num_samples=3)
    desk.step()
    assert desk.sample("a").is_trunk
    desk.scheduler.cancel(Cancel("a"))
    desk.step()
    assert not desk.scheduler.has_work


def test_cancelling_ends_every_sample() -> None:
    desk = Desk()
    desk.submit("a", text(0, 6), num_samples=3)
    desk.step()
    desk.step()
    assert len(desk.scheduler.cancel(Cancel("a"))) == 3
    desk.plan()
    assert desk.cache.pools[0].num_used == 0


def test_cancelling_what_is_not_here_is_no_error() -> None:
    desk = Desk()
    assert desk.scheduler.cancel(Cancel("nobody")) == []
    desk.scheduler.stop(Stop(99, "stop"))
    desk.scheduler.push_back(PushBack(99))


def test_stopping_one_sample_leaves_the_others() -> None:
    desk = Desk()
    desk.submit("a", text(0, 6), num_samples=2)
    desk.step()
    desk.step()
    desk.scheduler.stop(Stop(desk.sample("a", 1).number, "stop"))
    assert desk.tokens(desk.step()) == {"a": 1}


def test_results_three_steps_late_change_no_token_count() -> None:
    prompt_now, prompt_late = Desk(), Desk()
    for desk in (prompt_now, prompt_late):
        desk.submit("a", text(0, 9), max_new=20)
    now = [prompt_now.step().num_tokens.tolist() for _ in range(8)]
    late = []
    for step in range(8):
        late.append(prompt_late.plan().num_tokens.tolist())
        if step >= 3:
            prompt_late.commit()
    assert late == now
    assert prompt_late.scheduler.board.rows.settled[0] == 9 + 4
    assert prompt_late.scheduler.board.rows.computed[0] == 9 + 7


def test_nothing_is_planned_beyond_the_limit_while_results_are_out() -> None:
    desk = Desk()
    desk.submit("a", text(0, 4), max_new=2)
    assert [desk.plan().num_tokens.tolist() for _ in range(4)] == [[4], [1], [], []]


def test_pushed_back_with_results_out_it_queues_when_they_are_back() -> None:
    desk = Desk()
    desk.submit("a", text(0, 9))
    desk.plan()
    desk.plan()
    desk.scheduler.push_back(PushBack(desk.sample("a").number))
    assert desk.last("a", Reason.WAITS_FOR_RESULTS).values == (2,)
    assert desk.plan().is_empty
    desk.commit()
    assert desk.sample("a").state is State.DRAINING
    desk.commit()
    assert desk.sample("a").state is State.WAITING
    assert desk.sample("a").num_known == 11
    assert desk.tokens(desk.plan()) == {"a": 3}  # two pages of its prompt were published while they were under way


def test_refused_drafts_roll_back() -> None:
    desk = Desk(num_draft_tokens=3, max_num_batched_tokens=64)
    desk.submit("a", text(0, 5), max_new=30)
    plan = desk.plan()
    assert (plan.num_tokens.tolist(), plan.num_drafts.tolist()) == ([5], [0])
    desk.commit(num_new=(1,))
    plan = desk.plan()
    assert (plan.num_tokens.tolist(), plan.num_drafts.tolist()) == ([4], [3])
    desk.commit(num_new=(2,))  # one of three was right
    rows = desk.scheduler.board.rows
    assert (rows.known[0], rows.computed[0], rows.settled[0]) == (8, 7, 7)


def test_drafts_roll_back_with_results_late_and_end_at_the_limit() -> None:
    desk = Desk(num_draft_tokens=3, max_num_batched_tokens=64)
    desk.submit("a", text(0, 5), max_new=7)
    desk.plan()
    assert desk.plan().num_tokens.tolist() == [4]
    assert desk.plan().num_tokens.tolist() == [2]  # only two more fit if all goes well
    assert desk.plan().is_empty
    desk.commit(num_new=(1,))
    desk.commit(num_new=(1,))
    assert desk.plan().num_tokens.tolist() == [3]
    desk.commit(num_new=(1,))
    desk.commit(num_new=())


def test_drafts_count_towards_the_budget() -> None:
    desk = Desk(num_draft_tokens=3, max_num_batched_tokens=12, max_num_seqs=3)
    for index in range(2):
        desk.submit(f"r{index}", text(100 * index, 3), max_new=20)
    desk.plan()
    desk.commit(num_new=(1, 1))
    desk.submit("long", text(500, 30))
    assert desk.tokens(desk.plan()) == {"r0": 4, "r1": 4, "long": 4}


def test_a_full_and_a_window_group_keep_tables_of_one_length() -> None:
    desk = Desk(groups=[FULL, WINDOW])
    desk.submit("a", text(0, 30), max_new=20)
    for _ in range(15):
        desk.step()
    table = desk.sample("a").table
    assert table is not None
    assert len(table.pages[0]) == len(table.pages[1])
    assert table.first_held[0] == 0 and table.first_held[1] >= 8


def test_pages_that_equal_published_ones_are_exchanged_and_the_executor_is_told() -> None:
    desk = Desk()
    desk.submit("a", text(0, 9), reads_prefix_cache=False)
    desk.submit("b", text(0, 9), reads_prefix_cache=False)
    desk.step()
    plan = desk.step()
    a, b = (desk.sample(request_id) for request_id in "ab")
    assert a.table is not None and b.table is not None
    assert a.table.pages[0][:2] == b.table.pages[0][:2]
    told = {(update.start, update.pages) for update in plan.table_updates if update.row == b.row}
    assert {(0, (a.table.pages[0][0],)), (1, (a.table.pages[0][1],))} <= told
