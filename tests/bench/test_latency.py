from __future__ import annotations

import pytest

from pagoda.bench.config import LatencyConfig
from pagoda.bench.device import Device
from pagoda.bench.latency import bench_latency, first_token, next_token
from pagoda.core.errors import InvalidRequest
from pagoda.engine.output import CompletionOutput, RequestMetrics, RequestOutput
from tests.bench.conftest import MakeLLM


def test_times_of_an_answer() -> None:
    metrics = RequestMetrics(arrival_time=10.0, first_token_time=10.5, last_token_time=11.5)
    output = RequestOutput("0", None, [1], [CompletionOutput(0, token_ids=[1, 2, 3, 4, 5])], metrics)
    assert first_token(output) == 0.5 and next_token(output) == 0.25


def test_a_batch_again_and_again(make_llm: MakeLLM, device: Device) -> None:
    llm = make_llm(kernels="reference")
    shown: list[int] = []
    config = LatencyConfig(batch_size=2, input_len=12, output_len=5, repeats=3, warmup=2)
    found = bench_latency(llm, device, "tiny", config, shown.append)
    assert shown == [1, 2, 3, 4, 5] and found.num_runs == 3
    assert llm.engine.loop.counters.num_requests == 2 * 5
    assert found.first_token is not None and found.next_token is not None and found.whole_batch is not None
    assert 0 < found.first_token.mean < found.whole_batch.mean and found.first_token.p50 <= found.first_token.p99
    decode = next(bound for bound in found.roofline if bound.name == "decode")
    assert decode.num_steps == 3 * 4 and decode.num_tokens == 3 * 4 * 2
    assert found.steps is not None and found.steps.num_steps == found.roofline[-1].num_steps
    assert 0 < found.steps.host_seconds < found.steps.step_seconds


def test_a_single_token_has_no_next(make_llm: MakeLLM, device: Device) -> None:
    config = LatencyConfig(input_len=12, output_len=1, repeats=1, warmup=0)
    found = bench_latency(make_llm(kernels="reference"), device, "tiny", config)
    assert found.next_token is None and [bound.name for bound in found.roofline] == ["prompts", "all"]


def test_an_interrupt_leaves_the_whole_runs(make_llm: MakeLLM, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm(kernels="reference")

    def show(num_done: int) -> None:
        if num_done == 2:
            monkeypatch.setattr(llm, "generate", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))

    config = LatencyConfig(input_len=4, output_len=2, repeats=5, warmup=1)
    found = bench_latency(llm, device, "tiny", config, show)
    assert found.was_interrupted and found.num_runs == 1 and found.first_token is not None


def test_an_interrupt_at_once_leaves_nothing(
    make_llm: MakeLLM, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make_llm(kernels="reference")
    monkeypatch.setattr(llm, "generate", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    found = bench_latency(llm, device, "tiny", LatencyConfig(input_len=4, output_len=2))
    assert found.was_interrupted and found.first_token is None and found.roofline == []


@pytest.mark.parametrize("field", ["batch_size", "input_len", "output_len", "repeats"])
def test_nonsense_is_refused(field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^--{field.replace('_', '-')}: must be at least 1, not 0"):
        LatencyConfig(**{field: 0})
    with pytest.raises(InvalidRequest, match="--warmup"):
        LatencyConfig(warmup=-1)
