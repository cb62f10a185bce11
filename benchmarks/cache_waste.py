"""How much of the paged cache holds live tokens, and how many requests fit, against contiguous reservation.

    python -m benchmarks.cache_waste [--requests 600]

Run from the root of the repository. Prompts have N(500, 100) tokens, answers N(200, 50), pages 16; the scheduler knows
only the limit of 4,096 tokens a request, which is what contiguous reservation must set aside for each. All requests are
there from the start, and a stand-in for the model answers every step at once.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from benchmarks.report import RESULTS, machine, print_table, write_json
from pagoda.core.cache import CacheGroup
from pagoda.core.config import SchedulerConfig
from pagoda.core.plan import StepPlan
from pagoda.kv_cache import KVCacheManager
from pagoda.scheduler import Finished, PageNames, Scheduler, StepOutcome, Submit
from pagoda.scheduler.decisions import Reason

PAGE_SIZE = 16
RESERVED_TOKENS = 4096
POOLS = (1024, 2048, 4096, 8192, 16384)  # pages: room for 4 to 64 requests of 4,096 tokens
MAX_ROWS = 1024
LEAST_LIVE = 0.96
LEAST_RATIO = 6.0


@dataclass
class Run:
    num_pages: int
    caching: bool
    live: list[float] = field(default_factory=list)
    peak_running: int = 0
    num_computed: int = 0
    num_recomputed: int = 0
    num_preemptions: int = 0
    num_steps: int = 0

    @property
    def num_reserved(self) -> int:
        return self.num_pages * PAGE_SIZE // RESERVED_TOKENS

    @property
    def ratio(self) -> float:
        return self.peak_running / self.num_reserved


class Workload:
    """The requests, by number: how long each prompt is and after how many tokens in all it ends."""

    def __init__(self, num_requests: int, seed: int) -> None:
        rng = random.Random(seed)
        self.prompts = [max(1, round(rng.gauss(500, 100))) for _ in range(num_requests)]
        self.ends = [prompt + max(1, round(rng.gauss(200, 50))) for prompt in self.prompts]

    def submit_all(self, scheduler: Scheduler) -> None:
        for number, prompt in enumerate(self.prompts):
            names = tuple(page_name(number, page) for page in range(prompt // PAGE_SIZE))
            event = Submit(
                request_id=f"r{number}",
                num_prompt_tokens=prompt,
                max_total_tokens=RESERVED_TOKENS,
                page_names=names,
            )
            scheduler.submit(event)

    def outcome(self, plan: StepPlan, lengths: list[int]) -> StepOutcome:
        """One token for each row that draws. Sequences are numbered like the requests, as each has one."""
        finished, names = [], []
        for number, draws in zip(plan.sequences.tolist(), plan.draws.tolist(), strict=True):
            if not draws:
                continue
            lengths[number] += 1
            if lengths[number] % PAGE_SIZE == 0:
                names.append(PageNames(number, (page_name(number, lengths[number] // PAGE_SIZE - 1),)))
            if lengths[number] == self.ends[number]:
                finished.append(Finished(number, "stop"))
        return StepOutcome(step_id=plan.step_id, finished=tuple(finished), page_names=tuple(names))


def page_name(number: int, page: int) -> bytes:
    return f"{number}:{page}".encode()


def measure(workload: Workload, num_pages: int, caching: bool) -> Run:
    run = Run(num_pages, caching)
    cache = KVCacheManager([CacheGroup("full", (0,), 1, 64)], [num_pages], PAGE_SIZE, caching)
    config = SchedulerConfig(max_num_seqs=MAX_ROWS, max_num_batched_tokens=MAX_ROWS + 1024)
    scheduler = Scheduler(config, cache)
    workload.submit_all(scheduler)
    lengths = list(workload.prompts)
    while scheduler.has_work:
        plan = scheduler.plan(0.0)
        run.peak_running = max(run.peak_running, scheduler.board.rows.num_running)
        run.num_computed += int(plan.num_tokens.sum())
        scheduler.commit(workload.outcome(plan, lengths))
        run.num_steps += 1
        if cache.pools[0].num_used:
            rows = [sequence.row for sequence in scheduler.board.running]
            run.live.append(int(scheduler.board.rows.settled[rows].sum()) / (cache.pools[0].num_used * PAGE_SIZE))
    cache.check_integrity()
    assert lengths == workload.ends
    run.num_preemptions = scheduler.board.num_preemptions
    resumed = [d.values[1] for d in scheduler.log.decisions() if d.reason is Reason.RESUMED]
    run.num_recomputed = sum(resumed)
    return run


def line(run: Run) -> list[str]:
    return [
        f"{run.num_pages:,}",
        "on" if run.caching else "off",
        f"{run.num_reserved}",
        f"{run.peak_running}",
        f"{run.ratio:.1f}x",
        f"{100 * fmean(run.live):.2f} %",
        f"{100 * min(run.live):.2f} %",
        f"{run.num_preemptions}",
        f"{run.num_recomputed:,}",
        f"{100 * run.num_recomputed / run.num_computed:.2f} %",
        f"{run.num_steps:,}",
    ]


def plot(runs: list[Run]) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (by_pool, by_step) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    cached = [run for run in runs if run.caching]
    pools = [run.num_pages for run in cached]
    by_pool.plot(pools, [run.peak_running for run in cached], marker="o", label="paged, peak")
    by_pool.plot(pools, [run.num_reserved for run in cached], marker="o", label="4,096 tokens reserved each")
    by_pool.set(title="requests at once", xlabel="pages of 16 tokens", xscale="log", yscale="log")
    by_pool.legend()
    for run in cached:
        by_step.plot([100 * share for share in run.live], linewidth=0.8, label=f"{run.num_pages:,} pages")
    by_step.axhline(100 * LEAST_LIVE, linestyle="--", linewidth=1, color="grey")
    by_step.set(title="live tokens in the pages in use", xlabel="step", ylabel="per cent", ylim=(90, 100))
    by_step.legend()
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "cache_waste.png"
    figure.savefig(path, dpi=120)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="live tokens in the pages in use, and concurrency")
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    workload = Workload(arguments.requests, arguments.seed)
    print(f"{machine()}; {arguments.requests} requests, seed {arguments.seed}")
    runs = [measure(workload, pages, caching) for pages in POOLS for caching in (True, False)]
    header = ["pages", "prefix cache", "reserved", "peak", "ratio", "live, mean", "live, least"]
    header += ["preempted", "recomputed tokens", "of all computed", "steps"]
    print_table("prompt ~ N(500, 100), answer ~ N(200, 50), pages of 16", header, [line(run) for run in runs])
    live, ratio = min(fmean(run.live) for run in runs), min(run.ratio for run in runs)
    print(f"\nleast mean share of live tokens {live:.2%} (target {LEAST_LIVE:.0%}): {told(live, LEAST_LIVE)}")
    print(f"least concurrency ratio {ratio:.1f}x (target {LEAST_RATIO:.0f}x): {told(ratio, LEAST_RATIO)}")
    records = [
        {
            "num_pages": run.num_pages,
            "caching": run.caching,
            "reserved": run.num_reserved,
            "peak": run.peak_running,
            "mean_live": fmean(run.live),
            "least_live": min(run.live),
            "preemptions": run.num_preemptions,
            "recomputed": run.num_recomputed,
            "computed": run.num_computed,
        }
        for run in runs
    ]
    print(f"wrote {write_json('cache_waste', {'runs': records})} and {plot(runs)}")


def told(value: float, target: float) -> str:
    return "met" if value >= target else "missed"


if __name__ == "__main__":
    main()
