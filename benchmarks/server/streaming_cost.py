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
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import msgspec
import uvloop

from benchmarks.report import machine, print_table, write_json
from benchmarks.server.free_engine import TimedProcess, free_loop
from benchmarks.server.http_stacks import cpu_seconds
from pagoda.bench.arrivals import Pace
from pagoda.bench.client import Client, Target
from pagoda.bench.lengths import Lengths
from pagoda.bench.load import Extent, Load, Run
from pagoda.bench.synthetic import Synthetic
from pagoda.core.config import EngineConfig
from pagoda.core.errors import PagodaError
from pagoda.core.request import Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.messages import AddRequest
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
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


def steps_of(path: Path, num_rows: int) -> list[float]:
    """Microseconds of the steps in which that many rows ran."""
    return sorted(taken / 1000 for rows, taken in json.loads(path.read_text()) if rows == num_rows)


def steps_in_service(num_rows: int, repeats: int, folder: Path) -> list[float]:
    """Behind a device that takes 10 ms, with the server and the client on the same cores."""
    path = folder / f"rows-{num_rows}"
    with server(0.01, num_rows, path) as children:
        for _ in range(repeats):
            measure(children, "completions", num_rows)
    return steps_of(path, num_rows)


def steps_alone(num_rows: int, num_steps: int = 1000) -> list[float]:
    """Step after step, to somebody who only takes the bytes. The rows are at different places in their pages."""
    loop = free_loop(0.0, num_rows)
    sampling = SamplingParams(max_tokens=num_steps + 200, ignore_eos=True)
    for number in range(num_rows):
        request = Request(
            request_id=f"cmpl-{number:032x}-0",
            prompt_token_ids=tuple(range(number, number + NUM_PROMPT + number % 16)),
            sampling=sampling,
        )
        loop.inbox.append(AddRequest(request))
    here, there = socket.socketpair()
    with here, there, subprocess.Popen(["cat"], stdin=there, stdout=subprocess.DEVNULL) as reader:
        process = TimedProcess(here, SimpleNamespace(loop=loop))  # type: ignore[arg-type]
        process.steps = []
        try:
            for _ in range(num_steps + 100):
                process._step()
        finally:
            reader.kill()
    return sorted(taken / 1000 for _, taken in process.steps[100:])


def step_row(where: str, num_rows: int, steps: list[float]) -> list[object]:
    found = (steps[0], statistics.median(steps), steps[int(0.95 * (len(steps) - 1))])
    return [where, num_rows, len(steps), *(round(value) for value in found)]


def stream_rows(arguments: argparse.Namespace, folder: Path) -> list[list[object]]:
    rows: list[list[object]] = []
    for milliseconds in arguments.step_milliseconds:
        for endpoint in arguments.endpoints:
            with server(milliseconds / 1000, NUM_STREAMS, folder / "steps") as children:
                costs = [measure(children, endpoint, NUM_STREAMS) for _ in range(arguments.repeats)]
            rows.append([f"{milliseconds:g} ms", endpoint, *(round(value, 1) for value in median_cost(costs))])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="what it costs to carry a token to a client")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--step-milliseconds", type=float, nargs="+", default=[0.0, 40.0])
    parser.add_argument("--endpoints", nargs="+", default=["completions", "chat"])
    arguments = parser.parse_args()
    print(f"{machine()}; {NUM_STREAMS} streams of {NUM_TOKENS} tokens, medians of {arguments.repeats}")
    with tempfile.TemporaryDirectory() as name:
        steps = [step_row("alone", rows, steps_alone(rows)) for rows in (64, 256)]
        streams = stream_rows(arguments, Path(name))
        for rows in (64, 256):
            found = steps_in_service(rows, arguments.repeats, Path(name))
            steps.append(step_row("in service", rows, found))
    stream_header = ("step", "endpoint", "tokens/s", "tokens an event", "HTTP µs", "engine µs", "client µs")
    print_table(f"{NUM_STREAMS} streams: processor time a token", stream_header, streams)
    step_header = ("loop", "rows", "steps", "least", "median", "p95")
    print_table("the engine's host time a step, microseconds of processor time", step_header, steps)
    median = steps[0][4]
    verdict = "met" if median < TARGET_MICROSECONDS else "missed"  # type: ignore[operator]
    print(f"\n64 rows: {median} microseconds; target under {TARGET_MICROSECONDS:.0f}: {verdict}")
    record = {
        "streams": [dict(zip(stream_header, row, strict=True)) for row in streams],
        "steps": [dict(zip(step_header, row, strict=True)) for row in steps],
    }
    print(f"wrote {write_json('streaming_cost', record)}")


if __name__ == "__main__":
    main()
