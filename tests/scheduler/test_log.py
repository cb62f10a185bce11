from __future__ import annotations

import gc
import random
from pathlib import Path

import msgspec
import pytest

from pagoda.core.errors import PagodaError
from pagoda.scheduler import DecisionLog, load_log
from pagoda.scheduler.decisions import Decision
from pagoda.scheduler.events import PlanMade, Submit
from pagoda.scheduler.log import FORMAT, LogFile
from pagoda.scheduler.replay import replay
from pagoda.scheduler.words import explain
from tests.scheduler.random_life import FULL, WINDOW, RandomLife


def lived(steps: int = 60, segment_entries: int = 1_000_000) -> RandomLife:
    life = RandomLife(seed=1, groups=(FULL, WINDOW), delay=1, segment_entries=segment_entries)
    for _ in range(steps):
        life.step()
    return life


def test_a_log_is_bounded_and_opens_with_the_state_at_its_first_entry() -> None:
    life = RandomLife(seed=3, segment_entries=200)
    longest = 0
    for _ in range(400):
        life.step()
        longest = max(longest, len(life.log))
    # Two segments, each as long as was asked for or as the state it must pay for, and what one step adds.
    assert longest <= 2 * max(200, 4 * (40 * 4 + 40)) + 100
    log = life.log.as_file()
    plans = [entry for entry in log.entries if isinstance(entry, PlanMade)]
    assert log.state.step_id > 0
    assert plans[0].step_id == log.state.step_id + 1
    assert not replay(log).first_difference


def test_decisions_can_be_asked_for_one_request() -> None:
    log = lived().log
    every = log.decisions()
    mine = log.decisions("r3")
    assert mine and all(decision.request_id == "r3" for decision in mine)
    assert [decision for decision in every if decision.request_id == "r3"] == mine


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    log = lived().log
    log.save(tmp_path / "log")
    assert load_log(tmp_path / "log") == log.as_file()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_no_token_id_is_in_it(tmp_path: Path) -> None:
    """Everything in a log is a count, a name, a hash or a time; the types leave no room for tokens."""
    fields = set(Submit.__struct_fields__)
    assert "token_ids" not in fields and "prompt" not in fields
    life = lived()
    life.log.save(tmp_path / "log")
    data = (tmp_path / "log").read_bytes()
    longest = max(life.prompts.values(), key=len)
    assert msgspec.msgpack.encode(longest)[1:] not in data


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PagodaError, match="cannot read the log"):
        load_log(tmp_path / "none")


def test_a_log_of_another_format(tmp_path: Path) -> None:
    log = lived().log.as_file()
    other = msgspec.structs.replace(log, format="pagoda decision log 99")
    (tmp_path / "log").write_bytes(msgspec.msgpack.encode(other))
    with pytest.raises(PagodaError, match=FORMAT):
        load_log(tmp_path / "log")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"hello",
        b"\x81" * 100_000,
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffabc",
        msgspec.msgpack.encode({"format": FORMAT}),
        msgspec.msgpack.encode({"format": FORMAT, "state": {}, "entries": []}),
    ],
)
def test_a_file_that_is_no_log(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(PagodaError, match="is not a whole decision log"):
        load_log(tmp_path / "log")


def check_hostile(path: Path) -> None:
    try:
        log = load_log(path)
        explain(log, "r3")
        replay(log)
    except PagodaError:
        pass


def test_mutants_of_a_log_end_in_a_typed_error_or_in_a_report(tmp_path: Path) -> None:
    rng = random.Random(5)
    path = tmp_path / "log"
    lived(25).log.save(path)
    original = path.read_bytes()
    for _ in range(300):
        data = bytearray(original)
        for _ in range(rng.choice([1, 1, 3])):
            match rng.randrange(3):
                case 0:
                    data[rng.randrange(len(data))] = rng.randrange(256)
                case 1:
                    del data[rng.randrange(len(data)) :]
                    data += b"\0"
                case _:
                    data[rng.randrange(min(2000, len(data)))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, 0xC0])
        path.write_bytes(data)
        check_hostile(path)
    gc.collect()  # the caches that broken logs spoke of, or the check of all living ones would meet them


def huge_pool(log: LogFile) -> LogFile:
    state = msgspec.structs.replace(log.state, num_pages=(2**60, 2**60))
    return msgspec.structs.replace(log, state=state)


def huge_batch(log: LogFile) -> LogFile:
    config = msgspec.structs.replace(log.state.config, max_num_seqs=2**50, max_num_batched_tokens=2**51)
    return msgspec.structs.replace(log, state=msgspec.structs.replace(log.state, config=config))


def no_groups(log: LogFile) -> LogFile:
    return msgspec.structs.replace(log, state=msgspec.structs.replace(log.state, groups=(), num_pages=()))


def page_size_zero(log: LogFile) -> LogFile:
    return msgspec.structs.replace(log, state=msgspec.structs.replace(log.state, page_size=0))


def no_values(log: LogFile) -> LogFile:
    entries = tuple(
        msgspec.structs.replace(entry, decision=msgspec.structs.replace(entry.decision, values=()))
        if isinstance(getattr(entry, "decision", None), Decision)
        else entry
        for entry in log.entries
    )
    return msgspec.structs.replace(log, entries=entries)


@pytest.mark.parametrize("lie", [huge_pool, huge_batch, no_groups, page_size_zero, no_values])
def test_a_well_formed_lie_ends_in_a_typed_error_or_in_a_report(tmp_path: Path, lie: object) -> None:
    assert callable(lie)
    path = tmp_path / "log"
    path.write_bytes(msgspec.msgpack.encode(lie(lived(25).log.as_file())))
    check_hostile(path)


def test_an_empty_log_has_no_entries() -> None:
    assert len(DecisionLog()) == 0
    assert list(DecisionLog()) == []


def test_the_newest_decisions_without_those_before_a_step() -> None:
    log = lived().scheduler.log
    everything = log.decisions()
    assert len(everything) > 20
    assert log.newest(10_000) == everything
    assert log.newest(7) == everything[-7:]
    assert log.newest(10_000, 40) == [decision for decision in everything if decision.step_id >= 40]
    assert log.newest(10_000, 999) == []


def test_the_newest_decisions_reach_into_the_segment_before() -> None:
    log = lived(segment_entries=50).scheduler.log
    assert log.newest(10_000) == log.decisions()
