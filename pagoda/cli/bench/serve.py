"""`pagoda bench serve`: put load on an OpenAI server and see how it holds."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagoda.bench.config import AskConfig, LoadConfig, WorkloadConfig
from pagoda.cli.bench.files import check_writable, write_json
from pagoda.cli.settings import SettingOptions

if TYPE_CHECKING:
    from pagoda.bench.record import BenchRecord

EXAMPLES = """\
  pagoda bench serve
  pagoda bench serve http://127.0.0.1:8000 --concurrency 32 --input-len 128 --output-len 128
  pagoda bench serve --rate 4 --duration 60 --slo ttft=0.5 itl=0.05 --html report.html
  pagoda bench serve --sweep concurrency=1,2,4,8,16,32 --duration 20 --html sweep.html
  pagoda bench serve --endpoint chat --num-turns 4 --prefix-len 300 --num-prefixes 3
  pagoda bench serve --record-trace morning.jsonl --num-requests 500
  pagoda bench serve --trace morning.jsonl --speed 2
"""
EXIT_NOTHING_ANSWERED = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT
ASK, LOAD, WORK = SettingOptions(AskConfig), SettingOptions(LoadConfig), SettingOptions(WorkloadConfig)
LENGTHS = "lengths are N, uniform:LOW,HIGH, normal:MEAN,DEVIATION or lognormal:MEDIAN,SIGMA"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pagoda bench serve [URL] [options]"
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        default="http://127.0.0.1:8000",
        help="the server (default: http://127.0.0.1:8000)",
    )
    ASK.add_to(parser.add_argument_group("how the server is asked"))
    LOAD.add_to(parser.add_argument_group("load"))
    WORK.add_to(parser.add_argument_group("workload", LENGTHS))
    results = parser.add_argument_group("results")
    slo = "what counts as served well: ttft, tpot, itl (95th percentile of a request) or e2e, in seconds"
    results.add_argument("--slo", metavar="NAME=X", nargs="+", action="extend", default=[], help=slo)
    results.add_argument("--json", metavar="FILE", help="write all figures")
    results.add_argument("--html", metavar="FILE", help="write a report with plots, in one file that needs no other")
    results.add_argument("--record-trace", metavar="FILE", help="write what is sent, to be played with --trace")
    results.add_argument("--quiet", action="store_true", help="show no progress")


def main(args: argparse.Namespace) -> int:
    from pagoda.bench.measures import parse_slo
    from pagoda.bench.serve import bench
    from pagoda.bench.trace import TraceWriter
    from pagoda.cli.bench.plan import make_plan
    from pagoda.cli.bench.progress import BenchProgress
    from pagoda.cli.bench.show import LevelTable, saturation_words, summary

    ask, load, work = AskConfig(**ASK.given(args)), LoadConfig(**LOAD.given(args)), WorkloadConfig(**WORK.given(args))
    plan = make_plan(args.url, ask, load, work, parse_slo(args.slo))
    for option, name in (("--json", args.json), ("--html", args.html)):
        check_writable(option, name)
    table = LevelTable(plan.swept or "")
    with ExitStack() as opened:
        trace = opened.enter_context(TraceWriter(Path(args.record_trace))) if args.record_trace else None
        progress = opened.enter_context(BenchProgress(enabled=not args.quiet))
        told = (lambda level: progress.say(table.line(level))) if plan.swept else None
        record = _run(bench(plan, progress.show, told, trace))
    print(f"\n{saturation_words(record)}" if plan.swept else summary(record.levels[0]))
    _write(record, args.json, args.html)
    if any(level.measures.was_interrupted for level in record.levels):
        return EXIT_INTERRUPTED
    return 0 if any(level.measures.num_ok for level in record.levels) else EXIT_NOTHING_ANSWERED


def _run(work: Coroutine[Any, Any, BenchRecord]) -> BenchRecord:
    """On uvloop where it is installed: it halves what the client costs."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def _write(record: BenchRecord, json_name: str | None, html_name: str | None) -> None:
    write_json(record, json_name)
    if html_name is not None:
        from pagoda.bench.report import render_report

        Path(html_name).write_text(render_report(record), "utf-8")
        print(f"wrote {html_name}", file=sys.stderr)
