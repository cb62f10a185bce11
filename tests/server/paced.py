"""A server whose engine takes its time: what a test wants to meet under way is under way, however fast the machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.running import RunningServer

CUSTOMIZED = Path(__file__).with_name("customized")
ROOT = Path(__file__).parents[2]


class PacedServer(RunningServer):
    """At full speed until told otherwise. Its processes are the real ones, but for a rest before each step."""

    def __init__(self, model: Path | str, *options: str, environment: dict[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._pace = Path(self._folder.name) / "pace"
        self._set_pace(0)
        path = os.pathsep.join(map(str, (CUSTOMIZED, ROOT, *filter(None, [os.environ.get("PYTHONPATH")]))))
        more = {"PYTHONPATH": path, "PACE_FILE": str(self._pace)}
        super().__init__(model, *options, environment={**(environment or {}), **more})

    @contextmanager
    def at_pace(self, seconds: float) -> Iterator[None]:
        """Each step only after so many seconds."""
        self._set_pace(seconds)
        try:
            yield
        finally:
            self._set_pace(0)

    def stop(self) -> int:
        code = super().stop()
        self._folder.cleanup()
        return code

    def _set_pace(self, seconds: float) -> None:
        new = self._pace.with_name("next")
        new.write_text(str(seconds))
        new.replace(self._pace)  # nobody reads half of it
