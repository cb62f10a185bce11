"""All that is claimed of a GPU in one go: correctness side by side, then what is timed, each with the card to itself.

python -m benchmarks.gpu.everything [--parts table memory ...] [--model SmolLM2.gguf] [--log FILE] [--seconds 570]

Every part is a process. What is shown of it is the end of its output; `--log` keeps all of it, and the last table says
what held. With `--seconds` a part begins only if there is time for what it usually takes; those left out are named.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report import print_table

LOOK_SECONDS = 0.2
EXIT_INTERRUPTED = 130
WORKERS = "14"


@dataclass(frozen=True)
class Part:
    name: str
    command: tuple[str, ...]
    usual_seconds: float
    is_timed: bool = False
    num_lines: int = 4
    """Of the end of its output, shown."""
    obstacle: str = ""
    """Why it cannot be run here."""


@dataclass
class Outcome:
    part: Part
    said: str
    """What came of it, in a word or two."""
    seconds: float = 0.0
    lines: list[str] = field(default_factory=list)
    """All of its output."""

    @property
    def is_good(self) -> bool:
        return self.said == "held"


def all_parts(model: Path | None) -> list[Part]:
    def ours(module: str, *options: str) -> tuple[str, ...]:
        return (sys.executable, "-m", f"benchmarks.gpu.{module}", *options)

    tests = ("-q", "-p", "no:cacheprovider", "tests/kernels/cuda", "tests/executor/cuda")
    has_workers = importlib.util.find_spec("xdist") is not None
    checker = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    checked = (checker, "--tool", "memcheck", "--error-exitcode", "9")
    no_checker = "" if Path(checker).exists() else "there is no compute-sanitizer"
    narrow = ("--kv", "fp8", "--rows", "8b-decode256,8b-prefix,fp8-decode256,fp8-seed,fp8-prefix", "--repeats", "2")
    costs = ("--deterministic", "--rows", "8b-decode256,8b-seed", "--repeats", "1", "--seqs", "1024")
    return [
        Part("tests", (sys.executable, "-m", "pytest", *tests, *(("-n", WORKERS) if has_workers else ())), 300),
        Part("independence", ours("independence"), 120, num_lines=20),
        Part("oversubscribed", ours("oversubscribed"), 60),
        Part("memcheck", (*checked, *ours("sanitized")), 150, obstacle=no_checker),
        Part(
            "memcheck-apart", (*checked, "--padding", "8192", *ours("sanitized", "--apart")), 200, obstacle=no_checker
        ),
        Part(
            "precision",
            ours("precision", str(model)),
            120,
            num_lines=8,
            obstacle="" if model is not None else "no --model was given",
        ),
        Part("table", ours("run", "--repeats", "3", "--seqs", "1024"), 330, is_timed=True, num_lines=16),
        Part("kv-fp8", ours("run", *narrow, "--seqs", "1024"), 100, is_timed=True, num_lines=8),
        Part("deterministic", ours("run", *costs), 110, is_timed=True, num_lines=5),
        Part("memory", ours("memory"), 70, is_timed=True, num_lines=34),
        Part("start", ours("start"), 60, is_timed=True, num_lines=6),
        Part("wishes", ours("wishes"), 120, is_timed=True, num_lines=17),
        Part("attention", ours("attention_peers"), 120, is_timed=True, num_lines=20),
    ]


class Running:
    """A part under way."""

    def __init__(self, part: Part, logs: Path) -> None:
        self.part = part
        self._start = time.monotonic()
        self._log = logs / f"{part.name}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def outcome(self, said: str = "") -> Outcome:
        code = self._process.wait()
        lines = self._log.read_text(errors="replace").rstrip().splitlines()
        seconds = time.monotonic() - self._start
        return Outcome(self.part, said or ("held" if code == 0 else f"failed, exit {code}"), seconds, lines)


@contextmanager
def ended_with_us(running: list[Running]) -> Iterator[None]:
    """Nothing that was begun outlives us, whatever happens."""
    try:
        yield
    finally:
        for one in running:
            if not one.is_over:
                one.kill()


def run_together(parts: Iterable[Part], logs: Path, deadline: float) -> Iterator[Outcome]:
    """Each as it ends; what is not over by the deadline is cut off."""
    running = []
    with ended_with_us(running):
        for part in parts:
            if part.obstacle:
                yield Outcome(part, f"left out: {part.obstacle}")
            elif time.monotonic() + part.usual_seconds > deadline:
                yield Outcome(part, "left out: no time")
            else:
                running.append(Running(part, logs))
        while running:
            is_late = time.monotonic() > deadline
            for one in [one for one in running if one.is_over or is_late]:
                running.remove(one)
                said = ""
                if not one.is_over:
                    one.kill()
                    said = "cut off"
                yield one.outcome(said)
            time.sleep(LOOK_SECONDS if running else 0)


def run(parts: list[Part], logs: Path, deadline: float) -> Iterator[Outcome]:
    yield from run_together([part for part in parts if not part.is_timed], logs, deadline)
    for part in parts:
        if part.is_timed:
            yield from run_together([part], logs, deadline)


def show(outcome: Outcome, log: Path | None) -> None:
    head = f"\n=== {outcome.part.name}: {outcome.said}, {outcome.seconds:.0f} s"
    print("\n".join([head, *(line[:160] for line in outcome.lines[-outcome.part.num_lines :])]), flush=True)
    if log is not None:
        with log.open("a") as file:
            file.write("\n".join([head, *outcome.lines, ""]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.name for part in all_parts(None)]
    parser.add_argument("--parts", nargs="+", metavar="PART", choices=names, default=names, help=", ".join(names))
    parser.add_argument("--model", metavar="FILE", type=Path, help="a GGUF file of SmolLM2, for `precision`")
    parser.add_argument("--log", metavar="FILE", type=Path, help="a file for whole outputs, one behind the other")
    parser.add_argument("--seconds", metavar="N", type=float, default=float("inf"), help="for everything together")
    args = parser.parse_args()
    if args.model is not None and not args.model.is_file():
        parser.error(f"--model: there is no file {args.model}")
    deadline = time.monotonic() + args.seconds
    parts = [part for part in all_parts(args.model) if part.name in args.parts]
    outcomes = []
    if args.log is not None:
        args.log.write_text("")  # a place that cannot be written to shows now
    with tempfile.TemporaryDirectory() as folder:
        try:
            for outcome in run(parts, Path(folder), deadline):
                outcomes.append(outcome)
                show(outcome, args.log)
        except KeyboardInterrupt:
            print("interrupted; what was under way is ended", file=sys.stderr)
            return EXIT_INTERRUPTED
    lines = [[one.part.name, one.said, f"{one.seconds:.0f}"] for one in outcomes]
    print_table("What held", ["part", "", "seconds"], lines)
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
