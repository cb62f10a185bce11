"""Environment variables: precedence, defaults, and refusal of values that cannot be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.core.environment import child_environment, pagoda_home
from pagoda.core.errors import InvalidRequest


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAGODA_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")


def test_pagoda_home_goes_before_xdg_and_xdg_before_home(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pagoda_home() == Path("/home/somebody/.local/share/pagoda")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert pagoda_home() == Path("/data/pagoda")
    monkeypatch.setenv("PAGODA_HOME", "/models")
    assert pagoda_home() == Path("/models")
    monkeypatch.setenv("PAGODA_HOME", "")
    assert pagoda_home() == Path("/data/pagoda")


@pytest.mark.parametrize("name", ["PAGODA_HOME", "XDG_DATA_HOME"])
def test_bad_values_are_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(name, "relative/folder")
    with pytest.raises(InvalidRequest, match=f"{name}: must be an absolute path, not 'relative/folder'"):
        pagoda_home()
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(name, str(tmp_path / "file"))
    with pytest.raises(InvalidRequest, match=f"{name}: .* is not a folder"):
        pagoda_home()


def test_a_child_sees_this_environment_with_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    child = child_environment(TMPDIR="/elsewhere")
    assert (child["KEPT"], child["TMPDIR"]) == ("kept", "/elsewhere")
