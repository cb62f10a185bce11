"""Which web server and framework carry tokens at the least cost? Each stack streams the same events to 256 clients.

python -m benchmarks.server.http_stacks PYTHON   (an interpreter that has fastapi, litestar, granian, aiohttp, uvicorn)
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

STACKS = [
    ("uvicorn-httptools-uvloop", "bare"),
    ("uvicorn-httptools-uvloop", "starlette"),
    ("uvicorn-httptools-uvloop", "litestar"),
    ("uvicorn-httptools-uvloop", "fastapi"),
    ("uvicorn-httptools-asyncio", "starlette"),
    ("uvicorn-h11-asyncio", "starlette"),
    ("granian", "bare"),
    ("granian", "starlette"),
    ("aiohttp", "aiohttp"),
]
NUM_CLIENTS = 256
NUM_EVENTS = 201
NUM_REPEATS = 3
TICKS = os.sysconf("SC_CLK_TCK")


def body(stream: bool) -> bytes:
    messages = [{"role": "user", "content": "word " * 100}]
    return json.dumps({"model": "smollm2", "messages": messages, "stream": stream, "temperature": 0.5}).encode()


def request(stream: bool) -> bytes:
    data = body(stream)
    lines = ["POST /v1/chat/completions HTTP/1.1", "Host: x", "Content-Type: application/json", "Connection: close"]
    return "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data


async def one(port: int, stream: bool) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(stream))
    count = 0
    tail = b""
    while data := await reader.read(1 << 16):
        count += (tail + data).count(b"data: ") - tail.count(b"data: ")
        tail = data[-5:]
    writer.close()
    return count


async def streams(port: int) -> float:
    start = time.perf_counter()
    counts = await asyncio.gather(*(one(port, True) for _ in range(NUM_CLIENTS)))
    assert set(counts) == {NUM_EVENTS}, f"events were lost: {sorted(set(counts))}"
    return time.perf_counter() - start


async def answers(port: int, count: int = 512) -> float:
    start = time.perf_counter()
    for _ in range(count // 32):
        await asyncio.gather(*(one(port, False) for _ in range(32)))
    return time.perf_counter() - start


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mebibytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def wait_for(port: int) -> float:
    start = time.perf_counter()
    while time.perf_counter() - start < 30:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return time.perf_counter() - start
        except OSError:
            time.sleep(0.01)
    raise SystemExit("a server did not start")


def measure(python: str, server: str, app: str, port: int) -> dict[str, float]:
    apps = Path(__file__).with_name("http_apps.py")
    process = subprocess.Popen([python, str(apps), server, app, str(port)], stderr=subprocess.DEVNULL)
    try:
        started = wait_for(port)
        asyncio.run(answers(port, 64))
        rates, costs = [], []
        for _ in range(NUM_REPEATS):
            before = cpu_seconds(process.pid)
            took = asyncio.run(streams(port))
            num_events = NUM_CLIENTS * NUM_EVENTS
            rates.append(num_events / took)
            costs.append((cpu_seconds(process.pid) - before) / num_events * 1e6)
        before = cpu_seconds(process.pid)
        asyncio.run(answers(port))
        each = (cpu_seconds(process.pid) - before) / 512 * 1e6
        return {
            "events/s": statistics.median(rates),
            "us/event": statistics.median(costs),
            "us/answer": each,
            "start s": started,
            "MiB": memory_mebibytes(process.pid),
        }
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    print(
        f"{'server':28}{'app':12}"
        + "".join(f"{name:>12}" for name in ("events/s", "us/event", "us/answer", "start s", "MiB"))
    )
    for number, (server, app) in enumerate(STACKS):
        found = measure(python, server, app, 18100 + number)
        print(f"{server:28}{app:12}" + "".join(f"{value:12.1f}" for value in found.values()), flush=True)


if __name__ == "__main__":
    main()
