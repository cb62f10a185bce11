"""An engine in a process of its own: it connects to a socket, says what it is, and turns its loop until nobody listens.

    python -m pagoda.engine.process SOCKET SETTINGS [LOG_LEVEL]

SETTINGS is an `EngineConfig` as JSON. Exit codes: 0 when the other end went away, 1 when the engine could not be built,
70 when it broke in a step.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from pathlib import Path

import msgspec

from pagoda.core.config import EngineConfig
from pagoda.core.errors import EngineError, PagodaError
from pagoda.engine.build import Engine, build_engine
from pagoda.engine.exit_codes import EXIT_BROKEN, EXIT_NOT_BUILT
from pagoda.engine.fingerprint import fingerprint_of
from pagoda.engine.landmarks import reach
from pagoda.engine.ledger import ledger_lines, process_totals
from pagoda.engine.loading import LoadingNews
from pagoda.engine.orphans import die_with_parent
from pagoda.engine.questions import Ask, answer_to
from pagoda.engine.wire import (
    Alive,
    Broken,
    EngineInfo,
    FrameDecoder,
    FromEngine,
    Hello,
    Published,
    Ready,
    Report,
    ToEngine,
    tell,
)
from pagoda.observability.json_log import set_up_logging

logger = logging.getLogger("pagoda.engine")
READ_BYTES = 1 << 18
IDLE_WAIT_SECONDS = 0.5  # only a safety net: a message wakes the loop at once
REPORT_SECONDS = 0.5  # without work it still says that it lives
BEAT_SECONDS = 1.0  # and so it does during a long step


class EngineProcess:
    """The loop on the main thread; another reads the socket into its inbox, a third says that all this lives.

    The loop looks at the socket itself before each step: where the kernels keep every core busy, the thread that reads
    may wait for one while a step is computed for a client that has left.
    """

    def __init__(self, connection: socket.socket, engine: Engine) -> None:
        self._connection = connection
        self._engine = engine
        self._loop = engine.loop
        self._questions: deque[Ask] = deque()
        self._wake = threading.Event()
        self._is_closing = False
        self._last_report = 0.0
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._decoder: FrameDecoder[ToEngine] = FrameDecoder(ToEngine)
        self._step_start: float | None = None
        self._heart = threading.Thread(target=self._beat, name="pagoda-heart", daemon=True)
        self._reader = threading.Thread(target=self._read, name="pagoda-messages", daemon=True)

    def run(self) -> None:
        """Until the other end goes away. An error of the engine is its last word, and is raised."""
        self._reader.start()
        self._heart.start()
        while not self._is_closing:
            while self._questions:
                self._send(answer_to(self._questions.popleft(), self._engine))
            if self._loop.has_work:
                self._step()
            else:
                self._rest()
                if time.monotonic() - self._last_report > REPORT_SECONDS:
                    self._send(Published((), self._report(0.0)))

    def _rest(self) -> None:
        """Until a message comes, unless the time can be used."""
        try:
            if self._loop.use_idle_time():
                return
        except EngineError as error:
            self._send(Broken(str(error)))
            raise
        self._wake.wait(IDLE_WAIT_SECONDS)
        self._wake.clear()

    def _step(self) -> None:
        self._receive()
        start = self._step_start = time.monotonic()
        try:
            updates = self._loop.step()
        except EngineError as error:
            self._send(Broken(str(error)))
            raise
        self._step_start = None
        self._send(Published(tuple(updates), self._report(time.monotonic() - start)))

    def _report(self, step_seconds: float) -> Report:
        counters, scheduler = self._loop.counters, self._loop.scheduler
        self._last_report = time.monotonic()
        return Report(
            time=self._last_report,
            num_steps=counters.num_steps,
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            num_used_pages=tuple(pool.num_used for pool in scheduler.cache.pools),
            num_idle_pages=tuple(pool.num_idle for pool in scheduler.cache.pools),
            num_preemptions=scheduler.board.num_preemptions,
            num_computed_tokens=counters.num_computed_tokens,
            num_drawn_tokens=counters.num_drawn_tokens,
            num_prompt_tokens=counters.num_prompt_tokens,
            num_cached_tokens=counters.num_cached_tokens,
            step_seconds=step_seconds,
            num_paused=scheduler.num_paused,
            num_deferred=len(scheduler.board.waits),
            num_halved_steps=self._loop.executor.num_halved_steps,
        )

    def _send(self, record: FromEngine) -> None:
        with self._sending:
            is_heard = tell(self._connection, record)
        if not is_heard:
            self._is_closing = True

    def _beat(self) -> None:
        while not self._is_closing:
            time.sleep(BEAT_SECONDS)
            start = self._step_start
            if start is not None and (seconds := time.monotonic() - start) > BEAT_SECONDS:
                self._send(Alive(seconds))

    def _read(self) -> None:
        readable = select.poll()
        readable.register(self._connection, select.POLLIN)
        try:
            while not self._is_closing:
                readable.poll()
                self._receive()
                self._wake.set()
        finally:
            self._is_closing = True
            self._wake.set()

    def _receive(self) -> None:
        """What has come, without waiting for more."""
        with self._receiving:
            try:
                data = self._connection.recv(READ_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:  # set only, never taken back: several threads write it
                self._is_closing = True
            for record in self._decoder.feed(data):
                if isinstance(record, Ask):
                    self._questions.append(record)
                else:
                    self._loop.inbox.append(record)


def describe(engine: Engine) -> EngineInfo:
    memory = engine.memory
    return EngineInfo(
        model=engine.config.model,
        model_path=str(engine.checkpoint.path),
        vocab_size=engine.loop.vocab_size,
        max_model_len=engine.loop.max_model_len,
        max_num_seqs=engine.config.num_rows,
        page_size=engine.config.block_size,
        num_pages=memory.num_pages,
        weight_bytes=memory.weight_bytes,
        cache_bytes=memory.cache_bytes,
        kv_cache_type=engine.kv_cache_type,
        compute=engine.backend.compute,
        fingerprint=fingerprint_of(engine),
        planned_bytes=memory.lines,
        allocated_bytes=engine.loop.executor.allocated_bytes(),
        process_bytes=process_bytes(engine),
    )


def process_bytes(engine: Engine) -> dict[str, int]:
    """What each process should come to; on a CUDA device the ledger is about the device's memory."""
    if engine.config.device == "cuda":
        return {}
    return process_totals(ledger_lines(engine.config, engine.model, engine.memory, engine.kv_cache_type))


def main(arguments: list[str]) -> int:
    path, settings, *level = arguments
    die_with_parent()
    set_up_logging(level[0] if level else "info")  # type: ignore[arg-type]
    # Whoever started it ends it: a Ctrl-C in the terminal goes to all processes at once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # says where it hangs
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        tell(connection, Hello(os.getpid()))
        reach(Path(path), "connected")
        try:
            with LoadingNews(connection) as news:
                engine = build_engine(msgspec.json.decode(settings, type=EngineConfig), news.progress)
        except PagodaError as error:
            tell(connection, Broken(str(error)))
            return EXIT_NOT_BUILT
        try:
            if tell(connection, Ready(describe(engine))):
                reach(Path(path), "ready")
                EngineProcess(connection, engine).run()
        except EngineError as error:
            logger.error("%s", error, exc_info=error)
            return EXIT_BROKEN
        finally:
            engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
