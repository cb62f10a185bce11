from __future__ import annotations

import pytest

from pagoda.bench.config import LatencyConfig
from pagoda.bench.device import Device
from pagoda.bench.latency import LatencyRecord
from pagoda.bench.roofline import Bound
from pagoda.bench.steps import StepCosts
from pagoda.bench.throughput import ThroughputRecord
from pagoda.cli.bench.show_offline import latency_summary, roofline_table, step_words, throughput_summary
from pagoda.core.config import EngineConfig
from pagoda.kernels.peaks import Peaks

DEVICE = Device("a card", Peaks(4.1e12, {"bf16": 719e12, "f32": 50e12}))
BOUND = Bound(
    name="decode",
    num_steps=2,
    num_tokens=512,
    seconds=0.02,
    num_bytes=58_000_000_000,
    operations={"bf16": 8_000_000_000_000},
    reading_seconds=0.0141,
    computing_seconds=0.0111,
    least_seconds=0.0141,
    limit="memory",
    share=0.705,
)


def test_a_row_has_the_means_of_its_steps() -> None:
    ceilings, head, row = roofline_table([BOUND], DEVICE.peaks).splitlines()
    assert ceilings == "ceilings measured here: 4100.0 GB/s read, 719 TFLOP/s in bf16", "what was not used is not told"
    assert len(head.split("  ")) > 8
    assert row.split() == ["decode", "2", "256.0", "29.0", "GB", "4", "TFLOP", "10.00", "7.05", "memory", "70.5%"]


def test_a_device_that_waits() -> None:
    assert step_words(StepCosts(4, 0.0101, 0.00035, 0.021)) == (
        "10.10 ms, 350 us of it the host's; the device waits 2.1% of the time"
    )


@pytest.mark.parametrize("num_steps", [0, 2])
def test_an_interrupt_is_told(num_steps: int) -> None:
    throughput = ThroughputRecord(
        model="m",
        date="",
        workload="w",
        settings=EngineConfig(model="m"),
        device=DEVICE,
        runs=[1.0],
        seconds=1.0,
        num_requests=0,
        num_input_tokens=0,
        num_output_tokens=1,
        requests_per_second=0.0,
        output_tokens_per_second=1.0,
        total_tokens_per_second=1.0,
        steps=StepCosts(num_steps, 0.0, 0.0, None),
        roofline=[BOUND] if num_steps else [],
        was_interrupted=True,
    )
    assert throughput_summary(throughput).splitlines()[-1].startswith("interrupted" if num_steps else "nothing")


def test_a_latency_without_a_whole_run() -> None:
    nothing = LatencyRecord(
        model="m",
        date="",
        settings=EngineConfig(model="m"),
        device=DEVICE,
        batch=LatencyConfig(),
        num_runs=0,
        first_token=None,
        next_token=None,
        whole_batch=None,
        steps=None,
        roofline=[],
        was_interrupted=True,
    )
    assert latency_summary(nothing).endswith("nothing was computed before it was interrupted")
