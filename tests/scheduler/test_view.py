"""What can be seen of a scheduler, by the phases that a request goes through."""

from __future__ import annotations

from pagoda.scheduler.events import Pause, PushBack, Resume
from pagoda.scheduler.view import Phase, running_tables, view_running, view_waiting
from tests.scheduler.desk import Desk, text


def phases(desk: Desk) -> dict[str, Phase]:
    board = desk.scheduler.board
    return {view.request_id: view.phase for view in [*view_running(board), *view_waiting(board)]}


def test_a_request_goes_through_its_phases():
    desk = Desk(max_num_seqs=2, max_num_batched_tokens=8)
    desk.submit("a", text(0, 12))
    desk.submit("b", text(100, 3))
    desk.submit("c", text(200, 3), priority=4)
    assert phases(desk) == {"a": "waiting", "b": "waiting", "c": "waiting"}
    desk.step()
    assert phases(desk) == {"a": "prompt", "b": "waiting", "c": "waiting"}
    desk.step()
    assert phases(desk) == {"a": "answer", "b": "answer", "c": "waiting"}
    desk.scheduler.push_back(PushBack(desk.sample("b").number))
    assert phases(desk) == {"a": "answer", "b": "pushed back", "c": "waiting"}
    (pushed, waiting) = view_waiting(desk.scheduler.board)
    assert (pushed.num_preemptions, pushed.num_pages) == (1, 0) and waiting.priority == 4


def test_one_that_is_paused_says_so_with_a_row_and_without():
    desk = Desk()
    desk.submit("a", text(0, 3))
    desk.step()
    desk.scheduler.pause(Pause("a"))
    assert phases(desk) == {"a": "paused"} and len(view_running(desk.scheduler.board)) == 1
    desk.scheduler.push_back(PushBack(desk.sample("a").number))
    assert phases(desk) == {"a": "paused"} and len(view_waiting(desk.scheduler.board)) == 1
    desk.scheduler.resume(Resume("a"))
    assert phases(desk) == {"a": "pushed back"}


def test_who_waits_for_the_prefix_of_another_is_blocked():
    desk = Desk(max_num_batched_tokens=64)
    desk.submit("a", text(0, 30))
    desk.submit("b", [*text(0, 16), 500, 501, 502])
    desk.plan()
    assert phases(desk)["b"] == "blocked"
    desk.commit()
    assert phases(desk)["b"] == "waiting"


def test_counts_and_pages_are_those_of_the_row():
    desk = Desk(max_num_batched_tokens=64)
    desk.submit("a", text(0, 10), max_new=20)
    desk.submit("b", text(100, 3))
    desk.step()
    desk.step()
    board = desk.scheduler.board
    first, second = view_running(board)
    assert (first.num_prompt_tokens, first.num_known, first.num_computed, first.max_total_tokens) == (10, 12, 11, 30)
    assert (first.num_pages, second.num_pages) == (3, 2 if second.num_computed > 4 else 1)
    tables = running_tables(board, 0)
    assert [len(table) for table in tables] == [first.num_pages, second.num_pages]
    assert tables[0] == board.sequences[first.number].table.pages[0]  # type: ignore[union-attr]


def test_only_the_next_of_a_long_queue_are_listed():
    desk = Desk(max_num_seqs=1)
    for number in range(20):
        desk.submit(f"r{number}", text(100 * number, 3))
    assert [view.request_id for view in view_waiting(desk.scheduler.board, 3)] == ["r0", "r1", "r2"]
