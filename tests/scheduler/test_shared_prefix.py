"""A prefix under computation: others that need it wait for its pages and compute nothing of it."""

from __future__ import annotations

import pytest

from pagoda.scheduler import Cancel, PushBack
from pagoda.scheduler.decisions import Reason
from pagoda.scheduler.sequence import State
from tests.scheduler.desk import Desk, text


def two(desk: Desk) -> None:
    """`owner` begins a prompt of 16 shared tokens; `waiter` and `third` came for the same ones."""
    desk.submit("owner", text(0, 16) + [900])
    desk.submit("waiter", text(0, 16) + [901])
    desk.submit("third", text(0, 16) + [902, 903])
    desk.plan()


@pytest.mark.parametrize("is_back", [False, True])
def test_others_wait_for_the_step_of_the_pages_and_then_compute_nothing_of_them(is_back: bool) -> None:
    """Steps are computed in order: a later one finds the pages, whether the host has heard of them or not."""
    desk = Desk()
    two(desk)
    assert desk.sample("waiter").state is State.BLOCKED
    noted = desk.last("waiter", Reason.WAITS_FOR_PREFIX)
    assert (noted.values, noted.other) == ((16,), "owner")
    assert desk.scheduler.num_waiting == 2
    if is_back:
        desk.commit()
    assert desk.tokens(desk.plan()) == {"owner": 1, "waiter": 1, "third": 2}
    assert desk.last("waiter", Reason.ADMITTED).values == (16, 1)


def test_one_that_comes_while_the_pages_are_under_way_does_not_wait() -> None:
    desk = Desk()
    desk.submit("owner", text(0, 16) + [900])
    desk.plan()
    desk.submit("late", text(0, 16) + [901])
    assert desk.tokens(desk.plan()) == {"owner": 1, "late": 1}
    assert Reason.WAITS_FOR_PREFIX not in desk.reasons("late")


def test_requests_of_the_same_step_wait_too() -> None:
    desk = Desk()
    desk.submit("a", text(0, 17))
    desk.submit("b", text(0, 17))
    assert desk.tokens(desk.step()) == {"a": 17}
    assert desk.tokens(desk.step()) == {"a": 1, "b": 1}


def test_a_waiter_goes_when_its_own_part_is_there_though_the_owner_has_more_to_do() -> None:
    desk = Desk(max_num_batched_tokens=10)
    desk.submit("owner", text(0, 28))
    desk.step()
    desk.step()
    desk.submit("waiter", text(0, 24) + [900])
    assert desk.tokens(desk.plan()) == {"owner": 8}
    assert desk.last("waiter", Reason.WAITS_FOR_PREFIX).values == (24,)
    desk.commit()
    assert desk.tokens(desk.plan()) == {"owner": 1, "waiter": 1}


def test_when_the_owner_is_cancelled_a_waiter_takes_over() -> None:
    desk = Desk(max_num_batched_tokens=8)
    two(desk)
    desk.commit()
    desk.plan()
    desk.scheduler.cancel(Cancel("owner"))
    desk.commit()
    assert desk.tokens(desk.plan()) == {"waiter": 8}  # pages 0 and 1 were published in time
    assert desk.last("waiter", Reason.ADMITTED).values == (8, 9)
    desk.commit()
    assert desk.tokens(desk.plan()) == {"waiter": 1, "third": 2}
    assert desk.last("third", Reason.ADMITTED).values == (16, 2)


def test_when_the_owner_is_pushed_back_a_waiter_takes_over() -> None:
    desk = Desk()
    two(desk)
    desk.scheduler.push_back(PushBack(desk.sample("owner").number))
    assert desk.tokens(desk.plan()) == {"waiter": 17}
    assert desk.last("third", Reason.WAITS_FOR_PREFIX).other == "waiter"


def test_a_cancelled_waiter_is_forgotten() -> None:
    desk = Desk()
    two(desk)
    desk.scheduler.cancel(Cancel("waiter"))
    assert len(desk.scheduler.board.waits) == 1
    desk.commit()
    assert desk.tokens(desk.plan()) == {"owner": 1, "third": 2}


def test_who_does_not_read_the_cache_neither_waits_nor_is_waited_for() -> None:
    desk = Desk()
    desk.submit("a", text(0, 17), reads_prefix_cache=False)
    desk.submit("b", text(0, 17))
    desk.submit("c", text(0, 17), reads_prefix_cache=False)
    assert desk.tokens(desk.step()) == {"a": 17, "b": 17, "c": 17}


def test_the_queue_behind_those_set_aside_moves_on() -> None:
    desk = Desk()
    for request_id in ("owner", "waiter"):
        desk.submit(request_id, text(0, 17))
    desk.submit("stranger", text(500, 5))
    assert desk.tokens(desk.plan()) == {"owner": 17, "stranger": 5}


def test_no_more_are_set_aside_than_could_ever_run() -> None:
    desk = Desk(max_num_seqs=2)
    desk.submit("owner", text(0, 17))
    for index in range(50):
        desk.submit(f"r{index}", text(0, 17))
    desk.plan()
    assert len(desk.scheduler.board.waits) == 3


def test_a_prompt_that_is_cached_to_its_last_token_computes_just_that() -> None:
    desk = Desk()
    desk.submit("a", text(0, 16))
    desk.step("a")
    desk.submit("b", text(0, 16))
    assert desk.tokens(desk.step()) == {"b": 4}  # its last page anew: what comes next hangs on its last token
