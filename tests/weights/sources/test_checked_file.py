"""Checked files: the right bytes under their name, or nothing under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.core.errors import PullError
from pagoda.weights.manifest import StoredFile
from pagoda.weights.sources.checked_file import hash_file, is_intact, remove_all_but, require_space, write_checked
from tests.fakes.package_index import random_bytes, sha256

CONTENT = random_bytes(2_500_000)
EXPECTED = StoredFile("model.gguf", len(CONTENT), sha256(CONTENT))


def test_the_right_bytes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_checked(path, [CONTENT[:7], CONTENT[7:]], EXPECTED)
    assert path.read_bytes() == CONTENT
    assert is_intact(path, EXPECTED)
    counts: list[int] = []
    assert hash_file(path, counts.append) == EXPECTED.sha256
    assert counts == sorted(counts) and counts[-1] == len(CONTENT)


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])])
def test_wrong_bytes_leave_the_old_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"old")
    with pytest.raises(PullError, match="model.gguf: expected sha256"):
        write_checked(path, [content], EXPECTED)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.gguf"]
    assert path.read_bytes() == b"old"


def test_a_link_is_not_intact(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(CONTENT)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert is_intact(tmp_path / "real", EXPECTED)
    assert not is_intact(tmp_path / "link", EXPECTED)
    assert not is_intact(tmp_path / "absent", EXPECTED)


def test_sweeping_follows_no_link(tmp_path: Path) -> None:
    outside, swept = tmp_path / "outside", tmp_path / "swept"
    outside.mkdir()
    (outside / "file").write_bytes(b"")
    (swept / "folder").mkdir(parents=True)
    (swept / "folder" / "file").write_bytes(b"")
    (swept / "link").symlink_to(outside)
    (swept / "kept").write_bytes(b"")
    remove_all_but(swept, {"kept"})
    assert [entry.name for entry in swept.iterdir()] == ["kept"]
    assert (outside / "file").exists()


def test_room(tmp_path: Path) -> None:
    require_space(tmp_path, 1)
    with pytest.raises(PullError, match="MB are needed in"):
        require_space(tmp_path, 10**18)
