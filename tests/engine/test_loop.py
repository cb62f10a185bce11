"""The loop on an executor whose every answer is known: late results, drafts, forks, aborts, stops and push-backs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.core.errors import CapacityError, InvalidRequest
from pagoda.core.request import Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.messages import AbortRequest, PauseRequest, PushBackRequest, ResumeRequest, StopSequence
from pagoda.scheduler.log import load_log
from pagoda.scheduler.replay import replay
from tests.engine.fake_engine import FULL, MODEL, WINDOW, FakeEngine, Shape, request

GROUPS = {"full": (FULL,), "full and window": (FULL, WINDOW)}


def mixed_requests(seed: int, count: int) -> list[Request]:
    """Prompts with few beginnings, so that pages are shared, and every kind of end."""
    rng = random.Random(seed)
    requests = []
    for number in range(count):
        stem = [rng.randrange(1, 4)] * rng.choice([0, 4, 9, 16])
        prompt = stem + [rng.randrange(MODEL.vocab_size) for _ in range(rng.randrange(1, 12))]
        least = rng.choice([0, 0, 3])
        requests.append(
            request(
                f"r{number}",
                prompt,
                priority=rng.randrange(3),
                cache_salt=rng.choice(["", "", "", "salt"]),
                n=rng.choice([1, 1, 2, 4]),
                seed=rng.choice([None, 1, 2]),
                max_tokens=rng.choice([max(1, least), 5, 20, None]),
                min_tokens=least,
                ignore_eos=rng.random() < 0.3,
                stop_token_ids=rng.choice([[], [7], [7, 8, 9]]),
                logprobs=rng.choice([None, 1]),
                prompt_logprobs=rng.choice([None, None, None, 0]),
            )
        )
    return requests


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("num_drafts", [0, 2])
@pytest.mark.parametrize("lateness", [0, 1, 3])
def test_answers_are_those_of_the_model_alone(lateness, num_drafts, groups, caching, policy):
    shape = Shape(lateness, num_drafts, GROUPS[groups], caching, policy, num_pages=20)
    engine = FakeEngine(shape)
    requests = mixed_requests(seed=lateness * 10 + num_drafts, count=24)

    def arrive(number: int) -> None:
        for _ in range(2 if requests else 0):
            engine.add(requests.pop())

    engine.run(arrive)
    engine.check_answers()
    engine.check_clean()
    engine.check_replay()
    assert engine.scheduler.board.num_preemptions > 0, "a pool this small must have pushed somebody back"
    if num_drafts:
        assert engine.executor.num_drafts_accepted > 20
        assert engine.executor.num_drafts_refused > 20


@pytest.mark.parametrize("num_drafts", [0, 2])
@pytest.mark.parametrize("lateness", [0, 3])
def test_a_request_never_grows_beyond_the_context(lateness, num_drafts):
    engine = FakeEngine(Shape(lateness, num_drafts, max_model_len=20))
    engine.add(request("long", range(1, 15), max_tokens=None, ignore_eos=True))
    engine.add(request("full", range(1, 20), max_tokens=None, ignore_eos=True))
    engine.add(request("one", [3], max_tokens=1))
    engine.run()
    engine.check_answers()
    assert [len(engine.followed[name].tokens[0]) for name in ("long", "full", "one")] == [6, 1, 1]
    assert {engine.followed[name].reasons[0] for name in ("long", "full", "one")} == {"length"}


def test_the_stop_token_is_kept_and_named():
    engine = FakeEngine(Shape(max_model_len=800, num_pages=200))
    stops = tuple(range(1, 40))
    engine.add(request("own stop", [5], stop_token_ids=stops, max_tokens=None))
    engine.add(request("end token", [5], max_tokens=None, min_tokens=2))
    engine.run()
    engine.check_answers()
    own = engine.followed["own stop"]
    assert len(own.tokens[0]) == 1 and own.stop_token_ids[0] == own.tokens[0][0]
    end = engine.followed["end token"]
    assert end.tokens[0][-1] in MODEL.end_token_ids and end.stop_token_ids[0] is None
    assert end.reasons[0] == "stop"


@pytest.mark.parametrize("min_tokens", [0, 1, 5, 12])
def test_no_answer_ends_before_min_tokens(min_tokens):
    engine = FakeEngine(Shape(lateness=1, num_drafts=2))
    stops = tuple(range(1, 30))
    for number in range(8):
        engine.add(request(f"r{number}", [number], stop_token_ids=stops, min_tokens=min_tokens))
    engine.run()
    engine.check_answers()
    for found in engine.followed.values():
        assert len(found.tokens[0]) >= max(1, min_tokens)
        assert not set(found.tokens[0][:min_tokens]) & {0, *stops}


def test_samples_of_one_request_differ_and_share_the_prompt():
    engine = FakeEngine(Shape())
    engine.add(request("many", range(1, 14), n=5, ignore_eos=True))
    engine.run()
    engine.check_answers()
    assert len({tuple(tokens) for tokens in engine.followed["many"].tokens.values()}) == 5
    assert engine.loop.counters.num_computed_tokens == 12 + 5 * 12, "the prompt was computed more than once"


@pytest.mark.parametrize("caching", [True, False])
def test_more_samples_than_rows(caching):
    engine = FakeEngine(Shape(max_num_seqs=3, caching=caching))
    engine.add(request("many", range(1, 14), n=8))
    engine.run()
    engine.check_answers()
    engine.check_clean()


@pytest.mark.parametrize("lateness", [0, 1, 3])
def test_a_shared_prompt_is_computed_once(lateness):
    """Those that need a prefix that another is just computing wait for it."""
    engine = FakeEngine(Shape(lateness, max_num_seqs=6, num_pages=200, max_model_len=200))
    prompt = [1 + position % 30 for position in range(120)]
    for number in range(12):
        engine.add(request(f"r{number}", [*prompt, number], max_tokens=1))
    engine.run()
    engine.check_answers()
    counters = engine.loop.counters
    assert counters.num_prompt_tokens == 12 * 121
    assert counters.num_cached_tokens == 11 * 120
    assert counters.num_computed_tokens == 121 + 11


def test_salts_and_prompt_scores_keep_requests_out_of_the_cache():
    engine = FakeEngine(Shape())
    prompt = list(range(1, 17))
    for number, salt in enumerate(["", "a", "b", ""]):
        engine.add(request(f"r{number}", prompt, cache_salt=salt))
        engine.run()
    engine.add(request("scored", prompt, prompt_logprobs=0))
    engine.run()
    engine.check_answers()
    cached = [engine.followed[name].started[0].num_cached_tokens for name in engine.followed]
    assert cached == [0, 0, 0, 12, 0], "all full pages but the one with the last token"


@pytest.mark.parametrize("lateness", [0, 1, 3])
def test_an_abort_at_any_step_leaves_nothing_behind(lateness):
    for at in range(14):
        engine = FakeEngine(Shape(lateness, num_drafts=2, groups=(FULL, WINDOW)))
        engine.add(request("gone", range(1, 30), n=3, ignore_eos=True))
        engine.add(request("stays", range(1, 30), ignore_eos=True))

        def abort(number: int, at: int = at, engine: FakeEngine = engine) -> None:
            if number == at:
                engine.send(AbortRequest("gone"))

        engine.run(abort)
        found = engine.followed["gone"]
        assert set(found.reasons.values()) <= {"abort", "length"} and len(found.reasons) == 3
        if found.started:
            for sample_index, (tokens, _) in enumerate(engine.expected("gone")):
                assert found.tokens[sample_index] == tokens[: len(found.tokens[sample_index])]
        del engine.requests["gone"]
        engine.check_answers()
        engine.check_clean()
        engine.check_replay()


def test_an_abort_before_the_first_step_and_of_a_stranger():
    engine = FakeEngine(Shape())
    engine.add(request("gone", [1, 2]))
    engine.send(AbortRequest("gone"))
    engine.send(AbortRequest("nobody"))
    engine.send(StopSequence("nobody", 0))
    engine.send(PushBackRequest("nobody"))
    engine.run()
    assert engine.followed["gone"].reasons == {0: "abort"}
    assert engine.followed["gone"].tokens == {0: []}
    engine.check_clean()


@pytest.mark.parametrize("lateness", [0, 1, 3])
def test_a_stop_string_found_late_ends_one_sample(lateness):
    """The text side sees tokens after the loop does; what was drawn meanwhile is dropped there."""
    engine = FakeEngine(Shape(lateness))
    engine.add(request("two", range(1, 10), n=2, max_tokens=30, ignore_eos=True))

    def stop(number: int) -> None:
        if number == 8:
            engine.send(StopSequence("two", 0))
            engine.send(StopSequence("two", 0))

    engine.run(stop)
    found = engine.followed["two"]
    (first, _), (second, reason) = engine.expected("two")
    assert 0 not in found.reasons
    assert found.tokens[0] == first[: len(found.tokens[0])] and len(found.tokens[0]) < 30
    assert (found.tokens[1], found.reasons[1]) == (second, reason)
    engine.check_clean()
    engine.check_replay()


def bad_requests() -> list[tuple[Request, str]]:
    good = request("r", [1, 2])
    cases = [
        (Request(request_id="r", prompt_token_ids=(), sampling=SamplingParams()), "prompt: is empty"),
        (Request(request_id="r", prompt_token_ids=(1,) * 64, sampling=SamplingParams()), "prompt: has 64 tokens"),
        (Request(request_id="r", prompt_token_ids=(40,), sampling=SamplingParams()), "prompt: token ids"),
        (Request(request_id="r", prompt_token_ids=(-1,), sampling=SamplingParams()), "prompt: token ids"),
        (Request(request_id="r", prompt_token_ids=(1,), sampling=good.sampling, task="score"), "task"),
        (Request(request_id="r", prompt_token_ids=(1,), sampling=SamplingParams(n=2), task="embed"), "n"),
        (Request(request_id="r", prompt_token_ids=(1,), sampling=good.sampling, adapter="x"), "adapter"),
        (request("r", [1], stop_token_ids=[40]), "stop_token_ids"),
        (request("r", [1], min_tokens=65, max_tokens=None), "min_tokens"),
    ]
    return cases


@pytest.mark.parametrize(("bad", "message"), bad_requests())
def test_a_bad_request_is_rejected_and_the_others_go_on(bad, message):
    engine = FakeEngine(Shape())
    engine.add(bad)
    engine.add(request("good", [1, 2, 3]))
    engine.run()
    rejected = engine.followed["r"].rejected
    assert rejected is not None and isinstance(rejected.error, InvalidRequest)
    assert str(rejected.error).startswith(message)
    assert not engine.followed["r"].started and not engine.followed["r"].reasons
    del engine.requests["r"]
    engine.check_answers()
    engine.check_clean()


def test_a_request_that_can_never_fit_is_rejected_with_the_numbers():
    engine = FakeEngine(Shape(num_pages=4))
    engine.add(request("big", range(1, 11), max_tokens=7))
    engine.add(request("fits", range(1, 11), max_tokens=6))
    engine.run()
    rejected = engine.followed["big"].rejected
    assert rejected is not None and isinstance(rejected.error, CapacityError)
    assert "need 5 pages of 4 tokens, and there are 4" in str(rejected.error)
    del engine.requests["big"]
    engine.check_answers()
    engine.check_clean()
    engine.check_replay()


def test_a_second_request_of_the_same_id_is_rejected():
    engine = FakeEngine(Shape())
    engine.add(request("r", [1, 2, 3]))
    engine.step()
    engine.add(request("r", [4, 5, 6]))
    engine.step()
    rejected = engine.followed["r"].rejected
    assert rejected is not None and "unique" in str(rejected.error)


@pytest.mark.parametrize("lateness", [0, 1, 3])
@pytest.mark.parametrize("num_drafts", [0, 2])
def test_being_pushed_back_again_and_again_changes_nothing(lateness, num_drafts):
    engine = FakeEngine(Shape(lateness, num_drafts, (FULL, WINDOW), num_pages=40))
    for one in mixed_requests(seed=3, count=10):
        engine.add(one)
    rng = random.Random(lateness)

    def push_back(number: int) -> None:
        if number < 60:
            for which in rng.sample(range(10), 3):
                engine.send(PushBackRequest(f"r{which}"))

    engine.run(push_back)
    engine.check_answers()
    engine.check_clean()
    engine.check_replay()
    assert engine.scheduler.board.num_preemptions > 10


def test_a_saved_log_reproduces_every_plan(tmp_path: Path):
    engine = FakeEngine(Shape(lateness=1, num_drafts=2, num_pages=30))
    for one in mixed_requests(seed=5, count=12):
        engine.add(one)
    engine.run()
    engine.scheduler.log.save(tmp_path / "decisions.log")
    report = replay(load_log(tmp_path / "decisions.log"))
    assert report.first_difference == "" and report.num_plans == len(engine.executor.plans)


@pytest.mark.parametrize("num_drafts", [0, 2])
@pytest.mark.parametrize("lateness", [0, 3])
def test_pauses_change_no_answer(lateness: int, num_drafts: int):
    engine = FakeEngine(Shape(lateness, num_drafts, num_pages=24, max_num_seqs=4))
    rng = random.Random(lateness + num_drafts)
    for one in mixed_requests(seed=9, count=16):
        engine.add(one)
    paused: set[str] = set()

    def disturb(number: int) -> None:
        if number % 3 == 0 and number < 600:
            paused.add(name := f"r{rng.randrange(16)}")
            engine.send(PauseRequest(name))
        if paused and (number % 7 == 0 or not engine.loop.has_work):
            paused.remove(name := rng.choice(sorted(paused)))
            engine.send(ResumeRequest(name))

    engine.run(disturb)
    engine.check_answers()
    engine.check_clean()
    engine.check_replay()


def test_a_loop_whose_requests_are_all_paused_has_no_work():
    engine = FakeEngine(Shape(lateness=2))
    engine.add(request("r", [1, 2], max_tokens=20, ignore_eos=True))
    engine.step()
    engine.send(PauseRequest("r"))
    engine.run(most=10)
    assert not engine.loop.has_work and not engine.executor.num_in_flight
    engine.send(ResumeRequest("r"))
    engine.run()
    engine.check_answers()


def test_an_idle_loop_has_no_work_and_tells_nothing():
    engine = FakeEngine(Shape(lateness=3))
    assert not engine.loop.has_work
    assert engine.loop.step() == []
    engine.add(request("r", [1, 2]))
    engine.run()
    assert not engine.loop.has_work
    engine.check_answers()


@st.composite
def lives(draw: st.DrawFn) -> tuple[Shape, int, list[tuple[int, str, int]]]:
    """An engine, a batch of requests, and what happens to them when."""
    shape = Shape(
        lateness=draw(st.sampled_from([0, 1, 3])),
        num_drafts=draw(st.sampled_from([0, 2])),
        groups=draw(st.sampled_from(list(GROUPS.values()))),
        caching=draw(st.booleans()),
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        num_pages=draw(st.integers(20, 60)),
        max_num_seqs=draw(st.integers(1, 6)),
    )
    kinds = st.sampled_from(["add", "add", "abort", "stop", "push back"])
    events = draw(st.lists(st.tuples(st.integers(0, 30), kinds, st.integers(0, 11)), max_size=40))
    return shape, draw(st.integers(0, 1000)), events


@settings(max_examples=60)
@given(lives())
def test_any_life_ends_well(life):
    shape, seed, events = life
    engine = FakeEngine(shape)
    requests = {one.request_id: one for one in mixed_requests(seed, 12)}
    disturbed: set[str] = set()

    def happen(number: int) -> None:
        for at, kind, which in events:
            name = f"r{which}"
            if at != number:
                continue
            if kind == "add" and name not in engine.requests:
                engine.add(requests[name])
            elif kind == "abort":
                disturbed.add(name)
                engine.send(AbortRequest(name))
            elif kind == "stop" and engine.followed.get(name) and engine.followed[name].tokens:
                disturbed.add(name)
                engine.send(StopSequence(name, 0))
            elif kind == "push back":
                engine.send(PushBackRequest(name))

    for number in range(32):
        happen(number)
        engine.step()
    engine.run()
    check_prefixes(engine, disturbed)
    for name in disturbed:
        engine.requests.pop(name, None)
    engine.requests = {name: one for name, one in engine.requests.items() if not engine.followed[name].rejected}
    engine.check_answers()
    engine.check_clean()
    engine.check_replay()


def check_prefixes(engine: FakeEngine, disturbed: set[str]) -> None:
    """What was cut short is the beginning of what would have come."""
    for name in disturbed & set(engine.requests):
        found = engine.followed[name]
        if not found.started:
            assert all(not tokens for tokens in found.tokens.values())
            continue
        for sample_index, (tokens, reason) in enumerate(engine.expected(name)):
            given_tokens = found.tokens.get(sample_index, [])
            assert given_tokens == tokens[: len(given_tokens)]
            assert found.reasons.get(sample_index) in (None, "abort", reason)
