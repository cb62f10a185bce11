"""Host time of the scheduler: plan + commit by running rows and by waiting requests, a prefix match, a snapshot.

    python -m benchmarks.host_cost [--steps 400] [--repeats 5]

Run from the root of the repository. The steps are pure decode steps as a server sees them: every row gets one token,
one row in sixteen fills a page, takes a new one and publishes the old one. Nothing is computed and no time is spent on
a model: what is measured is all that stands between two steps of the device.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import RESULTS, machine, print_table, write_json
from pagoda.core.cache import CacheGroup
from pagoda.core.config import SchedulerConfig
from pagoda.core.plan import StepPlan
from pagoda.kv_cache import KVCacheManager, PageTable, extend_chain, root_hash
from pagoda.scheduler import PageNames, Scheduler, StepOutcome, Submit
from pagoda.scheduler.state import take_state

PAGE_SIZE = 16
ROWS = (1, 64, 256, 512)
WAITING = (0, 1_000, 100_000)
MATCH_TOKENS = (16, 64, 256, 1024, 4096)
TREE_NODES = (1_000, 10_000, 100_000)
TARGET_MICROSECONDS = 150.0


class Timing(NamedTuple):
    """Microseconds. `spread` is the range of the medians of the repeats."""

    least: float
    median: float
    p95: float
    spread: tuple[float, float]


def timing(repeats: list[list[int]]) -> Timing:
    every = sorted(value for repeat in repeats for value in repeat)
    medians = [statistics.median(repeat) / 1000 for repeat in repeats]
    p95 = every[int(0.95 * (len(every) - 1))]
    return Timing(every[0] / 1000, statistics.median(every) / 1000, p95 / 1000, (min(medians), max(medians)))


def new_cache(num_pages: int) -> KVCacheManager:
    return KVCacheManager([CacheGroup("full", (0,), 1, 64)], [num_pages], PAGE_SIZE)


def crowded(num_rows: int, num_waiting: int, num_steps: int) -> Scheduler:
    """A scheduler whose rows all decode, at different places in their pages, with others waiting behind them."""
    longest = 256 + num_steps
    config = SchedulerConfig(max_num_seqs=num_rows, max_num_batched_tokens=512 + num_rows)
    scheduler = Scheduler(config, new_cache((num_rows + 1) * (longest // PAGE_SIZE + 2)))
    for index in range(num_rows + num_waiting):
        prompt = 2 * PAGE_SIZE + index % PAGE_SIZE
        names = (f"{index}:0".encode(), f"{index}:1".encode())
        event = Submit(request_id=f"r{index}", num_prompt_tokens=prompt, max_total_tokens=longest, page_names=names)
        scheduler.submit(event)
    while scheduler.board.prefilling or scheduler.board.rows.num_running < num_rows:
        scheduler.commit(StepOutcome(step_id=scheduler.plan(0.0).step_id))
    return scheduler


def outcome_of(scheduler: Scheduler, plan: StepPlan) -> StepOutcome:
    """What the engine would report: one token a row, and the names of pages that filled up."""
    settled = scheduler.board.rows.settled[plan.rows] + 1
    names = tuple(
        PageNames(number, (f"{number}:{tokens // PAGE_SIZE - 1}".encode(),))
        for number, tokens in zip(plan.sequences.tolist(), settled.tolist(), strict=True)
        if tokens % PAGE_SIZE == 0
    )
    return StepOutcome(step_id=plan.step_id, page_names=names)


def decode_steps(scheduler: Scheduler, num_steps: int) -> list[int]:
    """Nanoseconds of plan + commit, step by step."""
    taken = []
    for _ in range(num_steps):
        start = time.perf_counter_ns()
        plan = scheduler.plan(0.0)
        planned = time.perf_counter_ns()
        outcome = outcome_of(scheduler, plan)
        resumed = time.perf_counter_ns()
        scheduler.commit(outcome)
        taken.append(planned - start + time.perf_counter_ns() - resumed)
        assert len(plan.rows) == scheduler.board.rows.num_running
    return taken


def step_cost(num_rows: int, num_waiting: int, num_steps: int, repeats: int) -> Timing:
    scheduler = crowded(num_rows, num_waiting, num_steps * repeats)
    return timing([decode_steps(scheduler, num_steps) for _ in range(repeats)])


def planted(num_nodes: int, path_pages: int) -> tuple[KVCacheManager, list[bytes], PageTable]:
    """A prefix tree of that many nodes, with one path of `path_pages` in it."""
    cache = new_cache(num_nodes + path_pages + 1)
    rng = random.Random(1)
    longest: list[bytes] = []
    tables = []
    while len(cache.tree) < num_nodes:
        pages = path_pages if not longest else min(16, num_nodes - len(cache.tree))
        tokens = [rng.randrange(50_000) for _ in range(pages * PAGE_SIZE)]
        names = extend_chain(root_hash("model"), tokens, PAGE_SIZE)
        table = cache.open_table(cache.match(names, 0), names)
        cache.grow(table, len(tokens))
        cache.publish(table, len(tokens))
        tables.append(table)
        longest = longest or names
    for table in tables[1:]:
        cache.close_table(table)
    return cache, longest, tables[0]


def match_cost(num_tokens: int, num_nodes: int, repeats: int) -> Timing:
    pages = num_tokens // PAGE_SIZE
    cache, names, _ = planted(num_nodes, pages)
    taken: list[list[int]] = []
    for _ in range(repeats):
        taken.append([])
        for _ in range(200):
            start = time.perf_counter_ns()
            match = cache.match(names, pages)
            taken[-1].append(time.perf_counter_ns() - start)
            assert match.num_pages == pages
    return timing(taken)


def snapshot_cost(num_waiting: int, repeats: int) -> Timing:
    """Now and then the decision log opens a new segment with the scheduler's whole state."""
    scheduler = crowded(64, num_waiting, 0)
    taken = []
    for _ in range(3 * repeats):
        start = time.perf_counter_ns()
        take_state(scheduler.board)
        taken.append(time.perf_counter_ns() - start)
    return timing([taken])


def line(*labels: object, cost: Timing) -> list[str]:
    low, high = cost.spread
    numbers = (f"{cost.least:.1f}", f"{cost.median:.1f}", f"{cost.p95:.1f}", f"{low:.1f}..{high:.1f}")
    return [*(f"{label:,}" if isinstance(label, int) else str(label) for label in labels), *numbers]


def plot(steps: dict[tuple[int, int], Timing], matches: dict[tuple[int, int], Timing]) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (by_rows, by_length) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for waiting in WAITING:
        costs = [steps[rows, waiting].median for rows in ROWS]
        by_rows.plot(ROWS, costs, marker="o", label=f"{waiting:,} waiting")
    by_rows.axhline(TARGET_MICROSECONDS, linestyle="--", linewidth=1, color="grey")
    by_rows.set(title="a decode step", xlabel="running rows", ylabel="plan + commit, microseconds", ylim=(0, None))
    by_rows.legend()
    for nodes in TREE_NODES:
        costs = [matches[tokens, nodes].median for tokens in MATCH_TOKENS]
        by_length.plot(MATCH_TOKENS, costs, marker="o", label=f"tree of {nodes:,} pages")
    by_length.set(title="a prefix match", xlabel="matched tokens", ylabel="microseconds", ylim=(0, None))
    by_length.legend()
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "host_cost.png"
    figure.savefig(path, dpi=120)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="host time of plan + commit, and of a prefix match")
    parser.add_argument("--steps", type=int, default=400, help="decode steps in a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    columns = ("min", "median", "p95", "medians of repeats")
    print(f"{machine()}; {arguments.repeats} x {arguments.steps} steps; microseconds")
    steps = {(r, w): step_cost(r, w, arguments.steps, arguments.repeats) for r in ROWS for w in WAITING}
    lines = [line(*key, cost=cost) for key, cost in steps.items()]
    print_table("plan + commit of a decode step", ("rows", "waiting", *columns), lines)
    matches = {(t, n): match_cost(t, n, arguments.repeats) for t in MATCH_TOKENS for n in TREE_NODES}
    lines = [line(*key, cost=cost) for key, cost in matches.items()]
    print_table("prefix match", ("tokens", "pages in tree", *columns), lines)
    snapshots = {waiting: snapshot_cost(waiting, arguments.repeats) for waiting in WAITING}
    lines = [line(waiting, cost=cost) for waiting, cost in snapshots.items()]
    print_table("snapshot that opens a segment of the decision log, 64 rows", ("waiting", *columns), lines)
    best = steps[64, 0].median
    verdict = "met" if best < TARGET_MICROSECONDS else "missed"
    print(f"\n64 rows: {best:.1f} microseconds; target under {TARGET_MICROSECONDS:.0f}: {verdict}")
    record = {
        "steps": [{"rows": r, "waiting": w, **cost._asdict()} for (r, w), cost in steps.items()],
        "snapshots": [{"waiting": w, **cost._asdict()} for w, cost in snapshots.items()],
        "matches": [{"tokens": t, "nodes": n, **cost._asdict()} for (t, n), cost in matches.items()],
    }
    print(f"wrote {write_json('host_cost', record)} and {plot(steps, matches)}")


if __name__ == "__main__":
    main()
