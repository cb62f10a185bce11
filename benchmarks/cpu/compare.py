"""Pagoda beside its peers on the same model and the same token ids, interleaved in one run: medians, spread, ratios.

make bench-cpu
.venv/bin/python -m benchmarks.cpu.compare --model smollm2 --repeats 5 --peers llama openvino
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import typing
from collections.abc import Callable
from pathlib import Path

from benchmarks.cpu import peers
from benchmarks.cpu.compare_report import medians, report
from benchmarks.cpu.engine import Engine, WorkerFailed
from benchmarks.cpu.workers.tasks import TASKS, Setup
from pagoda.core.config import EngineConfig
from pagoda.weights.store import ensure_model

SERVER_TASKS = ("serve32",)
FAR_BEHIND = 0.6  # of the fastest: who is slower decides nothing, and runs a long task only once
LLAMA_FORMATS = ("Q4_0", "Q8_0", "F16")
DEFAULT_COMPUTE = "int8"  # what the native kernels do unless told otherwise


def compute_choices() -> tuple[str, ...]:
    """What `LLM(compute=...)` accepts; nothing while the engine has no such setting."""
    hint = typing.get_type_hints(EngineConfig).get("compute")
    return tuple(str(choice) for choice in typing.get_args(hint))


def pagoda_engines(model: Path, num_threads: int) -> list[Engine]:
    """The default setting first, then what it is not."""
    choices = [name for name in compute_choices() if name not in ("auto", DEFAULT_COMPUTE)]
    return [
        Engine(
            f"pagoda {compute}".strip(),
            Path(sys.executable),
            "pagoda_engine.py",
            Setup(str(model), num_threads, compute=compute),
        )
        for compute in ("", *choices)
    ]


def pagoda_server(model: Path, num_threads: int) -> Engine:
    setup = Setup(str(model), num_threads)
    return Engine("pagoda server", Path(sys.executable), "pagoda_server_engine.py", setup, SERVER_TASKS)


def llama_engines(model: Path, num_threads: int, formats: list[str]) -> list[Engine]:
    python = peers.python_of("llama")
    files = {"llama.cpp": model, **{f"llama.cpp {name}": peers.requantized(model, name) for name in formats}}
    return [Engine(n, python, "llama_engine.py", Setup(str(p), num_threads)) for n, p in files.items()]


def server_engines(model: Path, num_threads: int, formats: list[str]) -> list[Engine]:
    peers.llama_server()
    files = {"llama-server": model, **{f"llama-server {n}": peers.requantized(model, n) for n in formats}}
    engines = [
        Engine(name, Path(sys.executable), "llama_server_engine.py", Setup(str(path), num_threads), SERVER_TASKS)
        for name, path in files.items()
    ]
    # Only for its memory, beside an engine whose cache is float32.
    with_f32 = Setup(str(model), num_threads, cache_type="f32")
    return [*engines, Engine("llama-server, f32 cache", Path(sys.executable), "llama_server_engine.py", with_f32, ())]


def openvino_engines(model: Path, num_threads: int) -> list[Engine]:
    setup = Setup(str(peers.openvino_int8(model)), num_threads)
    return [Engine("openvino int8", peers.python_of("openvino"), "openvino_engine.py", setup)]


def float_engines(peer: str, model: Path, num_threads: int) -> list[Engine]:
    setup = Setup(str(peers.hugging_face(model)), num_threads)
    return [Engine(f"{peer} f32", peers.python_of(peer), f"{peer}_engine.py", setup)]


def make_engines(model: Path, args: argparse.Namespace) -> tuple[list[Engine], dict[str, str]]:
    """Ours first; and for each peer that cannot be had, the reason."""
    makers: dict[str, Callable[[], list[Engine]]] = {
        "llama": lambda: llama_engines(model, args.threads, args.formats),
        "llama-server": lambda: server_engines(model, args.threads, args.server_formats),
        "openvino": lambda: openvino_engines(model, args.threads),
        "vllm": lambda: float_engines("vllm", model, args.threads),
        "transformers": lambda: float_engines("transformers", model, args.threads),
    }
    engines = pagoda_engines(model, args.threads)
    if "llama-server" in args.peers:
        engines.append(pagoda_server(model, args.threads))
    missing = {}
    for name in args.peers:
        try:
            engines += makers[name]()
        except peers.Unavailable as error:
            missing[name] = str(error)
    return engines, missing


def measure_memory(engines: list[Engine], tasks: list[str]) -> None:
    """In fresh processes: one stream that decodes, and 32 that are served where none of the tasks will show that."""
    for engine in engines:
        will_show = "serve32" in engine.tasks and "serve32" in tasks
        for num_streams, task in [(1, "decode1")] + ([] if will_show else [(32, "serve32")]):
            print(f"\rmemory: {engine.name}, {num_streams} stream(s)".ljust(79), end="", flush=True)
            try:
                engine.start(num_streams)
                _, engine.peaks[num_streams] = engine.run(task)
            except WorkerFailed as error:
                engine.failure = str(error)
            finally:
                engine.stop()
    print()


def start_all(engines: list[Engine]) -> list[Engine]:
    """Those that came up, each stopped until its turn."""
    started = []
    for engine in engines:
        print(f"\rloading {engine.name}".ljust(79), end="", flush=True)
        try:
            engine.start()
            engine.pause()
            started.append(engine)
        except WorkerFailed as error:
            engine.failure = str(error)
    print()
    return started


def run_all(engines: list[Engine], args: argparse.Namespace) -> None:
    running = start_all([engine for engine in engines if engine.tasks])
    try:
        for task in args.tasks:
            # The first round only warms up; a task of a minute is its own warm-up, and is not run as often.
            # One request is over within a second, and seconds differ: it is run twice as often.
            times = args.repeats * (2 if TASKS[task].num_requests == 1 else 1)
            rounds = range(args.long_repeats) if TASKS[task].is_long else range(-1, times)
            share = args.sit_out if TASKS[task].is_long else 0.0
            taking_part = [engine for engine in running if not sits_out(engine, running, share)]
            for repeat in rounds:
                able = [engine for engine in taking_part if task in engine.tasks and not engine.failure]
                if TASKS[task].is_long and repeat > 0:
                    able = near_the_best(able, task)
                turn = max(repeat, 0) % max(1, len(able))  # nobody always comes after the same one
                for engine in able[turn:] + able[:turn]:
                    run_one(engine, task, repeat >= 0)
                    progress = f"{task} {repeat + 1}/{rounds.stop} {engine.name}, load {os.getloadavg()[0]:.1f}"
                    print(f"\r{progress}".ljust(79), end="", flush=True)
            print()
    finally:
        for engine in running:
            engine.stop()


def sits_out(engine: Engine, engines: list[Engine], share: float) -> bool:
    """Whether it was slower than that share of the fastest in a task that is done."""
    speeds = [medians(engines, task) for task in engine.samples]
    return any(of_task[engine.name] < share * max(of_task.values()) for of_task in speeds)


def near_the_best(engines: list[Engine], task: str) -> list[Engine]:
    speeds = {engine.name: engine.samples[task][0].speed for engine in engines}
    return [engine for engine in engines if speeds[engine.name] >= FAR_BEHIND * max(speeds.values())]


def run_one(engine: Engine, task: str, counts: bool) -> None:
    try:
        sample, peak = engine.run(task)
        engine.pause()
        if counts:
            engine.samples.setdefault(task, []).append(sample)
        if task == "serve32":
            engine.peaks.setdefault(32, peak)
    except WorkerFailed as error:
        engine.failure = str(error)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    everyone = ["llama", "llama-server", "openvino", "vllm", "transformers"]
    parser.add_argument("--model", default="smollm2", help="name or path of a GGUF model (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads for every engine (default: %(default)s)")
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        help="times a task is run, one of a single request twice as often (default: %(default)s)",
    )
    parser.add_argument("--long-repeats", type=int, default=3, help="times a long task is run (default: %(default)s)")
    sit_out = "who reached less than this share of the fastest so far sits out a long task (default: nobody does)"
    parser.add_argument("--sit-out", type=float, default=0.0, help=sit_out)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--peers", nargs="*", default=everyone, choices=everyone)
    parser.add_argument("--formats", nargs="*", default=list(LLAMA_FORMATS), choices=list(peers.LLAMA_TYPES))
    parser.add_argument("--server-formats", nargs="*", default=["Q4_0", "F16"], choices=list(peers.LLAMA_TYPES))
    parser.add_argument("--no-memory", action="store_true", help="leave out the peak memory of fresh processes")
    parser.add_argument("--name", default="cpu_compare", help="of the files written (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no worker is left behind
    peers.PEERS.mkdir(parents=True, exist_ok=True)
    model = ensure_model(args.model)
    engines, missing = make_engines(model, args)
    if not args.no_memory:
        measure_memory(engines, args.tasks)
    run_all(engines, args)
    report(engines, missing, args)


if __name__ == "__main__":
    main()
