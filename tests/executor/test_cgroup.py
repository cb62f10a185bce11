"""Limits of containers, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.executor import memory
from pagoda.executor.cgroup import cgroup_available_bytes
from pagoda.executor.memory import available_bytes


def group(folder: Path, limit: str, used: int, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\nactive_file {cached}\ninactive_file 1\nshmem 7\n")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "cgroup"
    path.write_text("0::/system.slice/pagoda.service\n")
    return path


def test_the_least_of_all_groups_counts(tmp_path: Path, own: Path):
    root = tmp_path / "root"
    group(root / "system.slice/pagoda.service", "1000", 400, cached=99)
    assert cgroup_available_bytes(root, own) == 700
    group(root / "system.slice", "500", 300)
    assert cgroup_available_bytes(root, own) == 201
    group(root / "system.slice/pagoda.service", "100", 400)
    assert cgroup_available_bytes(root, own) == 0


def test_without_a_limit_there_is_none(tmp_path: Path, own: Path):
    root = tmp_path / "root"
    assert cgroup_available_bytes(root, own) is None
    group(root / "system.slice/pagoda.service", "max", 400)
    assert cgroup_available_bytes(root, own) is None
    own.write_text("3:memory:/x\n")
    assert cgroup_available_bytes(root, own) is None
    assert cgroup_available_bytes(root, tmp_path / "missing") is None


def test_a_container_gets_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "cgroup_available_bytes", lambda: 12345)
    assert available_bytes() == 12345
    monkeypatch.setattr(memory, "cgroup_available_bytes", lambda: 1 << 60)
    assert available_bytes() < 1 << 60
