"""F7: readers at one byte a second. Their requests pause, the others do not notice, and those that stall are let go.

    python -m tests.faults.f7_slow_readers [--readers 100] [--tokens 4000] [--patience 60] [--quick 4]

The server's processes, scheduler, pages and kernels are real; the model is the tiny one of tests/fakes/lookup_model.py,
which says the same letters for ever: what each reader must get is known, and a hundred streams fit on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.fakes.lookup_model import SAYING, write_lookup_model
from tests.server.running import RunningServer

RECEIVE_BUFFER = 4096
SEND_BUFFER = 65536
MOST_BUFFERED = 256 << 10
MOST_SLOWER = 0.10
SETTLE_SECONDS = 60.0
CONTENT = re.compile(rb'"content":"([^"]*)"')


@dataclass
class Numbers:
    """What was measured, against the goals of F7."""

    num_readers: int
    num_paused: int = 0
    buffered_bytes: float = 0.0
    """That lie ready for each stream, in the server and in its kernel."""
    grown_bytes: float = 0.0
    """How much larger the HTTP process became for each stream, all told."""
    tokens_drawn: float = 0.0
    """For each stream, before it paused."""
    quick_before: list[float] = field(default_factory=list)
    quick_beside: list[float] = field(default_factory=list)
    """p99 of the time between tokens of ordinary readers, by round."""
    num_whole: int = 0
    """Of two readers that read on: how many got all of their answer."""
    num_let_go: int = 0
    let_go_seconds: float = 0.0
    pages_left: float = -1.0
    fds_left: int = -1

    @property
    def slower(self) -> float:
        return statistics.median(self.quick_beside) / statistics.median(self.quick_before) - 1

    def verdicts(self, patience: float) -> list[tuple[str, str, str, bool]]:
        before, beside = (1e3 * statistics.median(p99) for p99 in (self.quick_before, self.quick_beside))
        stalled = self.num_readers - 2
        return [
            ("sequences paused", f"{self.num_paused}", f"all {self.num_readers}", self.num_paused == self.num_readers),
            (
                "buffered per stream",
                f"{self.buffered_bytes / 1024:.0f} KiB (the process grew by {self.grown_bytes / 1024:.0f})",
                f"<= {MOST_BUFFERED >> 10} KiB",
                self.buffered_bytes <= MOST_BUFFERED,
            ),
            ("tokens drawn before the pause", f"{self.tokens_drawn:.0f} each", "-", True),
            (
                "inter-token p99 of others",
                f"{before:.2f} ms alone, {beside:.2f} ms beside ({self.slower:+.1%})",
                f"<= {MOST_SLOWER:+.0%}",
                self.slower <= MOST_SLOWER,
            ),
            ("paused readers that read on and got all", f"{self.num_whole}", "2", self.num_whole == 2),
            ("stalled readers let go", f"{self.num_let_go}", f"all {stalled}", self.num_let_go == stalled),
            (
                "the last of them after",
                f"{self.let_go_seconds:.1f} s",
                f"<= {patience * 1.25 + 2:.0f} s",
                self.let_go_seconds <= patience * 1.25 + 2,
            ),
            ("pages still held", f"{self.pages_left:g}", "0", self.pages_left == 0),
            ("file descriptors left over", f"{self.fds_left}", "0", self.fds_left == 0),
        ]


class Reader:
    """A client on a plain socket; a slow one with a small receive buffer."""

    def __init__(self, address: tuple[str, int], body: dict[str, object], is_slow: bool = False) -> None:
        self.socket = socket.socket()
        if is_slow:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self.socket.connect(address)
        payload = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\n"
        self.socket.sendall(f"{head}Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n".encode() + payload)
        self.socket.setblocking(False)
        self.got = b""

    async def sip(self) -> None:
        """One byte a second."""
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):  # let go
            while data := await loop.sock_recv(self.socket, 1):
                self.got += data
                await asyncio.sleep(1.0)

    async def gulp(self, times: list[float] | None = None) -> bytes:
        """All of it, as fast as it comes."""
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(self.socket, 1 << 16):
            self.got += data
            if times is not None:
                times += [time.perf_counter()] * data.count(b'"content":"')
        self.socket.close()
        return b"".join(CONTENT.findall(self.got))


class Trial:
    def __init__(self, server: RunningServer, num_readers: int, num_tokens: int, num_quick: int) -> None:
        parts = urlsplit(server.url)
        self._server = server
        self._address = (parts.hostname or "", parts.port or 0)
        self._num_quick = num_quick
        message = {"role": "user", "content": "say it"}
        self._body = {"messages": [message], "max_tokens": num_tokens, "temperature": 0, "stream": True}
        self._text = (SAYING.encode() * (num_tokens // len(SAYING) + 1))[:num_tokens]
        self.numbers = Numbers(num_readers)

    async def run(self, patience: float, num_rounds: int) -> Numbers:
        numbers = self.numbers
        await self._quick_p99()  # warm
        fds, pages = self._num_fds(), await self._gauge("kv_cache_usage_ratio")
        for _ in range(num_rounds):
            numbers.quick_before.append(await self._quick_p99())
        drawn, size = await self._gauge("generated_tokens_total"), self._process_bytes()
        readers = [Reader(self._address, self._body, is_slow=True) for _ in range(numbers.num_readers)]
        sips = [asyncio.ensure_future(reader.sip()) for reader in readers]
        numbers.num_paused = await self._settled()
        start = time.monotonic()
        numbers.tokens_drawn = (await self._gauge("generated_tokens_total") - drawn) / len(readers)
        numbers.buffered_bytes = await self._gauge("unsent_bytes") / len(readers)
        numbers.grown_bytes = (self._process_bytes() - size) / len(readers)
        for _ in range(num_rounds):
            numbers.quick_beside.append(await self._quick_p99())
        numbers.num_whole = await self._read_on(readers[:2], sips[:2])
        # A reader hears that it was let go only when it has read what its own kernel holds: so the server is asked.
        while (is_open := await self._gauge("requests_open")) and time.monotonic() - start < 2 * patience:
            await asyncio.sleep(0.5)
        numbers.let_go_seconds = time.monotonic() - start
        numbers.num_let_go = numbers.num_readers - 2 - int(is_open)
        for sip, reader in zip(sips, readers, strict=True):
            sip.cancel()
            reader.socket.close()
        deadline = time.monotonic() + 5
        while numbers.fds_left and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            numbers.fds_left = self._num_fds() - fds
        numbers.pages_left = await self._gauge("kv_cache_usage_ratio") - pages
        return numbers

    async def _quick_p99(self) -> float:
        """The p99 of the time between tokens, over some ordinary readers at once."""
        readers = [Reader(self._address, self._body) for _ in range(self._num_quick)]
        times: list[list[float]] = [[] for _ in readers]
        texts = await asyncio.gather(*(reader.gulp(own) for reader, own in zip(readers, times, strict=True)))
        assert set(texts) == {self._text}, "an ordinary reader got something else"
        gaps = sorted(b - a for own in times for a, b in zip(own, own[1:], strict=False))
        return gaps[int(0.99 * len(gaps))]

    async def _read_on(self, readers: list[Reader], sips: list[asyncio.Task[None]]) -> int:
        """Readers that were slow and are no longer: how many get all of their answer, and the end of it."""
        for sip in sips:
            sip.cancel()
        await asyncio.gather(*sips, return_exceptions=True)
        texts = await asyncio.gather(*(reader.gulp() for reader in readers))
        return sum(text == self._text and b"[DONE]" in reader.got for text, reader in zip(texts, readers, strict=True))

    async def _settled(self) -> int:
        """Wait until all of them are paused; how many are."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while (paused := int(await self._gauge("requests_paused"))) < self.numbers.num_readers:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.5)
        return paused

    async def _gauge(self, name: str) -> float:
        def read() -> float:
            with self._server.client() as client:
                found = re.search(rf"^pagoda_{name}{{[^}}]*}} (\S+)$", client.get("/metrics").text, re.MULTILINE)
            assert found is not None, name
            return float(found[1])

        return await asyncio.to_thread(read)

    def _process_bytes(self) -> int:
        status = Path(f"/proc/{self._server.children()['http']}/status").read_text()
        return 1024 * int(status.partition("VmRSS:")[2].split()[0])

    def _num_fds(self) -> int:
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self._server.children().values())


def measure(num_readers: int, num_tokens: int, patience: float, num_quick: int, num_rounds: int) -> Numbers:
    with tempfile.TemporaryDirectory() as folder:
        model = write_lookup_model(Path(folder) / "lookup.gguf", context=2 * num_tokens, ends=False)
        options = ["--send-buffer-bytes", str(SEND_BUFFER), "--slow-reader-seconds", str(patience)]
        options += ["--max-num-seqs", "64", "--num-threads", "1", "--log-level", "error"]
        with RunningServer(model, *options) as server:
            server.wait_until_ready()
            trial = Trial(server, num_readers, num_tokens, num_quick)
            return asyncio.run(trial.run(patience, num_rounds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds after which a stalled reader is let go")
    parser.add_argument("--quick", type=int, default=4, help="ordinary readers whose tokens are timed")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    numbers = measure(args.readers, args.tokens, args.patience, args.quick, args.rounds)
    verdicts = numbers.verdicts(args.patience)
    for what, found, limit, holds in verdicts:
        print(f"{'PASS' if holds else 'FAIL'}  {what:40} {found:50} goal {limit}")
    return 0 if all(holds for *_, holds in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
