"""A request whose reader takes nothing: it gets no tokens, keeps what nobody needs, and comes back where it was."""

from __future__ import annotations

import pytest

from pagoda.scheduler import Cancel, Pause, PushBack, Resume
from pagoda.scheduler.decisions import Reason
from pagoda.scheduler.log import FORMAT, LogFile
from pagoda.scheduler.replay import replay, scheduler_from
from pagoda.scheduler.sequence import State
from pagoda.scheduler.state import take_state
from tests.scheduler.desk import Desk, text


def paused(desk: Desk, request_id: str) -> None:
    desk.scheduler.pause(Pause(request_id))
    desk.scheduler.check_integrity()


def resumed(desk: Desk, request_id: str) -> None:
    desk.scheduler.resume(Resume(request_id))
    desk.scheduler.check_integrity()


def test_a_paused_request_keeps_its_row_and_pages_and_gets_no_tokens() -> None:
    desk = Desk()
    for index, request_id in enumerate("ab"):
        desk.submit(request_id, text(100 * index, 6), max_new=20)
    for _ in range(3):
        desk.step()
    paused(desk, "a")
    row, pages = desk.sample("a").row, desk.sample("a").table
    for _ in range(4):
        assert desk.tokens(desk.step()) == {"b": 1}
    assert desk.sample("a").row == row and desk.sample("a").table is pages
    resumed(desk, "a")
    assert desk.tokens(desk.step()) == {"a": 1, "b": 1}
    assert desk.reasons("a") == [Reason.QUEUED, Reason.ADMITTED, Reason.PAUSED, Reason.CONTINUED]


def test_nothing_is_left_to_do_while_all_are_paused() -> None:
    desk = Desk()
    desk.submit("a", text(0, 6))
    desk.step()
    assert desk.scheduler.has_work
    paused(desk, "a")
    assert not desk.scheduler.has_work
    assert desk.step().is_empty
    resumed(desk, "a")
    assert desk.scheduler.has_work
    desk.step("a")
    assert not desk.scheduler.has_work


def test_results_that_were_under_way_still_count() -> None:
    desk = Desk()
    desk.submit("a", text(0, 6), max_new=20)
    desk.plan()
    desk.plan()
    paused(desk, "a")
    desk.commit()
    desk.commit()
    rows = desk.scheduler.board.rows
    assert (rows.known[0], rows.settled[0], rows.in_flight[0]) == (8, 7, 0)


def test_a_prompt_that_is_half_computed_pauses_too() -> None:
    desk = Desk(max_num_seqs=2, max_num_batched_tokens=8)
    desk.submit("a", text(0, 20))
    assert desk.tokens(desk.step()) == {"a": 8}
    paused(desk, "a")
    desk.submit("b", text(500, 20))
    assert desk.tokens(desk.step()) == {"b": 8}
    resumed(desk, "a")
    assert desk.tokens(desk.step()) == {"a": 8}


def test_a_newcomer_takes_the_row_of_a_paused_one_though_it_came_later() -> None:
    desk = Desk(max_num_seqs=1)
    desk.submit("slow", text(0, 6), max_new=20)
    desk.step()
    desk.submit("quick", text(100, 6))
    assert desk.tokens(desk.step()) == {"slow": 1}
    paused(desk, "slow")
    assert desk.tokens(desk.step()) == {"quick": 6}
    assert desk.sample("slow").state is State.ASIDE and desk.last("slow", Reason.MADE_WAY).other == "quick"
    assert desk.sample("slow").num_preemptions == 0
    desk.step("quick")
    assert desk.step().is_empty, "it is not let in again while it is paused"
    resumed(desk, "slow")
    assert desk.tokens(desk.step()) == {"slow": 4}  # the first page was kept
    assert desk.last("slow", Reason.RESUMED).values == (4, 4)


def test_an_older_paused_one_gives_its_pages_to_a_younger_that_grows() -> None:
    desk = Desk(num_pages=5, caching=False, max_num_seqs=2)
    desk.submit("slow", text(0, 7), max_new=4)
    desk.submit("quick", text(100, 3), max_new=15)
    desk.step()
    paused(desk, "slow")
    while desk.sample("slow").state is State.RUNNING:
        assert desk.tokens(desk.step()) == {"quick": 1}
    assert Reason.SAT_OUT not in desk.reasons("quick") and Reason.PREEMPTED not in desk.reasons("quick")


def test_one_that_may_not_be_pushed_back_any_more_makes_way_while_it_is_paused() -> None:
    desk = Desk(max_num_seqs=1, max_preemptions=1)
    desk.submit("slow", text(0, 6), max_new=20)
    desk.step()
    desk.scheduler.push_back(PushBack(desk.sample("slow").number))
    desk.step()
    assert not desk.scheduler.board.may_be_pushed_back(desk.sample("slow"))
    paused(desk, "slow")
    desk.submit("quick", text(100, 6))
    assert desk.tokens(desk.step()) == {"quick": 6}
    assert all(pool.num_reserved == 0 for pool in desk.cache.pools)


def test_nobody_waits_for_a_prefix_that_a_paused_one_was_computing() -> None:
    desk = Desk()
    desk.submit("owner", text(0, 20))
    desk.submit("waiter", text(0, 20))
    assert desk.tokens(desk.plan()) == {"owner": 20}
    assert desk.sample("waiter").state is State.BLOCKED
    paused(desk, "owner")
    assert desk.tokens(desk.plan()) == {"waiter": 4}  # it reads what the other has under way
    desk.commit()
    desk.commit()


def test_a_waiting_one_is_passed_over() -> None:
    desk = Desk(max_num_seqs=1)
    for index, request_id in enumerate("abc"):
        desk.submit(request_id, text(100 * index, 6))
    desk.step()
    paused(desk, "b")
    desk.step("a")
    assert desk.tokens(desk.step("c")) == {"c": 6}
    resumed(desk, "b")
    assert desk.tokens(desk.step()) == {"b": 6}


def test_one_that_waits_for_a_prefix_stays_aside_when_it_is_there() -> None:
    desk = Desk()
    desk.submit("owner", text(0, 20))
    desk.submit("waiter", text(0, 20))
    desk.plan()
    paused(desk, "waiter")
    desk.commit()
    assert desk.sample("waiter").state is State.ASIDE
    assert desk.tokens(desk.step()) == {"owner": 1}
    resumed(desk, "waiter")
    assert desk.tokens(desk.step()) == {"owner": 1, "waiter": 4}


def test_all_samples_pause_together_and_a_trunk_does_not_fork() -> None:
    desk = Desk()
    desk.submit("a", text(0, 11), num_samples=3, max_new=20)
    desk.step()
    paused(desk, "a")
    assert desk.step().is_empty
    resumed(desk, "a")
    desk.step()
    assert desk.tokens(desk.step()) == {"a": 3}
    paused(desk, "a")
    assert desk.step().is_empty and desk.scheduler.board.num_paused == 3


def test_one_that_is_pushed_back_with_steps_on_the_device_goes_aside() -> None:
    desk = Desk(max_num_seqs=1)
    desk.submit("slow", text(0, 6), max_new=20)
    desk.plan()
    paused(desk, "slow")
    desk.submit("quick", text(100, 6))
    assert desk.tokens(desk.plan()) == {"quick": 6}
    assert desk.sample("slow").state is State.DRAINING
    desk.commit()
    assert desk.sample("slow").state is State.ASIDE
    desk.commit("quick")
    resumed(desk, "slow")
    assert desk.tokens(desk.step()) == {"slow": 3}  # a token was drawn meanwhile; a page was under way when it left


@pytest.mark.parametrize("where", ["running", "waiting", "aside"])
def test_a_paused_one_can_be_cancelled(where: str) -> None:
    desk = Desk(max_num_seqs=1)
    if where == "waiting":
        desk.submit("first", text(500, 6))
    desk.submit("slow", text(0, 6))
    desk.step()
    paused(desk, "slow")
    if where == "aside":
        desk.submit("other", text(100, 6))
        desk.step("other")
    desk.scheduler.cancel(Cancel("slow"))
    desk.scheduler.check_integrity()
    assert desk.scheduler.board.num_paused == 0 and "slow" not in desk.scheduler.board.requests


def test_pausing_twice_and_pausing_what_is_gone_change_nothing() -> None:
    desk = Desk()
    desk.submit("a", text(0, 6))
    paused(desk, "a")
    paused(desk, "a")
    paused(desk, "nobody")
    resumed(desk, "nobody")
    resumed(desk, "a")
    resumed(desk, "a")
    assert desk.tokens(desk.step()) == {"a": 6}
    assert desk.reasons("a") == [Reason.QUEUED, Reason.PAUSED, Reason.CONTINUED, Reason.ADMITTED]


def test_a_pause_is_saved_and_replayed() -> None:
    desk = Desk(max_num_seqs=2)
    for index, request_id in enumerate("abc"):
        desk.submit(request_id, text(100 * index, 6), max_new=30)
    desk.step()
    for request_id in "bc":
        paused(desk, request_id)
    state = take_state(desk.scheduler.board)
    assert sum(saved.is_paused for saved in state.sequences) == 2
    copy = scheduler_from(LogFile(FORMAT, state, ()))
    assert take_state(copy.board) == state and copy.num_paused == 2
    desk.step()
    resumed(desk, "b")
    desk.step()
    assert replay(desk.scheduler.log.as_file()).first_difference == ""
