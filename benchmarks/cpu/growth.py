"""How cost grows: decoding at 1 to 64 streams and at contexts of 128 to 8,192 tokens, against the roofline.

make bench-cpu-growth
.venv/bin/python -m benchmarks.cpu.growth --model smollm2 --repeats 3
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.cpu.roofline import roofline
from benchmarks.report import RESULTS, machine, print_table, write_json
from pagoda import LLM, SamplingParams
from pagoda.bench.demand import Demand
from pagoda.engine.messages import NewTokens
from pagoda.kernels.cpu.peaks import measure_peaks
from pagoda.kernels.peaks import Peaks

STREAMS = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192)
SHORT = 128  # the context at which streams are counted


@dataclass(frozen=True)
class Point:
    num_streams: int
    context: int
    speeds: list[float]
    f32_limit: float
    int8_limit: float

    @property
    def speed(self) -> float:
        return statistics.median(self.speeds)


class StepClock:
    """Notes when each step of the engine ended and how many streams it gave a token."""

    def __init__(self, step: Callable[..., list[Any]]) -> None:
        self._step = step
        self.ends: list[tuple[float, int]] = []

    def __call__(self, *meanwhile: Any) -> list[Any]:
        updates = self._step(*meanwhile)
        self.ends.append((time.monotonic(), sum(isinstance(update, NewTokens) for update in updates)))
        return updates


def full_speed(ends: list[tuple[float, int]], num_streams: int) -> float:
    """Tokens a second over the steps in which every stream got one, and had got one in the step before."""
    taken = [b - a for (a, before), (b, now) in pairwise(ends) if before == now == num_streams]
    return num_streams * len(taken) / sum(taken)


def decode_speed(llm: LLM, clock: StepClock, num_streams: int, context: int) -> float:
    """While all streams decode, around the given context."""
    rng = random.Random(context)
    # Long enough that the first stream still runs when the last one has read its prompt.
    num_output = min(context // 2, 24 + 2 * num_streams)
    prompts = [[rng.randrange(10, 20_000) for _ in range(context - num_output)] for _ in range(num_streams)]
    params = SamplingParams(temperature=0.0, max_tokens=num_output, ignore_eos=True, detokenize=False)
    clock.ends.clear()
    llm.generate(prompts, params, use_tqdm=False)
    return full_speed(clock.ends, num_streams)


def measure(llm: LLM, clock: StepClock, peaks: Peaks, cases: list[tuple[int, int]], repeats: int) -> list[Point]:
    demand, groups = Demand.of(llm.engine), llm.engine.model.cache_groups()
    speeds: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
    for repeat in range(repeats):
        for num_streams, context in cases:
            print(f"\r{repeat + 1}/{repeats}: {num_streams} stream(s), context {context}".ljust(60), end="", flush=True)
            speeds[num_streams, context].append(decode_speed(llm, clock, num_streams, context))
    print()
    return [
        Point(n, c, values, roofline(demand, groups, peaks, n, c), roofline(demand, groups, peaks, n, c, "int8"))
        for (n, c), values in speeds.items()
    ]


def plot(by_streams: list[Point], by_context: list[Point], title: str) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.8))
    for axis, points, name in ((axes[0], by_streams, "num_streams"), (axes[1], by_context, "context")):
        where = [getattr(point, name) for point in points]
        axis.plot(where, [p.f32_limit for p in points], "--", color="tab:blue", label="limit in f32")
        axis.plot(where, [p.int8_limit for p in points], ":", color="tab:green", label="limit in int8")
        axis.plot(where, [p.speed for p in points], "o-", color="tab:red", label="pagoda, median")
        least, most = [min(p.speeds) for p in points], [max(p.speeds) for p in points]
        axis.fill_between(where, least, most, color="tab:red", alpha=0.2, linewidth=0)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.set_xticks(where, [f"{x:,}" for x in where])
        axis.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.set_ylabel("tokens a second, all streams")
        axis.grid(True, which="major", alpha=0.3)
    axes[0].set_xlabel(f"streams (context {SHORT})")
    axes[1].set_xlabel("context, one stream")
    axes[0].legend()
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    path = RESULTS / "cpu_growth.png"
    figure.savefig(path, dpi=120)
    return path


def report(points: list[Point], title: str) -> None:
    rows = [
        (
            p.num_streams,
            p.context,
            f"{p.speed:.1f}",
            f"{min(p.speeds):.0f}-{max(p.speeds):.0f}",
            f"{p.f32_limit:.0f}",
            f"{p.speed / p.f32_limit:.0%}",
            f"{p.int8_limit:.0f}",
        )
        for p in points
    ]
    header = ("streams", "context", "tokens/s", "spread", "limit, f32", "reached", "limit, int8")
    print_table(title, header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most-streams", type=int, default=STREAMS[-1])
    parser.add_argument("--longest", type=int, default=CONTEXTS[-1])
    args = parser.parse_args()
    peaks = measure_peaks(args.threads)
    settings: dict[str, Any] = {"num_threads": args.threads, "enable_prefix_caching": False}
    llm = LLM(args.model, device="cpu", max_num_seqs=args.most_streams, max_model_len=args.longest, **settings)
    clock = llm.engine.loop.step = StepClock(llm.engine.loop.step)  # type: ignore[method-assign]
    streams = [(n, SHORT) for n in STREAMS if n <= args.most_streams]
    contexts = [(1, c) for c in CONTEXTS if c <= args.longest]
    by_streams = measure(llm, clock, peaks, streams, args.repeats)
    by_context = measure(llm, clock, peaks, contexts, args.repeats)
    rates = peaks.operations_per_second
    print(
        f"\n{machine()}; reads {peaks.bytes_per_second / 1e9:.1f} GB/s, {rates['f32'] / 1e9:.0f} GFLOP/s, "
        f"int8 {rates['int8'] / 1e9:.0f} GOP/s on {args.threads} threads; load {os.getloadavg()[0]:.1f}"
    )
    report(by_streams, "Decoding by streams")
    report(by_context, "Decoding by context")
    picture = plot(by_streams, by_context, f"{args.model}, {args.threads} threads, {machine()}")
    points = [{**asdict(point), "speed": point.speed} for point in by_streams + by_context]
    record = {"model": args.model, "peaks": msgspec.to_builtins(peaks), "points": points}
    print(f"\nwritten to {write_json('cpu_growth', record)} and {picture}")


if __name__ == "__main__":
    main()
