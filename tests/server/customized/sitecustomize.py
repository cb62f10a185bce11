"""Python runs this first in each process of a `PacedServer`: the engine's then rests before each step."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENGINE = "pagoda.engine.process"


def rest_before(step: Callable[..., Any], pace: Path) -> Callable[..., Any]:
    """The step, once the seconds have passed that are in the file."""

    def rested(*arguments: Any) -> Any:
        time.sleep(float(pace.read_text()))
        return step(*arguments)

    return rested


if ENGINE in sys.orig_argv:
    from pagoda.engine.loop import EngineLoop

    setattr(EngineLoop, "step", rest_before(EngineLoop.step, Path(os.environ["PACE_FILE"])))  # noqa: B010 (mypy)
