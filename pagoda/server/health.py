"""Whether the server lives, whether it can answer, and which one it is."""

from __future__ import annotations

from pagoda.core.version import own_version
from pagoda.server.exchange import Exchange
from pagoda.server.service import Service


async def health(exchange: Exchange, service: Service) -> None:
    """This process lives. It says so while the engine loads, too."""
    await exchange.json({"status": "ok"})


async def ready(exchange: Exchange, service: Service) -> None:
    state = service.engine.state
    if service.admission.is_draining:
        content, is_ready = {"status": "draining"}, False
    elif state.is_ready:
        content, is_ready = {"status": "ready"}, True
    else:
        content = {"status": "loading", "loaded": state.num_loaded, "of": state.num_to_load}  # type: ignore[dict-item]
        is_ready = False
    await exchange.json(content, 200 if is_ready else 503, [] if is_ready else [(b"retry-after", b"1")])


async def version(exchange: Exchange, service: Service) -> None:
    await exchange.json({"version": own_version()})
