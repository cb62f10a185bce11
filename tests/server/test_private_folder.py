"""The folder of a server, and what is done with those that killed supervisors left behind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pagoda.server.private_folder import LOCK, PREFIX, PrivateFolder, remove_leftovers


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_nobody_else_can_enter_it_and_it_goes_with_its_owner(place: Path):
    folder = PrivateFolder()
    assert folder.path.parent == place and stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert not os.get_inheritable(folder._lock)
    (folder.path / "engine").touch()
    folder.close()
    assert not list(place.iterdir())


def leave_behind(place: Path) -> Path:
    """A folder whose owner was killed."""
    code = (
        "import os, signal, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from pagoda.server.private_folder import PrivateFolder\n"
        "folder = PrivateFolder(); print(folder.path); (folder.path / 'engine').touch(); sys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert left.parent == place and (left / "engine").exists(), done.stderr
    return left


def test_the_next_one_removes_what_a_killed_one_left(place: Path):
    alive = PrivateFolder()
    left = leave_behind(place)
    assert alive.path.exists(), "its owner lives"
    other = PrivateFolder()
    assert not left.exists() and alive.path.exists() and other.path.exists()
    alive.close()
    other.close()


def test_what_only_looks_like_one_is_left_alone(place: Path):
    left = leave_behind(place)
    other_name = place / "pagoda-models-abcdefgh"
    (place / "target").mkdir()
    (place / "target" / LOCK).touch()
    linked, no_lock, a_file = (place / f"{PREFIX}{letter * 8}" for letter in "abc")
    other_name.mkdir()
    (other_name / LOCK).touch()
    linked.symlink_to(place / "target")
    no_lock.mkdir()
    a_file.touch()
    linked_lock = place / f"{PREFIX}dddddddd"
    linked_lock.mkdir()
    (linked_lock / LOCK).symlink_to(place / "target" / LOCK)
    remove_leftovers(place)
    assert not left.exists()
    for path in (other_name, linked, no_lock, a_file, linked_lock, place / "target" / LOCK):
        assert path.exists(), path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_somebody_elses_is_left_alone(place: Path):
    left = leave_behind(place)
    os.chown(left, 65534, 65534)
    remove_leftovers(place)
    assert left.exists()


def test_a_place_that_cannot_be_read_is_no_reason_to_fail(place: Path):
    remove_leftovers(place / "nothing")
