"""Which version this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    try:
        return version("pagoda")
    except PackageNotFoundError:
        return "unknown"  # run from a source folder without being installed
