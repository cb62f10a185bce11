"""Lines about single requests, from inside the engine. They are written only where debugging was asked for."""

from __future__ import annotations

import logging
from typing import Any

from pagoda.core.request import Request

logger = logging.getLogger("pagoda.engine.requests")


def note(message: str, request: Request, **fields: Any) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        known_as = {"request_id": request.label or request.request_id, "engine_id": request.request_id}
        logger.debug(message, extra={"fields": known_as | fields})
