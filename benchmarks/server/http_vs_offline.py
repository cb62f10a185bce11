"""Output tokens a second through HTTP against the offline `LLM` on the same requests, in turns in one run.

    python -m benchmarks.server.http_vs_offline [--repeats 5] [--streams 32] [--model smollm2]

Server, client and offline engine are processes of their own and share the cores. Both engines are loaded throughout;
the one whose turn it is not has nothing to do and sleeps. Each turn's prompts are new, so that no prefix cache helps.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import uvloop

from benchmarks.report import machine, print_table, write_json
from benchmarks.server.http_stacks import cpu_seconds
from pagoda.bench.arrivals import Pace
from pagoda.bench.client import Target
from pagoda.bench.conversation import Conversation, Question
from pagoda.bench.load import Extent, Load
from pagoda.bench.workloads import TokenRequest

NUM_PROMPT, NUM_ANSWER = 128, 128
END_OF_IDS = 40_000
GOAL = 0.90


class Turn(NamedTuple):
    tokens_per_second: float
    cpu: dict[str, float]
    """Seconds of processor time by process."""


def requests(number: int, num_streams: int) -> list[TokenRequest]:
    rng = random.Random(number)
    return [
        TokenRequest([rng.randrange(10, END_OF_IDS) for _ in range(NUM_PROMPT)], NUM_ANSWER) for _ in range(num_streams)
    ]


def offline_worker(model: str) -> None:
    """Answers on stdin's orders: a line with the number of a turn in, a line with its seconds out."""
    from pagoda import LLM, SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=NUM_ANSWER, ignore_eos=True)
    with LLM(model) as llm:
        print("ready", flush=True)
        for line in sys.stdin:
            number, num_streams = map(int, line.split())
            prompts = [{"prompt_token_ids": request.prompt_token_ids} for request in requests(number, num_streams)]
            start = time.perf_counter()
            outputs = llm.generate(prompts, sampling, use_tqdm=False)
            seconds = time.perf_counter() - start
            assert all(len(output.outputs[0].token_ids) == NUM_ANSWER for output in outputs)
            print(json.dumps(seconds), flush=True)


class Offline:
    def __init__(self, model: str) -> None:
        command = [sys.executable, "-m", "benchmarks.server.http_vs_offline", "--worker", "--model", model]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input: IO[str] = self._process.stdin
        self._output: IO[str] = self._process.stdout
        self._output.readline()

    def turn(self, number: int, num_streams: int) -> Turn:
        before = cpu_seconds(self._process.pid)
        self._input.write(f"{number} {num_streams}\n")
        self._input.flush()
        seconds = json.loads(self._output.readline())
        return Turn(num_streams * NUM_ANSWER / seconds, {"offline": cpu_seconds(self._process.pid) - before})

    def close(self) -> None:
        self._input.close()
        self._process.wait()


class Served:
    def __init__(self, url: str, pids: dict[str, int], endpoint: str) -> None:
        self._target = Target(url, "model", endpoint=endpoint, fields={"temperature": 0, "ignore_eos": True})  # type: ignore[arg-type]
        self._pids = pids

    def turn(self, number: int, num_streams: int) -> Turn:
        questions = [Question(made.prompt_token_ids, made.max_tokens) for made in requests(number, num_streams)]
        conversations = (Conversation((question,)) for question in questions)
        before = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        own = time.process_time()
        load = Load(self._target, Pace(concurrency=num_streams), Extent(num_streams))
        run = uvloop.run(load.measure(conversations, iter(())))
        cpu = {"client": time.process_time() - own}
        cpu |= {name: cpu_seconds(pid) - before[name] for name, pid in self._pids.items()}
        failed = [outcome for outcome in run.outcomes if outcome.error or outcome.num_output != NUM_ANSWER]
        assert not failed, f"{len(failed)} requests failed: {failed[0].error}: {failed[0].message}"
        return Turn(num_streams * NUM_ANSWER / (run.ended - run.started), cpu)


@contextmanager
def served(model: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "pagoda", "serve", model, "--port", "0", "--served-model-name", "model"]
    process = subprocess.Popen([*command, "--log-level", "warning"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        heard = ""
        while not (found := re.search(r"listening on (\S+)", heard)):
            line = process.stderr.readline()
            if not line:
                raise SystemExit(f"the server did not start:\n{heard}")
            heard += line
        wait_until_ready(found[1])
        yield Served(found[1], children(process.pid), "completions")
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(url: str) -> None:
    from urllib.error import URLError
    from urllib.request import urlopen

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urlopen(f"{url}/ready", timeout=5):
                return
        except URLError:
            time.sleep(0.05)
    raise SystemExit("the engine did not become ready")


def children(pid: int) -> dict[str, int]:
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        for name, module in (("engine", b"pagoda.engine.process"), ("HTTP", b"pagoda.server.process")):
            if module in words:
                found[name] = int(child)
    return found


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"


def compare(model: str, repeats: int, num_streams: int) -> dict[str, Any]:
    offline = Offline(model)
    turns: dict[str, list[Turn]] = {"offline": [], "HTTP": []}
    try:
        with served(model) as server:
            for number in range(-1, repeats):  # the first round is not counted
                order = [("offline", offline.turn), ("HTTP", server.turn)]
                for name, turn in order if number % 2 else reversed(order):
                    found = turn(number + 1000 * (name == "HTTP") if number < 0 else number, num_streams)
                    if number >= 0:
                        turns[name].append(found)
    finally:
        offline.close()
    rates = {name: [turn.tokens_per_second for turn in found] for name, found in turns.items()}
    ratios = [http / alone for http, alone in zip(rates["HTTP"], rates["offline"], strict=True)]
    print_table(
        f"{num_streams} clients, {NUM_PROMPT} in, {NUM_ANSWER} out: output tokens/s",
        ("way", "median (least to most)"),
        [[name, spread(found)] for name, found in rates.items()],
    )
    names = [name for turn in (turns["offline"][0], turns["HTTP"][0]) for name in turn.cpu]
    cpu = {name: [turn.cpu[name] for found in turns.values() for turn in found if name in turn.cpu] for name in names}
    rows = [[name, spread(found)] for name, found in cpu.items()]
    print_table("processor time of a turn, seconds", ("process", "median (least to most)"), rows)
    ratio = statistics.median(ratios)
    verdict = "met" if ratio >= GOAL else "missed"
    print(
        f"\nHTTP / offline, turn by turn: {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f}); goal {GOAL}: {verdict}"
    )
    return {"rates": rates, "ratios": ratios, "cpu": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description="output tokens a second through HTTP against the offline engine")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        offline_worker(arguments.model)
        return
    print(f"{machine()}; {arguments.model}; {arguments.repeats} turns each")
    record = compare(arguments.model, arguments.repeats, arguments.streams)
    print(f"wrote {write_json('http_vs_offline', record)}")


if __name__ == "__main__":
    main()
