from __future__ import annotations

import string

import pytest

from pagoda.core.errors import CapacityError, PagodaError
from pagoda.scheduler import Cancel, Pause, PushBack, Resume
from pagoda.scheduler.decisions import Decision, Reason
from pagoda.scheduler.words import SENTENCES, explain, find_stories, sentence, tell
from tests.scheduler.desk import Desk, text


def crowd(desk: Desk) -> Desk:
    """Two rows, a budget of 8 and 9 pages: enough to meet with every reason to wait."""
    with pytest.raises(CapacityError):
        desk.submit("huge", text(0, 100))
    desk.submit("a", text(100, 13), max_new=17)
    desk.submit("same", text(100, 13), max_new=4)
    desk.step()
    desk.plan()
    desk.commit()
    desk.submit("next", text(300, 12), max_new=5)
    for _ in range(3):
        desk.step()
    return desk


def situations() -> dict[Reason, Decision]:
    """A real decision for every reason, out of real situations."""
    met: dict[Reason, Decision] = {}
    rows = crowd(Desk(num_pages=9, max_num_seqs=2, max_num_batched_tokens=8))
    rows.step("a")
    rows.scheduler.cancel(Cancel("same"))

    samples = Desk()
    samples.submit("a", text(0, 11), num_samples=2)
    samples.step()
    samples.plan()
    samples.scheduler.push_back(PushBack(samples.sample("a", 1).number))
    samples.commit()
    samples.plan()

    waiter = Desk()
    waiter.submit("a", text(0, 16))
    waiter.submit("b", text(0, 16))
    waiter.plan()

    pages = Desk(num_pages=6, caching=False, max_preemptions=1)
    pages.submit("old", text(0, 7), max_new=13)
    pages.step()
    pages.submit("young", text(100, 3), max_new=9)
    pages.submit("third", text(200, 12), max_new=3)
    pages.step()
    pages.scheduler.push_back(PushBack(pages.sample("young").number))
    for _ in range(8):
        pages.step()

    one_row = Desk(max_num_seqs=1)
    one_row.submit("slow", text(0, 9))
    one_row.step()
    one_row.scheduler.pause(Pause("slow"))
    one_row.submit("quick", text(100, 9))
    one_row.step()
    one_row.scheduler.resume(Resume("slow"))
    for desk in (rows, samples, waiter, pages, one_row):
        met |= {decision.reason: decision for decision in desk.scheduler.log.decisions()}
    return met


def test_every_reason_is_met_and_has_a_sentence_for_its_numbers() -> None:
    met = situations()
    assert set(met) == set(Reason) == set(SENTENCES)
    for reason, decision in met.items():
        line = sentence(decision)
        assert line and "{" not in line
        named = {int(name) for _, name, _, _ in string.Formatter().parse(SENTENCES[reason]) if name and name.isdigit()}
        assert named <= set(range(len(decision.values))), reason
        uses_other = "{other}" in SENTENCES[reason]
        assert uses_other or not decision.other, reason


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (Reason.REFUSED, "refused: it could need 28 pages of cache group 0, and there are 9 in all"),
        (Reason.WAITS_FOR_PREFIX, "set aside: request a is just computing the first 12 tokens, which both share"),
        (Reason.WAITS_FOR_RESULTS, "pushed back with 1 step(s) still on the device; queues again when they are back"),
        (Reason.FORKED, "forked from sample 0 after 10 shared tokens (1 page(s) copied)"),
        (Reason.CANCELLED, "cancelled"),
        (Reason.PAUSED, "paused: nobody takes what it says; it keeps its 3 page(s) until somebody needs them"),
        (Reason.MADE_WAY, "made way while it was paused: its row or its 3 page(s) were needed by quick"),
        (Reason.CONTINUED, "somebody takes what it says again; it had kept 0 page(s)"),
    ],
)
def test_sentences_read_like_this(reason: Reason, expected: str) -> None:
    assert sentence(situations()[reason]) == expected


def test_a_story_names_step_and_time_and_follows_the_order_of_events() -> None:
    desk = Desk(num_pages=6, caching=False)
    for request_id, start in (("old", 0), ("young", 100)):
        desk.submit(request_id, text(start, 5), max_new=15)
    while not desk.scheduler.board.num_preemptions:
        desk.step()
    while "old" in desk.scheduler.board.requests:
        desk.step(*(["old"] if desk.scheduler.board.rows.known[desk.sample("old").row] == 20 else []))
    desk.step("young")
    lines = explain(desk.scheduler.log.as_file(), "young")
    story = ["queued", "started:", "pushed back (time 1 for it)", "next in the queue", "started again", "finished"]
    assert [part in line for part, line in zip(story, lines, strict=True)] == [True] * len(story)
    assert "needed by old" in lines[2]
    assert "0.000 s  step      1" in lines[1]


def test_samples_are_told_apart() -> None:
    desk = Desk()
    desk.submit("a", text(0, 11), num_samples=2)
    desk.step()
    desk.step()
    lines = explain(desk.scheduler.log.as_file(), "a")
    assert any("sample 1: forked" in line for line in lines)
    assert any("sample 0: started" in line for line in lines)


def test_a_name_finds_the_request_and_the_numbered_ones_of_a_call() -> None:
    desk = Desk()
    for request_id in ("call-0", "call-1", "call-x", "other-0", "call"):
        desk.submit(request_id, text(0, 5))
    desk.step()
    log = desk.scheduler.log
    assert [story.request_id for story in find_stories(log, "call")] == ["call-0", "call-1", "call"]
    (story,) = find_stories(log, "call-1")
    assert tell(story) == explain(log.as_file(), "call-1")
    assert find_stories(log, "nobody") == []


def test_a_request_that_the_log_does_not_know() -> None:
    desk = Desk()
    with pytest.raises(PagodaError, match="no request at all"):
        explain(desk.scheduler.log.as_file(), "x")
    for index in range(10):
        desk.submit(f"r{index}", text(0, 5))
    with pytest.raises(PagodaError, match="it knows 'r0', 'r1'.* and 2 more"):
        explain(desk.scheduler.log.as_file(), "x")


def test_an_order_from_outside_is_named_as_such() -> None:
    assert "the operator's order" in sentence(Decision(1, "a", 0, Reason.PREEMPTED, (3, 1)))
