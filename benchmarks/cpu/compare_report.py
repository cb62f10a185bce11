"""What a comparison found, as tables, a plot and a file."""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import asdict
from pathlib import Path

from benchmarks.cpu import summary
from benchmarks.cpu.engine import Engine
from benchmarks.report import RESULTS, machine, print_table, write_json

OURS = "pagoda"
# Instruction sets that decide what the kernels of every engine can do.
FLAGS = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd")


def cpu_flags() -> list[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return [flag for flag in FLAGS if flag in line.split()]
    return []


def medians(engines: list[Engine], task: str) -> dict[str, float]:
    return {e.name: statistics.median(s.speed for s in e.samples[task]) for e in engines if e.samples.get(task)}


def report(engines: list[Engine], missing: dict[str, str], args: argparse.Namespace) -> None:
    print(f"\n{machine()}; {' '.join(cpu_flags())}; {args.threads} threads; load now {os.getloadavg()[0]:.1f}")
    for task in args.tasks:
        print_task(engines, task)
    print_memory(engines)
    if "smollm2" in args.model.lower():  # the goals are about this model
        print_goals(engines, args.tasks)
    failures = {**missing, **{engine.name: engine.failure for engine in engines if engine.failure}}
    for name, reason in failures.items():
        print(f"not available: {name}: {reason}")
    record = {
        "model": args.model,
        "threads": args.threads,
        "flags": cpu_flags(),
        "engines": {
            e.name: {"peak_mebibytes": e.peaks, "samples": {t: [asdict(s) for s in x] for t, x in e.samples.items()}}
            for e in engines
        },
        "not_available": failures,
    }
    print(f"\nwritten to {write_json(args.name, record)} and {plot(engines, args)}")


def print_task(engines: list[Engine], task: str) -> None:
    speeds = medians(engines, task)
    if OURS not in speeds:
        return
    ratios = summary.ratios(speeds, OURS)
    rows = []
    for engine in engines:
        samples = engine.samples.get(task)
        if not samples:
            continue
        spread = summary.spread([sample.speed for sample in samples])
        stalls = [sample.longest_stall for sample in samples if sample.longest_stall is not None]
        others = statistics.median(sample.busyness.others for sample in samples)
        stolen = statistics.median(sample.busyness.stolen for sample in samples)
        rows.append(
            (
                engine.name,
                f"{spread.median:.1f}",
                str(spread),
                len(samples),
                f"{ratios[engine.name]:.2f}x" if engine.name in ratios else "",
                f"{statistics.median(stalls):.2f}" if stalls else "",
                f"{others:.0%}",
                f"{stolen:.0%}",
            )
        )
    header = ("engine", "tokens/s", "spread", "runs", "pagoda / it", "stall s", "others' CPU", "stolen")
    print_table(f"{task} (medians)", header, rows)


def print_memory(engines: list[Engine]) -> None:
    measured = [engine for engine in engines if engine.peaks]
    if not measured:
        return
    rows = [(e.name, *(f"{e.peaks[n]:.0f}" if n in e.peaks else "" for n in (1, 32))) for e in measured]
    print_table("Peak memory of a process, MiB", ("engine", "one stream", "32 streams"), rows)


def print_goals(engines: list[Engine], tasks: list[str]) -> None:
    rows = []
    for ours in [engine.name for engine in engines if engine.name.startswith(OURS)]:
        for goal in summary.GOALS:
            verdict = summary.judge(goal, medians(engines, goal.task), ours) if goal.task in tasks else None
            if verdict is not None:
                rows.append((ours, str(goal), verdict.rival, f"{verdict.ratio:.2f}x", str(verdict)))
    for engine in engines:
        if engine.name.startswith(OURS) and 1 in engine.peaks:
            peak, limit = engine.peaks[1], summary.MOST_MEBIBYTES_ONE_STREAM
            met = "met" if peak <= limit else f"missed by {peak / limit - 1:.0%}"
            rows.append((engine.name, f"memory, one stream: {limit:.0f} MiB", "", f"{peak:.0f}", met))
    if rows:
        print_table("Goals (of SmolLM2 Q4_1 on two cores)", ("engine", "goal", "best rival", "got", ""), rows)


def plot(engines: list[Engine], args: argparse.Namespace) -> Path:
    """Tokens a second, one panel a task: medians as bars, least and most as whiskers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(args.tasks), figsize=(4.2 * len(args.tasks), 5.2), squeeze=False)
    for axis, task in zip(axes[0], args.tasks, strict=True):
        shown = [engine for engine in engines if engine.samples.get(task)]
        spreads = [summary.spread([sample.speed for sample in engine.samples[task]]) for engine in shown]
        colors = ["tab:red" if engine.name.startswith(OURS) else "tab:gray" for engine in shown]
        errors = [[s.median - s.least for s in spreads], [s.most - s.median for s in spreads]]
        places = range(len(shown))
        axis.barh(places, [s.median for s in spreads], color=colors, xerr=errors, capsize=2)
        for place, value in zip(places, spreads, strict=True):
            axis.annotate(f" {value.median:.0f}", (0, place), va="center", ha="left", color="white", fontsize=8)
        axis.set_yticks(places, [engine.name for engine in shown], fontsize=8)
        axis.invert_yaxis()
        axis.set_title(task)
        axis.set_xlabel("tokens a second")
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{args.model}, {args.threads} threads\n{machine()}", fontsize=9)
    figure.tight_layout()
    path = RESULTS / f"{args.name}.png"
    figure.savefig(path, dpi=120)
    return path
