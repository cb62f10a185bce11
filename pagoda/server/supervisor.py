"""The parent of the HTTP and the engine process: starts them, starts the engine again when it dies, ends them.

    python -m pagoda.server.supervisor SETTINGS

SETTINGS is a `ProcessSettings` as JSON. This process stays as long as the server and computes nothing, so it imports
little.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from pagoda.core.environment import child_environment
from pagoda.engine.exit_codes import EXIT_NOT_BUILT
from pagoda.engine.landmarks import forget, has_reached
from pagoda.server.config import NO_ENGINE, ProcessSettings
from pagoda.server.private_folder import PrivateFolder

# An engine that dies so often in so short a time will not get better, nor do so many in a row that were never ready.
MOST_DEATHS, DEATH_SECONDS = 3, 60.0
CONNECT_SECONDS = 60.0  # until then it has only imported itself
LOOK_SECONDS = 1.0
KILL_SECONDS = 1.0
LAST_WORDS_SECONDS = 5.0
SOCKET_SECONDS = 60.0
EXIT_GAVE_UP = 1
ASKED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}  # to stop
WATCHED = {signal.SIGCHLD, *ASKED}


class Supervisor:
    def __init__(self, settings: ProcessSettings) -> None:
        self._folder = PrivateFolder()
        socket = str(self._folder.path / "engine")
        self._settings = msgspec.structs.replace(settings, engine_socket=socket, supervisor_pid=os.getpid())
        self._http: subprocess.Popen[bytes] | None = None
        self._engine: subprocess.Popen[bytes] | None = None
        self._engine_start = 0.0
        self._deaths: list[float] = []
        self._num_never_ready = 0  # engines in a row
        self._num_signals = 0

    def run(self) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # they are waited for, and children start with them open
        try:
            self._http = self._start("pagoda.server.process", [msgspec.json.encode(self._settings).decode()])
            if not self._wait_for_socket():
                return self._http.wait()
            self._engine = self._start_engine()
            return self._watch()
        finally:
            self._end_all()
            self._folder.close()

    def _watch(self) -> int:
        assert self._http is not None
        while True:
            if _is_asked(WATCHED, LOOK_SECONDS):
                self._pass_on()
            code = self._http.poll()
            if code is not None:
                return code if code >= 0 else EXIT_GAVE_UP
            if self._engine is not None and self._engine.poll() is not None and not self._restart():
                return self._give_up()
            self._end_if_lost()

    def _pass_on(self) -> None:
        """The first signal drains, the second ends at once."""
        assert self._http is not None
        self._num_signals += 1
        self._http.send_signal(signal.SIGTERM if self._num_signals == 1 else signal.SIGKILL)

    def _end_if_lost(self) -> None:
        """From the connection on the HTTP process sees whether an engine hangs; before, nobody else does."""
        is_late = time.monotonic() - self._engine_start > CONNECT_SECONDS
        if self._engine is not None and is_late and not has_reached(self._socket, "connected"):
            why = f"did not connect within {CONNECT_SECONDS:g} s"
            print(f"pagoda: the engine process {why}", file=sys.stderr, flush=True)
            self._engine.kill()
            self._engine.wait()

    def _restart(self) -> bool:
        assert self._engine is not None and self._http is not None
        code = self._engine.returncode
        if self._num_signals:
            if code:  # it did not end because all of it ends: whoever waits for the next one need not
                self._http.send_signal(NO_ENGINE)
            self._engine = None
            return True
        now = time.monotonic()
        self._num_never_ready = 0 if has_reached(self._socket, "ready") else self._num_never_ready + 1
        self._deaths = [death for death in self._deaths if death > now - DEATH_SECONDS] + [now]
        print(f"pagoda: the engine process ended with {code}", file=sys.stderr, flush=True)
        if code == EXIT_NOT_BUILT or max(len(self._deaths), self._num_never_ready) >= MOST_DEATHS:
            print("pagoda: it is not started again", file=sys.stderr, flush=True)
            return False
        self._engine = self._start_engine()
        return True

    def _give_up(self) -> int:
        """Whoever waits for an engine is told that none will come, before the server ends."""
        assert self._http is not None
        self._http.send_signal(NO_ENGINE)
        with suppress(subprocess.TimeoutExpired):
            self._http.wait(LAST_WORDS_SECONDS)
        return EXIT_GAVE_UP

    @property
    def _socket(self) -> Path:
        return Path(self._settings.engine_socket)

    def _start_engine(self) -> subprocess.Popen[bytes]:
        forget(self._socket)
        self._engine_start = time.monotonic()
        settings = msgspec.json.encode(msgspec.structs.replace(self._settings.engine, model=self._settings.model_path))
        level = self._settings.server.log.log_level
        return self._start("pagoda.engine.process", [self._settings.engine_socket, settings.decode(), level])

    def _start(self, module: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        return self._start_command([sys.executable, "-m", module, *arguments])

    def _start_command(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=child_environment(),
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED),
        )

    def _wait_for_socket(self) -> bool:
        assert self._http is not None
        deadline = time.monotonic() + SOCKET_SECONDS
        while time.monotonic() < deadline and self._http.poll() is None:
            if self._socket.exists():
                return True
            if _is_asked(ASKED, 0.01):
                self._pass_on()
        return False

    def _end_all(self) -> None:
        for child in (self._http, self._engine):
            if child is None or child.poll() is not None:
                continue
            try:
                child.wait(KILL_SECONDS / 2)  # an engine whose server is gone leaves by itself
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _is_asked(watched: set[signal.Signals], seconds: float) -> bool:
    """Wait for one of the signals; whether it asks to stop.

    After being stopped itself beyond that time, a process gets a record of no signal from Python, not None.
    """
    found = signal.sigtimedwait(watched, seconds)
    return found is not None and found.si_signo in ASKED


if __name__ == "__main__":
    sys.exit(Supervisor(msgspec.json.decode(sys.argv[1], type=ProcessSettings)).run())
