from __future__ import annotations

import dataclasses

import msgspec
import pytest

from pagoda.scheduler.decisions import Reason
from pagoda.scheduler.draft import plan_digest
from pagoda.scheduler.events import Cancel, PlanMade, StepOutcome, Submit
from pagoda.scheduler.log import DecisionEntry, FileEntry, LogFile
from pagoda.scheduler.replay import replay, replayed_plans, scheduler_from
from pagoda.scheduler.state import take_state
from tests.scheduler.random_life import FULL, WINDOW, RandomLife


def lived(segment_entries: int = 1_000_000, steps: int = 150) -> RandomLife:
    life = RandomLife(seed=2, delay=1, num_drafts=3, groups=(FULL, WINDOW), segment_entries=segment_entries)
    for _ in range(steps):
        life.step()
    return life


def test_the_replayed_plans_are_the_plans_that_were_made() -> None:
    life = lived()
    log = life.log.as_file()
    report = replay(log)
    assert report.first_difference == ""
    assert report.num_plans == len(life.plans)
    assert report.num_decisions == len(life.log.decisions())
    assert [plan_digest(plan) for _, plan in replayed_plans(log, scheduler_from(log))] == life.plans


def test_a_log_that_lost_its_beginning_replays_from_its_snapshot() -> None:
    life = lived(segment_entries=50, steps=400)
    log = life.log.as_file()
    assert log.state.sequences and log.state.in_flight and log.state.cache.nodes
    digests = [plan_digest(plan) for _, plan in replayed_plans(log, scheduler_from(log))]
    assert 0 < len(digests) < len(life.plans)
    assert digests == life.plans[-len(digests) :]
    assert not replay(log).first_difference


def test_a_state_put_and_taken_again_is_the_same() -> None:
    life = lived()
    state = take_state(life.scheduler.board)
    log = LogFile("", state, ())
    copy = scheduler_from(log)
    copy.check_integrity()
    assert take_state(copy.board) == state


def tampered(log: LogFile, index: int, entry: FileEntry | None) -> LogFile:
    entries = [*log.entries[:index], *([] if entry is None else [entry]), *log.entries[index + 1 :]]
    return msgspec.structs.replace(log, entries=tuple(entries))


def places(log: LogFile, kind: type) -> list[int]:
    return [index for index, entry in enumerate(log.entries) if isinstance(entry, kind)]


def test_a_wrong_digest_is_caught() -> None:
    log = lived().log.as_file()
    index = places(log, PlanMade)[40]
    plan = log.entries[index]
    forged = tampered(log, index, msgspec.structs.replace(plan, digest=b"\0" * 8))
    assert "step 41 came out differently" in replay(forged).first_difference


def test_a_forged_decision_is_caught() -> None:
    log = lived().log.as_file()
    index = places(log, DecisionEntry)[30]
    entry = log.entries[index]
    assert isinstance(entry, DecisionEntry)
    other = Reason.SAT_OUT if entry.decision.reason is not Reason.PAUSED else Reason.QUEUED
    lie = DecisionEntry(msgspec.structs.replace(entry.decision, reason=other))
    assert "noted" in replay(tampered(log, index, lie)).first_difference


def test_a_decision_left_out_is_caught() -> None:
    log = lived().log.as_file()
    index = places(log, DecisionEntry)[-1]
    assert "decisions were noted" in replay(tampered(log, index, None)).first_difference


@pytest.mark.parametrize("kind", [Submit, Cancel, StepOutcome, PlanMade])
def test_an_event_left_out_is_caught(kind: type) -> None:
    log = lived().log.as_file()
    index = places(log, kind)[2]
    assert replay(tampered(log, index, None)).first_difference


def test_an_event_changed_is_caught() -> None:
    log = lived().log.as_file()
    index = places(log, Submit)[2]
    event = log.entries[index]
    assert isinstance(event, Submit)
    longer = msgspec.structs.replace(event, num_prompt_tokens=event.num_prompt_tokens + 1, max_total_tokens=90)
    assert replay(tampered(log, index, longer)).first_difference


def test_a_snapshot_changed_is_caught() -> None:
    log = lived(segment_entries=50, steps=400).log.as_file()
    state = msgspec.structs.replace(log.state, next_number=log.state.next_number + 1)
    assert replay(msgspec.structs.replace(log, state=state)).first_difference


def test_the_report_is_a_frozen_record() -> None:
    report = replay(lived(steps=5).log.as_file())
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.num_plans = 3  # type: ignore[misc]
