"""The engine's state for however many dashboards look: asked for seldom, and once for all of them."""

from __future__ import annotations

import asyncio
import time

from pagoda.core.errors import EngineError
from pagoda.engine.questions import StateQuestion
from pagoda.engine.remote import RemoteEngine
from pagoda.engine.snapshot import Snapshot

FRESH_SECONDS = 0.25
PATIENCE_SECONDS = 2.0


class SnapshotKeeper:
    """Asks the engine at most once in `FRESH_SECONDS`, and once for all who ask at the same time."""

    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine
        self._asking: asyncio.Task[None] | None = None
        self._last: Snapshot | None = None
        self._taken = float("-inf")

    async def latest(self) -> tuple[Snapshot | None, float]:
        """The last snapshot and its age; an engine deep in a long step may not give a newer one in time."""
        if time.monotonic() - self._taken >= FRESH_SECONDS:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._ask())
            await asyncio.wait((self._asking,), timeout=PATIENCE_SECONDS)
        return self._last, time.monotonic() - self._taken

    async def _ask(self) -> None:
        try:
            content = await self._engine.ask(StateQuestion())
        except EngineError:  # there is none
            content = None
        self._last = content if isinstance(content, Snapshot) else None
        self._taken = time.monotonic()
