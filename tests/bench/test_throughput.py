from __future__ import annotations

import pytest

from pagoda.bench.device import Device
from pagoda.bench.offline import OfflineBench
from pagoda.bench.throughput import bench_throughput
from pagoda.bench.workloads import TokenRequest
from pagoda.core.errors import InvalidRequest
from tests.bench.conftest import MakeLLM

REQUESTS = [TokenRequest([10 + number] * 20, 6) for number in range(5)]


def test_the_best_of_some_runs(make_llm: MakeLLM, device: Device) -> None:
    found = bench_throughput(make_llm(kernels="reference"), device, "tiny", REQUESTS, "some", repeats=3)
    assert len(found.runs) == 3 and found.output_tokens_per_second == max(found.runs)
    assert (found.num_requests, found.num_input_tokens, found.num_output_tokens) == (5, 100, 30)
    assert found.requests_per_second == pytest.approx(5 / found.seconds)
    assert found.total_tokens_per_second == pytest.approx(130 / found.seconds)
    assert [bound.name for bound in found.roofline] == ["prompts", "decode", "all"]
    assert found.roofline[-1].num_steps == found.steps.num_steps
    assert found.model == "tiny" and not found.was_interrupted


def test_an_interrupt_leaves_the_whole_runs(make_llm: MakeLLM, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = OfflineBench.run, iter(range(10))

    def run(self: OfflineBench, *arguments: object) -> object:
        if next(calls) == 2:  # the first is the warm-up
            monkeypatch.setattr(self._llm, "generate", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(OfflineBench, "run", run)
    found = bench_throughput(make_llm(kernels="reference"), device, "tiny", REQUESTS, "some", repeats=5)
    assert found.was_interrupted and len(found.runs) == 2
    assert found.num_requests == 5, "the figures are those of the run that was whole"


def test_requests_that_do_not_fit_are_refused_before_anything_runs(make_llm: MakeLLM, device: Device) -> None:
    llm = make_llm(kernels="reference", max_model_len=16)
    with pytest.raises(InvalidRequest, match="max_model_len"):
        bench_throughput(llm, device, "tiny", REQUESTS, "some", repeats=1)
    assert llm.engine.loop.counters.num_requests == 0
