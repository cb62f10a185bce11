"""What a benchmark leaves behind."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from pagoda.core.errors import InvalidRequest


def check_writable(option: str, name: str | None) -> None:
    """Before the work, not after it."""
    if name is None:
        return
    try:
        with Path(name).open("ab"):
            pass
    except OSError as error:
        raise InvalidRequest(option, f"{name} cannot be written: {error.strerror}") from None


def write_json(record: msgspec.Struct, name: str | None) -> None:
    if name is not None:
        Path(name).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
        print(f"wrote {name}", file=sys.stderr)
