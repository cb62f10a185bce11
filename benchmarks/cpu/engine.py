"""One engine of the comparison: a worker process that loads once, runs what it is told, and is stopped in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cpu import busy
from benchmarks.cpu.workers.tasks import TASKS, Setup
from benchmarks.report import RESULTS

WORKERS = Path(__file__).parent / "workers"


class WorkerFailed(Exception):
    pass


@dataclass(frozen=True)
class Sample:
    speed: float
    longest_stall: float | None
    busyness: busy.Busyness


@dataclass
class Engine:
    name: str
    python: Path
    worker: str
    setup: Setup
    tasks: tuple[str, ...] = tuple(TASKS)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    peaks: dict[int, float] = field(default_factory=dict)
    """MiB by number of streams: of one from a fresh process, of 32 from one that may have done other tasks before."""
    failure: str = ""

    def start(self, num_streams: int = 32) -> None:
        setup = {**asdict(self.setup), "num_streams": num_streams}
        self._log = RESULTS / "logs" / f"{self.name.replace(' ', '-')}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("w") as log:
            # A session of its own, so that all its threads and children can be stopped and counted.
            self._process = subprocess.Popen(
                [str(self.python), str(WORKERS / self.worker), json.dumps(setup)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._reply()

    def pause(self) -> None:
        """Threads that spin while they wait must not take time from the engine whose turn it is."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def run(self, task: str) -> tuple[Sample, float]:
        """One sample, and the most memory that the process ever had."""
        assert self._process.stdin is not None
        os.killpg(self._process.pid, signal.SIGCONT)
        before = busy.read(self._process.pid)
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        reply = self._reply()
        after = busy.read(self._process.pid)
        busyness = busy.between(before, after, os.cpu_count() or 1)
        return Sample(reply["tokens_per_second"], reply["longest_stall"], busyness), reply["peak_mebibytes"]

    def stop(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGCONT)
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        while line and not line.startswith('{"'):  # what libraries print while they load
            line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            words = lines[-1].strip()[:200] if lines else f"exit status {self._process.returncode}"
            raise WorkerFailed(f"{words} (see {self._log.relative_to(RESULTS.parent)})")
        reply: dict[str, Any] = json.loads(line)
        return reply
