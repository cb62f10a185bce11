"""A supervisor whose two processes are a few lines each: they live and die as a test wants them to.

    python -m tests.server.lone_supervisor ENGINE LOG

The HTTP process writes what it is told to the log.
"""

from __future__ import annotations

import subprocess
import sys

from pagoda.core.config import EngineConfig
from pagoda.server import supervisor
from pagoda.server.config import ProcessSettings, ServerConfig

HTTP = """
import pathlib, signal, sys
def note(text):
    with open(sys.argv[2], "a") as log:
        print(text, file=log, flush=True)
def no_engine(*_):
    note("no engine")
    sys.exit(0)
signal.signal(signal.SIGUSR1, no_engine)
signal.signal(signal.SIGTERM, lambda *_: note("drain"))
pathlib.Path(sys.argv[1]).touch()
while True:
    signal.pause()
"""
REACH = "import pathlib, sys, time; from pagoda.engine.landmarks import reach; path = pathlib.Path(sys.argv[1]);"
ENGINES = {
    "never connects": "import time; time.sleep(60)",
    "is never ready": f"{REACH} reach(path, 'connected'); time.sleep(0.3); sys.exit(7)",
    "is ready": f"{REACH} reach(path, 'connected'); reach(path, 'ready'); time.sleep(0.3); sys.exit(7)",
    "dies later": f"{REACH} reach(path, 'connected'); reach(path, 'ready'); time.sleep(2); sys.exit(7)",
}


class LoneSupervisor(supervisor.Supervisor):
    def __init__(self, engine: str, log: str) -> None:
        super().__init__(ProcessSettings(server=ServerConfig(), engine=EngineConfig(model="none"), model_path="none"))
        self._scripts = {"pagoda.server.process": HTTP, "pagoda.engine.process": ENGINES[engine]}
        self._log = log

    def _start(self, module: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        if module == "pagoda.engine.process":
            with open(self._log, "a") as log:
                print("engine", file=log)
        return super()._start_command([sys.executable, "-c", self._scripts[module], str(self._socket), self._log])


if __name__ == "__main__":
    supervisor.CONNECT_SECONDS, supervisor.DEATH_SECONDS, supervisor.LOOK_SECONDS = 0.3, 0.1, 0.05
    sys.exit(LoneSupervisor(*sys.argv[1:]).run())
