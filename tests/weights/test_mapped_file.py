"""A mapped file hands out read-only views that outlive it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.core.errors import ModelFileError, ModelNotFound
from pagoda.weights.mapped_file import MappedFile


def test_views_are_read_only_and_outlive_the_map(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    with MappedFile.open(tmp_path / "file") as mapped:
        view = mapped.view(2, 3)
    assert (mapped.name, mapped.size, view.tobytes()) == ("file", 6, b"cde")
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_messages_hold_the_name_and_not_the_path(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, kind in {"missing": ModelNotFound, "loop": ModelFileError, "x" * 300: ModelFileError}.items():
        with pytest.raises(kind) as caught:
            MappedFile.open(tmp_path / name)
        assert str(caught.value).startswith(f"{name}: ")
        assert str(tmp_path) not in str(caught.value)
