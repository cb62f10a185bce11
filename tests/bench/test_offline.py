from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from pagoda.bench.config import ThroughputConfig
from pagoda.bench.offline import OfflineBench, batch_of, check_lengths, make_requests
from pagoda.bench.workloads import TokenRequest, seed
from pagoda.core.errors import InvalidRequest
from tests.bench.conftest import MakeLLM
from tests.bench.plans import plan_of, start_of

REQUESTS = [TokenRequest([10 + number] * 20, 6) for number in range(6)]


def test_a_run_answers_all_and_remembers_nothing_of_the_last(make_llm: MakeLLM) -> None:
    bench = OfflineBench(make_llm(kernels="reference"))
    first, second = bench.run(REQUESTS), bench.run(REQUESTS)
    for run in (first, second):
        assert (run.num_requests, run.num_input_tokens, run.num_output_tokens) == (6, 120, 36)
        assert not run.was_interrupted and run.costs.num_steps == len(run.steps) > 6
        assert all(output.num_cached_tokens == 0 for output in run.outputs)
    assert first.costs.num_steps == second.costs.num_steps
    assert 0 < first.costs.host_seconds < first.costs.step_seconds < first.seconds


def test_a_warm_up_is_short(make_llm: MakeLLM) -> None:
    llm = make_llm(kernels="reference")
    bench = OfflineBench(llm)
    bench.warm_up([TokenRequest([10] * 200, 100)] * 9)
    assert llm.engine.loop.counters.num_requests == 4, "no more than there are rows"
    assert llm.engine.loop.counters.num_drawn_tokens == 4 * 4


def test_a_run_that_is_interrupted_tells_what_there_was(make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm(kernels="reference")
    bench = OfflineBench(llm)
    loop = llm.engine.loop
    real, turns = loop.step, iter(range(1000))

    def step(*meanwhile: Any) -> object:
        if next(turns) == 20:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*meanwhile)

    monkeypatch.setattr(loop, "step", step)
    run = bench.run([TokenRequest([10 + n] * 8, 6 if n < 4 else 200) for n in range(8)])
    assert run.was_interrupted
    assert run.num_requests == 4 and run.num_input_tokens == 8 * 8
    assert run.num_output_tokens == sum(int(step.plan.draws.sum()) for step in run.steps) > 4 * 6
    assert run.seconds == pytest.approx(sum(step.seconds for step in run.steps))
    monkeypatch.undo()
    assert not loop.has_work and bench.run(REQUESTS).num_requests == 6, "the engine goes on"


def test_a_warm_up_that_is_interrupted_ends_everything(make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm(kernels="reference")
    bench = OfflineBench(llm)
    monkeypatch.setattr(llm, "generate", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        bench.warm_up(REQUESTS)


def test_who_was_pushed_back_is_not_finished() -> None:
    from pagoda.bench.offline import _num_finished

    plans = [
        plan_of({0: 4, 1: 4}, [start_of(0, (0,), sequence=7), start_of(1, (1,), sequence=8)], stopped=[0]),
        plan_of({1: 1}, stopped=[0]),  # pushed back
        plan_of({0: 4, 1: 1}, [start_of(0, (2,), sequence=7)]),
        plan_of({0: 1}, stopped=[1]),
    ]
    assert _num_finished(plans) == 1


def test_workloads() -> None:
    requests, words = make_requests(ThroughputConfig(num_prompts=3, input_len="5", output_len="uniform:2,4"), 320)
    assert [len(request.prompt_token_ids) for request in requests] == [5, 5, 5]
    assert all(2 <= request.max_tokens <= 4 for request in requests)
    assert all(token < 320 for request in requests for token in request.prompt_token_ids)
    assert words == "random, 3 requests of 5 tokens in and uniform:2,4 out"
    fixed, words = make_requests(ThroughputConfig(workload="seed", num_prompts=2), 128_256)
    assert fixed == seed(2) and words == "seed, 2 requests"
    assert len(make_requests(ThroughputConfig(workload="decode256"), 320)[0]) == 256
    batch = batch_of(2, 7, 3, 320)
    assert {(len(one.prompt_token_ids), one.max_tokens) for one in batch} == {(7, 3)}
    assert batch[0] != batch[1]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"workload": "seed", "input_len": "5"}, "--input-len"),
        ({"workload": "seed", "output_len": "5"}, "--output-len"),
        ({"num_prompts": 0}, "--num-prompts"),
        ({"repeats": 0}, "--repeats"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}: "):
        ThroughputConfig(**settings)  # type: ignore[arg-type]


def test_answers_that_the_context_would_cut_are_refused(make_llm: MakeLLM) -> None:
    llm = make_llm(kernels="reference", max_model_len=64)
    check_lengths([TokenRequest([10] * 32, 32)], llm)
    with pytest.raises(InvalidRequest, match="max_model_len: the longest request has 65 tokens"):
        check_lengths([TokenRequest([10] * 32, 33)], llm)
