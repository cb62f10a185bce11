"""Pagoda beside llama.cpp on the same file and the same token ids, interleaved in one run: medians, spread, ratios.

make bench-cpu
.venv/bin/python -m benchmarks.cpu.compare --model smollm2 --repeats 5
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cpu.tasks import TASKS
from benchmarks.report import RESULTS, machine, print_table, write_json
from pagoda.weights.store import ensure_model

HERE = Path(__file__).parent
PEERS = RESULTS / "peers"
LLAMA_VERSION = "0.3.36"
# What llama_model_quantize calls the formats (enum llama_ftype).
LLAMA_TYPES = {"Q4_0": 2, "Q8_0": 7, "F16": 1}


@dataclass
class Engine:
    """A worker process: it loads once, then runs the tasks it is told, and sleeps in between."""

    name: str
    command: list[str]
    speeds: dict[str, list[float]] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        with (RESULTS / f"{self.name.replace(' ', '-')}.log").open("w") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._reply()

    def run(self, task: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(task + "\n")
        self.process.stdin.flush()
        reply = self._reply()
        self.speeds.setdefault(task, []).append(reply["tokens_per_second"])
        self.peaks[task] = reply["peak_mebibytes"]

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _reply(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                f"{self.name} stopped; its words are in {RESULTS / (self.name.replace(' ', '-') + '.log')}"
            )
        reply: dict[str, float] = json.loads(line)
        return reply


def llama_python() -> Path:
    """An environment of its own with llama.cpp, built for this machine from its source package."""
    python = PEERS / "llama" / "bin" / "python"
    if not python.exists():
        print("building llama.cpp, which takes a while ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(PEERS / "llama")], check=True)
        environment = {**os.environ, "CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"}
        package = f"llama-cpp-python=={LLAMA_VERSION}"
        command = [str(python), "-m", "pip", "install", "-q", "--no-binary", "llama-cpp-python", package]
        subprocess.run(command, check=True, env=environment)
    return python


def requantized(python: Path, model: Path, name: str) -> Path:
    """The same weights in another format of llama.cpp's, made once by its own tool."""
    target = PEERS / f"{model.parent.name}-{name}.gguf"
    if not target.exists():
        code = (
            "import llama_cpp, sys, ctypes\n"
            "p = llama_cpp.llama_model_quantize_default_params()\n"
            "p.allow_requantize = True; p.ftype = int(sys.argv[3]); p.pure = False\n"
            "sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(p)))\n"
        )
        command = [str(python), "-c", code, str(model), str(target), str(LLAMA_TYPES[name])]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="name or path of a GGUF model (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads for every engine (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="times each task is run (default: %(default)s)")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument(
        "--formats", nargs="*", default=["Q4_0"], choices=list(LLAMA_TYPES), help="llama.cpp also in these"
    )
    args = parser.parse_args()
    PEERS.mkdir(parents=True, exist_ok=True)
    model = ensure_model(args.model)
    peer = llama_python()
    threads = str(args.threads)
    engines = [Engine("pagoda", [sys.executable, str(HERE / "pagoda_worker.py"), str(model), threads])]
    files = {"llama.cpp": model, **{f"llama.cpp {name}": requantized(peer, model, name) for name in args.formats}}
    engines += [Engine(n, [str(peer), str(HERE / "llama_worker.py"), str(p), threads]) for n, p in files.items()]
    run_all(engines, args.tasks, args.repeats)
    report(engines, args.tasks)


def run_all(engines: list[Engine], tasks: list[str], repeats: int) -> None:
    for engine in engines:
        engine.start()
    try:
        for task in tasks:
            for repeat in range(-1, repeats):  # the first round only warms up
                for engine in engines:
                    engine.run(task)
                    if repeat < 0:
                        engine.speeds[task].clear()
                print(f"\r{task}: {repeat + 1}/{repeats}  load {os.getloadavg()[0]:.1f}   ", end="", flush=True)
            print()
    finally:
        for engine in engines:
            engine.stop()


def report(engines: list[Engine], tasks: list[str]) -> None:
    ours = engines[0]
    rows = []
    for task in tasks:
        middle = statistics.median(ours.speeds[task])
        for engine in engines:
            speeds = sorted(engine.speeds[task])
            median = statistics.median(speeds)
            spread = f"{speeds[0]:.0f}-{speeds[-1]:.0f}"
            ratio = f"{middle / median:.2f}x" if engine is not ours else ""
            rows.append((task, engine.name, f"{median:.1f}", spread, ratio, f"{engine.peaks[task]:.0f}"))
    print(f"\n{machine()}; load now {os.getloadavg()[0]:.1f}")
    header = ("task", "engine", "tokens/s, median", "spread", "pagoda against it", "peak MiB so far")
    print_table("Tokens a second", header, rows)
    results = {engine.name: {"speeds": engine.speeds, "peak_mebibytes": engine.peaks} for engine in engines}
    print(f"\nwritten to {write_json('cpu_compare', results)}")


if __name__ == "__main__":
    main()
