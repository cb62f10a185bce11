"""How an engine process ends."""

from __future__ import annotations

EXIT_NOT_BUILT = 1  # the model or a setting is wrong: starting again would not help
EXIT_BROKEN = 70
