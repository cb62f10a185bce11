"""Where the time of a step goes, kernel by kernel."""

from __future__ import annotations

from collections import defaultdict

import torch

from benchmarks.report import print_table
from pagoda import LLM, SamplingParams
from pagoda.bench.workloads import FIXED

NUM_STEPS = 8
SHOWN = 14


def profiled(llm: LLM, work: str, num_before: int) -> None:
    """Run into the middle of a workload, then look at some of its steps."""
    llm.reset_prefix_cache()
    loop = llm.engine.loop
    requests = [
        llm._reader.request(
            one.prompt_token_ids,
            SamplingParams(temperature=0, max_tokens=one.max_tokens, ignore_eos=True, detokenize=False),
        )
        for one in FIXED[work]()
    ]
    for request in requests:
        llm._open(request, None)
    for _ in range(num_before):
        llm._turn()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(NUM_STEPS):
            llm._turn()
        torch.cuda.synchronize()
    totals: dict[str, list[float]] = defaultdict(list)
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    for event in events:
        totals[event.name].append(event.device_time)
    lines = [
        [f"{sum(times) / NUM_STEPS:,.1f}", f"{len(times) / NUM_STEPS:.1f}", f"{sum(times) / len(times):.1f}", name[:90]]
        for name, times in sorted(totals.items(), key=lambda item: -sum(item[1]))[:SHOWN]
    ]
    total = sum(sum(times) for times in totals.values()) / NUM_STEPS
    first = min(event.time_range.start for event in events)
    last = max(event.time_range.end for event in events)
    print_table(
        f"{work}: kernels {total:,.0f} us a step of {(last - first) / NUM_STEPS:,.0f}",
        ["us a step", "launches", "us each", "kernel"],
        lines,
    )
    for request in requests:
        llm._outputs.forget(request.request_id)
    llm._abandon(requests)
    while loop.has_work:
        llm._turn()
