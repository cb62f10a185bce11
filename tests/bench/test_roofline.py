"""The roofline on numbers that can be worked out in the head, and on a real run."""

from __future__ import annotations

import pytest

from pagoda.bench.demand import Work
from pagoda.bench.device import Device
from pagoda.bench.offline import OfflineBench
from pagoda.bench.roofline import StepWork, bounds, work_of
from pagoda.bench.shapes import StepShape
from pagoda.bench.workloads import TokenRequest
from pagoda.kernels.peaks import Peaks
from tests.bench.conftest import MakeLLM
from tests.bench.test_demand import BODY, HEAD, LATE_NORMS, NORMS

PEAKS = Peaks(1e6, {"f32": 16e6, "int8": 64e6})


def step(num_bytes: int, seconds: float, is_decode: bool = True, **operations: int) -> StepWork:
    return StepWork(StepShape(4, 4, (0,), (0,), is_decode), Work(num_bytes, dict(operations)), seconds)  # type: ignore[arg-type]


def test_the_longer_of_reading_and_computing_counts_in_every_step() -> None:
    """2 ms of reading beside 1 ms of computing, then 1 ms beside 1 + 2 ms: 5 ms at the least, of 10."""
    steps = [step(2000, 0.004, f32=16_000), step(1000, 0.006, f32=16_000, int8=128_000)]
    [decode, everything] = bounds(steps, PEAKS)
    assert (decode.name, everything.name) == ("decode", "all")
    assert decode.reading_seconds == pytest.approx(0.003) and decode.computing_seconds == pytest.approx(0.004)
    assert decode.least_seconds == pytest.approx(0.005) and decode.share == pytest.approx(0.5)
    assert decode.limit == "arithmetic"
    assert (decode.num_steps, decode.num_tokens, decode.num_bytes) == (2, 8, 3000)
    assert decode.operations == {"f32": 32_000, "int8": 128_000}


def test_phases_are_told_apart() -> None:
    found = bounds([step(1000, 0.002), step(3000, 0.004, is_decode=False)], PEAKS)
    assert [bound.name for bound in found] == ["prompts", "decode", "all"]
    assert [bound.share for bound in found] == pytest.approx([0.75, 0.5, 4 / 6])
    assert found[0].limit == "memory"
    assert bounds([], PEAKS) == []


@pytest.mark.parametrize("num_prompt", [1, 5, 32, 75])
def test_a_run_counted_token_by_token(make_llm: MakeLLM, num_prompt: int) -> None:
    """One request: however its prompt is cut, each token passes through the layers once and sees those before it."""
    llm = make_llm(kernels="reference", max_num_batched_tokens=32)
    num_answer = 9
    run = OfflineBench(llm).run([TokenRequest(list(range(10, 10 + num_prompt)), num_answer)])
    steps = work_of(llm.engine, run.steps)
    num_computed = num_prompt + num_answer - 1
    num_pairs = sum(position + 1 for position in range(num_computed))
    in_all = sum(step.work.num_operations for step in steps)
    assert in_all == 2 * num_computed * BODY + 2 * num_answer * HEAD + num_pairs * 2 * 4 * 64
    num_chunks = -(-num_prompt // 32)
    assert len(steps) == num_chunks + num_answer - 1
    contexts = [min(num_prompt, 32 * (n + 1)) for n in range(num_chunks)]
    contexts += range(num_prompt + 1, num_computed + 1)
    weights = 4 * ((BODY + NORMS) * len(steps) + (HEAD + LATE_NORMS) * num_answer)
    assert sum(step.work.num_bytes for step in steps) == weights + 512 * sum(contexts)


def test_the_phases_of_a_run_share_out_its_time(make_llm: MakeLLM, device: Device) -> None:
    llm = make_llm(kernels="reference")
    requests = [TokenRequest([10 + number] * 40, 5) for number in range(6)]
    run = OfflineBench(llm).run(requests)
    prompts, decode, everything = bounds(work_of(llm.engine, run.steps), device.peaks)
    assert prompts.num_steps + decode.num_steps == everything.num_steps == run.costs.num_steps
    assert prompts.seconds + decode.seconds == pytest.approx(everything.seconds)
    assert everything.seconds <= run.seconds
    assert everything.num_tokens == 6 * (40 + 5 - 1)
