"""What `pagoda plan` says beside what a server really holds, with every page of its cache in use.

    python -m benchmarks.memory_plan [MODEL] [--compute int8]

32 streams fill the whole cache at once. Of each process the resident memory is read from the kernel: its own pages and,
wherever they are resident, pages of mapped files; `shared` is the part that other processes hold as well.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

NUM_STREAMS, CONTEXT, PROMPT_TOKENS = 32, 512, 416
START_SECONDS, LOAD_SECONDS = 120.0, 400.0
MEBIBYTE = 1 << 20
LISTENING = re.compile(r"listening on (\S+)")


@dataclass(frozen=True)
class Row:
    name: str
    planned: float
    actual: float
    shared: float = 0.0

    @property
    def error(self) -> float:
        return self.actual / self.planned - 1.0


class Server:
    """`pagoda serve` with as many rows as there are streams, and exactly the pages that they fill."""

    def __init__(self, model: str, compute: str) -> None:
        settings = {
            "--max-num-seqs": NUM_STREAMS,
            "--max-model-len": CONTEXT,
            "--num-pages": NUM_STREAMS * CONTEXT // 16,
            "--compute": compute,
            "--port": 0,
            "--log-level": "warning",
        }
        options = [str(word) for pair in settings.items() for word in pair]
        command = [sys.executable, "-m", "pagoda", "serve", model, *options]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.close()
                raise SystemExit("the server did not start")
            time.sleep(0.1)

    def metrics(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Samples by name and by the values of their labels other than the model's."""
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(httpx.get(f"{self.url}/metrics").text):
            for sample in family.samples:
                labels = tuple(value for name, value in sample.labels.items() if name != "model_name")
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    def pids(self) -> dict[str, int]:
        found = {"supervisor": self._process.pid}
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                words = Path(f"/proc/{child}/cmdline").read_bytes()
                found["engine" if b"pagoda.engine.process" in words else "http"] = int(child)
        return found

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)

    def _is_ready(self) -> bool:
        return bool(self.url) and httpx.get(f"{self.url}/ready").status_code == 200

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := LISTENING.search(line):
                self.url = found[1]


def fill_cache(server: Server) -> None:
    """Every stream runs to the end of its row, all at once, twice: what was freed is taken again."""

    def ask(number: int) -> None:
        prompt = [(7919 * number + 31 * place) % 40000 for place in range(PROMPT_TOKENS)]
        body = {"prompt": prompt, "max_tokens": CONTEXT - PROMPT_TOKENS, "ignore_eos": True, "seed": number}
        httpx.post(f"{server.url}/v1/completions", json=body, timeout=LOAD_SECONDS).raise_for_status()

    for turn in range(2):
        with ThreadPoolExecutor(NUM_STREAMS) as streams:
            list(streams.map(ask, range(turn * NUM_STREAMS, (turn + 1) * NUM_STREAMS)))  # an error of any is raised


def memory_of(pid: int) -> tuple[float, float]:
    """Resident bytes, and of those the bytes that other processes hold, too."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, number, _ = line.split()
        found[name.rstrip(":")] = 1024 * int(number)
    return found["Rss"], found["Shared_Clean"] + found["Shared_Dirty"]


def measure(model: str, compute: str) -> tuple[list[Row], list[Row]]:
    """The lines of the engine's ledger, and the processes."""
    server = Server(model, compute)
    try:
        fill_cache(server)
        metrics = server.metrics()
        allocated = metrics["pagoda_memory_allocated_bytes"]
        lines = [Row(n[0], p, allocated[n]) for n, p in metrics["pagoda_memory_planned_bytes"].items()]
        pids = server.pids()
        planned = metrics["pagoda_process_planned_bytes"]
        processes = [Row(name, planned[name,], *memory_of(pids[name])) for name in ("engine", "http", "supervisor")]
    finally:
        server.close()
    return lines, processes


def print_rows(title: str, rows: list[Row]) -> None:
    print(f"{title:<14}{'planned MiB':>12}{'actual MiB':>12}{'shared MiB':>12}{'error':>9}")
    for row in rows:
        sizes = (row.planned / MEBIBYTE, row.actual / MEBIBYTE, row.shared / MEBIBYTE)
        print(f"  {row.name:<12}" + "".join(f"{size:>12.2f}" for size in sizes) + f"{row.error:>9.1%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--compute", choices=("int8", "f32"), action="append")
    args = parser.parse_args()
    within = True
    for compute in args.compute or ("int8", "f32"):
        lines, processes = measure(args.model, compute)
        print(f"\n{args.model}, compute {compute}, {NUM_STREAMS} streams of {CONTEXT} tokens, {os.cpu_count()} cores")
        print_rows("ledger", lines)
        whole = Row("in all", *(sum(getattr(p, f) for p in processes) for f in ("planned", "actual", "shared")))
        print_rows("process", [*processes, whole])
        within &= all(row.planned == row.actual for row in lines) and abs(processes[0].error) <= 0.1
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
