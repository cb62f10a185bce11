"""What it costs to carry a token to a client, with a model that costs nothing.

    python -m benchmarks.server.streaming_cost [--repeats 3]

The engine process of `free_engine`, the HTTP process of `pagoda serve` and the client of `pagoda bench serve`, each in
a process of its own. A free model runs ahead of what HTTP can carry, and tokens that wait are then sent together; so
the streams are also measured behind a device that takes some milliseconds for a step, where each token is an event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from benchmarks.report import machine, print_table, write_json
from benchmarks.server.http_stacks import cpu_seconds
from pagoda.bench.arrivals import Pace
from pagoda.bench.client import Client, Target
from pagoda.bench.lengths import Lengths
from pagoda.bench.load import Extent, Load, Run
from pagoda.bench.synthetic import Synthetic
from pagoda.core.config import EngineConfig
from pagoda.core.errors import PagodaError
from pagoda.server.config import ListenConfig, LogConfig, ProcessSettings, QueueConfig, ServerConfig
from pagoda.weights.store import ensure_model

NUM_STREAMS, NUM_TOKENS, NUM_PROMPT = 256, 200, 32
TARGET_MICROSECONDS = 250.0
START_SECONDS = 60.0


class Cost(NamedTuple):
    tokens_per_second: float
    tokens_per_event: float
    http: float
    """Microseconds of processor time a token; likewise the next two."""
    engine: float
    client: float


class Children(NamedTuple):
    url: str
    http: int
    engine: int


@contextmanager
def server(step_seconds: float, num_rows: int, steps_file: Path) -> Iterator[Children]:
    with tempfile.TemporaryDirectory(prefix="pagoda-bench-") as folder:
        port = free_port()
        settings = ProcessSettings(
            server=ServerConfig(
                listen=ListenConfig(port=port),
                queue=QueueConfig(max_queued_requests=4 * NUM_STREAMS),
                log=LogConfig(log_level="warning"),
                served_model_name="free",
            ),
            engine=EngineConfig(model="smollm2", max_num_seqs=num_rows, max_num_batched_tokens=8192),
            model_path=str(ensure_model("smollm2")),
            engine_socket=f"{folder}/engine",
        )
        http = _start("pagoda.server.process", msgspec.json.encode(settings).decode())
        engine = None
        try:
            wait_for(lambda: Path(settings.engine_socket).exists())
            arguments = (settings.engine_socket, str(steps_file), str(step_seconds), str(num_rows))
            engine = _start("benchmarks.server.free_engine", *arguments)
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: _answers(url))
            yield Children(url, http.pid, engine.pid)
        finally:
            http.terminate()
            http.wait()
            if engine is not None:
                engine.wait()  # it leaves when nobody listens, and writes down its steps


def _start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stderr=subprocess.DEVNULL)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: object) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit("a process did not start")
        time.sleep(0.02)


def _answers(url: str) -> bool:
    try:
        asyncio.run(Client(Target(url)).first_model())
    except PagodaError:
        return False
    return True


async def stream(target: Target, num_streams: int, num_tokens: int) -> Run:
    lengths = Lengths("constant", (NUM_PROMPT,)), Lengths("constant", (num_tokens,))
    drawn = Synthetic(*lengths, form="text" if target.endpoint == "chat" else "ids", seed=time.monotonic_ns())
    load = Load(target, Pace(concurrency=num_streams), Extent(num_streams))
    endless = drawn.conversations()
    return await load.measure(endless, endless)


def measure(children: Children, endpoint: str, num_streams: int) -> Cost:
    """In a process of its own, so that its processor time is the client's alone."""
    form = Target(children.url, "free", endpoint=endpoint, fields={"ignore_eos": True})  # type: ignore[arg-type]
    uvloop.run(stream(form, 8, 16))
    before = [cpu_seconds(pid) for pid in (children.http, children.engine)]
    own = time.process_time()
    run = uvloop.run(stream(form, num_streams, NUM_TOKENS))
    own = time.process_time() - own
    after = [cpu_seconds(pid) for pid in (children.http, children.engine)]
    failed = [outcome for outcome in run.outcomes if outcome.error]
    assert not failed, f"{len(failed)} streams failed: {failed[0].error}: {failed[0].message}"
    num_tokens = sum(outcome.num_output for outcome in run.outcomes)
    assert num_tokens == num_streams * NUM_TOKENS, "tokens were lost"
    num_events = sum(len(outcome.times) for outcome in run.outcomes)
    each = [(late - early) / num_tokens * 1e6 for early, late in zip(before, after, strict=True)]
    return Cost(num_tokens / (run.ended - run.started), num_tokens / num_events, *each, own / num_tokens * 1e6)


def median_cost(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def host_steps(path: Path, num_rows: int) -> list[float]:
    """Microseconds of the steps in which that many rows ran; the first ones, which start requests, left out."""
    steps = [taken / 1000 for rows, taken in json.loads(path.read_text()) if rows == num_rows]
    return sorted(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description="what it costs to carry a token to a client")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--step-milliseconds", type=float, nargs="+", default=[0.0, 25.0])
    parser.add_argument("--endpoints", nargs="+", default=["completions", "chat"])
    arguments = parser.parse_args()
    print(f"{machine()}; {NUM_STREAMS} streams of {NUM_TOKENS} tokens, medians of {arguments.repeats}")
    record: dict[str, object] = {"streams": [], "steps": []}
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for milliseconds in arguments.step_milliseconds:
            for endpoint in arguments.endpoints:
                with server(milliseconds / 1000, NUM_STREAMS, Path(folder) / "steps") as children:
                    costs = [measure(children, endpoint, NUM_STREAMS) for _ in range(arguments.repeats)]
                cost = median_cost(costs)
                rows.append([f"{milliseconds:g} ms", endpoint, *(f"{value:,.1f}" for value in cost)])
                record["streams"].append({"step_ms": milliseconds, "endpoint": endpoint, **cost._asdict()})  # type: ignore[attr-defined]
        header = ("step", "endpoint", "tokens/s", "tokens an event", "HTTP µs", "engine µs", "client µs")
        print_table("256 streams: processor time a token", header, rows)
        rows = []
        for num_rows in (64, 256):
            path = Path(folder) / f"rows-{num_rows}"
            with server(0.01, num_rows, path) as children:
                for _ in range(arguments.repeats):
                    measure(children, "completions", num_rows)
            steps = host_steps(path, num_rows)
            found = [steps[0], statistics.median(steps), steps[int(0.95 * (len(steps) - 1))]]
            rows.append([num_rows, len(steps), *(f"{value:.0f}" for value in found)])
            record["steps"].append({"rows": num_rows, "least": found[0], "median": found[1], "p95": found[2]})  # type: ignore[attr-defined]
            if num_rows == 64:
                verdict = "met" if found[1] < TARGET_MICROSECONDS else "missed"
        header = ("rows", "steps", "least", "median", "p95")
        print_table("the engine's host time a step, microseconds of processor time", header, rows)
    print(f"\n64 rows: target under {TARGET_MICROSECONDS:.0f} microseconds: {verdict}")
    print(f"wrote {write_json('streaming_cost', record)}")


if __name__ == "__main__":
    main()
