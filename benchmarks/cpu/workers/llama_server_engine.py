"""llama-server's side: the server as it comes, and 32 clients that read their streams over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from tasks import TASKS, Outcome, Setup, Task, peak_mebibytes, serve

SERVER = Path(__file__).parents[2] / "results" / "peers" / "llama-server-build" / "bin" / "llama-server"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    def __init__(self, setup: Setup) -> None:
        self.port = free_port()
        longest = max(task.num_context for task in TASKS.values() if task.num_requests <= setup.num_streams)
        context = setup.num_streams * longest if setup.num_streams == 1 else setup.num_streams * 272
        threads = str(setup.num_threads)
        command = [str(SERVER), "-m", setup.model, "--host", "127.0.0.1", "--port", str(self.port), "-t", threads]
        command += ["-tb", threads, "-np", str(setup.num_streams), "-c", str(context), "--no-webui", "--cache-ram", "0"]
        if setup.cache_type:
            command += ["-ctk", setup.cache_type, "-ctv", setup.cache_type]
        self.process = subprocess.Popen(command, stdout=sys.stderr)
        while not self.is_healthy():
            if self.process.poll() is not None:
                raise RuntimeError(f"llama-server ended with {self.process.returncode}")
            time.sleep(0.05)

    def is_healthy(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def ask(self, prompt: list[int], num_output: int, times: list[float]) -> None:
        """One client: note when each token came."""
        body = {
            "prompt": prompt,
            "n_predict": num_output,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
            "stream": True,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data: ") and b'"stop":false' in line:
                times.append(time.monotonic())

    def run(self, task: Task) -> Outcome:
        prompts = task.prompts()
        times: list[list[float]] = [[] for _ in prompts]
        clients = [
            threading.Thread(target=self.ask, args=(prompt, task.num_output, mine))
            for prompt, mine in zip(prompts, times, strict=True)
        ]
        start = time.monotonic()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        end = time.monotonic()
        # A token that is half a character is sent with the next one.
        if min(len(mine) for mine in times) < task.num_output // 2:
            raise RuntimeError(f"streams ended early: {sorted(len(mine) for mine in times)}")
        stall = max((b - a for mine in times for a, b in zip(mine, mine[1:], strict=False)), default=0.0)
        if task.times_decoding:
            start = max(mine[0] for mine in times)
        return Outcome(end - start, stall if len(prompts) > 1 else None)

    def peak(self) -> float:
        return peak_mebibytes(self.process.pid)


def main() -> None:
    server = Server(Setup.from_command_line())
    try:
        serve(server.run, server.peak)
    finally:
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    main()
