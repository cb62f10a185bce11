"""The hub as a source: what is taken and what never is, resume by byte range, and every failure in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagoda.core.errors import InvalidRequest, PullError
from pagoda.weights.sources import range_download
from pagoda.weights.sources.base import PullProgress, Workspace, no_progress
from pagoda.weights.sources.hugging_face import HubSource
from tests.fakes.hub_server import FakeHub
from tests.fakes.package_index import random_bytes, sha256

pytest.importorskip("huggingface_hub")

WEIGHTS = random_bytes(3_500_000, seed=1)
FOLDER = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": random_bytes(9000, seed=2),
    "model-00001-of-00002.safetensors": WEIGHTS,
    "model-00002-of-00002.safetensors": random_bytes(5000, seed=3),
    "model.safetensors.index.json": b"{}",
}
UNWANTED = {
    "pytorch_model.bin": b"pickle",
    "model.pt": b"pickle",
    "modeling_tiny.py": b"print('code')",
    "consolidated.safetensors": b"the same again",
    "original/model.safetensors": b"the same again",
    "../escape.safetensors": b"outside",
    "README.md": b"words",
}
LARGE = "model-00001-of-00002.safetensors"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(range_download.time, "sleep", lambda seconds: None)
    with FakeHub(files={**FOLDER, **UNWANTED}).serve() as hub:
        yield hub


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "downloads", tmp_path / "files")
    workspace.downloads.mkdir()
    workspace.files.mkdir()
    return workspace


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def ranges_of(hub: FakeHub, name: str) -> list[str | None]:
    return [requested for file, requested in hub.requests if file == name]


def test_a_folder_is_safetensors_tokenizer_and_config_alone(hub: FakeHub, workspace: Workspace) -> None:
    fetched = HubSource(hub.repository, endpoint=hub.address).fetch(workspace, no_progress)
    assert contents(workspace.files) == FOLDER
    assert {file.name: file.sha256 for file in fetched.files} == {name: sha256(data) for name, data in FOLDER.items()}
    assert (fetched.model, fetched.licence) == (".", "mit")
    assert fetched.origin == f"hf:{hub.repository}@{hub.revision}"
    assert {name for name, _ in hub.requests} == set(FOLDER)


def test_one_gguf_file_is_taken_by_name(hub: FakeHub, workspace: Workspace) -> None:
    hub.files = {"sub/tiny-q8.gguf": WEIGHTS, "sub/tiny-q4.gguf": b"other"}
    fetched = HubSource(hub.repository, "sub/tiny-q8.gguf", hub.address).fetch(workspace, no_progress)
    assert contents(workspace.files) == {"model.gguf": WEIGHTS}
    assert fetched.model == "model.gguf"
    assert fetched.origin.endswith(":sub/tiny-q8.gguf")


def test_a_cut_connection_is_continued_by_range(hub: FakeHub, workspace: Workspace) -> None:
    hub.cuts[LARGE] = [1_000_000, 1_200_000]
    HubSource(hub.repository, endpoint=hub.address).fetch(workspace, no_progress)
    assert (workspace.files / LARGE).read_bytes() == WEIGHTS
    assert ranges_of(hub, LARGE) == [None, "bytes=1000000-", "bytes=2200000-"]


def test_the_next_pull_continues_where_this_one_died(hub: FakeHub, workspace: Workspace) -> None:
    class Killed(BaseException):
        pass

    def die(progress: PullProgress) -> None:
        if progress.step.endswith(LARGE) and progress.num_done >= 1_000_000:
            raise Killed

    source = HubSource(hub.repository, endpoint=hub.address)
    with pytest.raises(Killed):
        source.fetch(workspace, die)
    (part,) = workspace.downloads.iterdir()
    num_kept = part.stat().st_size
    assert 0 < num_kept < len(WEIGHTS)
    hub.requests.clear()
    source.fetch(workspace, no_progress)
    assert contents(workspace.files) == FOLDER
    assert ranges_of(hub, LARGE) == [f"bytes={num_kept}-"]
    assert ranges_of(hub, "tokenizer.json") == []  # complete since the first pull
    assert contents(workspace.downloads) == {}


def test_a_server_without_ranges_starts_over(hub: FakeHub, workspace: Workspace) -> None:
    hub.honours_ranges = False
    hub.cuts[LARGE] = [2_000_000]
    HubSource(hub.repository, endpoint=hub.address).fetch(workspace, no_progress)
    assert (workspace.files / LARGE).read_bytes() == WEIGHTS


def test_a_connection_that_yields_nothing_is_given_up(hub: FakeHub, workspace: Workspace) -> None:
    hub.cuts[LARGE] = [1_000_000, *[0] * range_download.NUM_FRUITLESS_TRIES]
    with pytest.raises(PullError, match="broke off at byte 1000000: .*; pull again to go on"):
        HubSource(hub.repository, endpoint=hub.address).fetch(workspace, no_progress)
    (part,) = workspace.downloads.iterdir()
    assert part.read_bytes() == WEIGHTS[:1_000_000]


@pytest.mark.parametrize("name", [LARGE, "config.json"])
def test_a_damaged_file_is_removed(hub: FakeHub, workspace: Workspace, name: str) -> None:
    damaged = bytearray(FOLDER[name])
    damaged[5] ^= 1
    hub.served[name] = bytes(damaged)
    with pytest.raises(PullError, match=f"{name} .* arrived damaged and was removed"):
        HubSource(hub.repository, endpoint=hub.address).fetch(workspace, no_progress)
    assert name not in contents(workspace.files)
    assert contents(workspace.downloads) == {}


def test_a_file_longer_than_listed_is_refused(hub: FakeHub, workspace: Workspace) -> None:
    hub.served[LARGE] = WEIGHTS + bytes(2_000_000)
    with pytest.raises(PullError, match="is longer than the 3500000 bytes"):
        HubSource(hub.repository, endpoint=hub.address).fetch(workspace, no_progress)


def test_a_new_revision_replaces_what_changed(hub: FakeHub, workspace: Workspace) -> None:
    source = HubSource(hub.repository, endpoint=hub.address)
    source.fetch(workspace, no_progress)
    hub.revision = "f" * 40
    hub.files = {**FOLDER, "config.json": b'{"model_type": "qwen3"}'}
    del hub.files["tokenizer.json"]
    hub.requests.clear()
    source.fetch(workspace, no_progress)
    assert contents(workspace.files) == hub.files
    assert [name for name, _ in hub.requests] == ["config.json"]


@pytest.mark.parametrize(
    ("files", "file", "message"),
    [
        ({"a.gguf": b"x", "b.gguf": b"y"}, None, "holds GGUF files; name one: hf:owner/tiny:a.gguf"),
        ({"a.gguf": b"x"}, "c.gguf", "has no file c.gguf; it has: a.gguf"),
        ({"pytorch_model.bin": b"x"}, None, "holds neither .safetensors nor .gguf files"),
    ],
)
def test_what_is_not_there_is_told(
    hub: FakeHub, workspace: Workspace, files: dict[str, bytes], file: str | None, message: str
) -> None:
    hub.files = files
    with pytest.raises(PullError, match=message):
        HubSource(hub.repository, file, hub.address).fetch(workspace, no_progress)


def test_failures_are_one_line(hub: FakeHub, workspace: Workspace) -> None:
    cases = [
        (HubSource("owner/other", endpoint=hub.address), "has no model owner/other"),
        (HubSource("owner/tiny", endpoint="http://127.0.0.1:9"), "cannot reach http://127.0.0.1:9 .*check the network"),
    ]
    for source, message in cases:
        with pytest.raises(PullError, match=message) as caught:
            source.fetch(workspace, no_progress)
        assert "\n" not in str(caught.value)
    hub.status = 500
    with pytest.raises(PullError, match="gave no listing of owner/tiny"):
        HubSource(hub.repository, endpoint=hub.address).fetch(workspace, no_progress)


def test_names() -> None:
    assert HubSource.parse("hf:owner/name") == HubSource("owner/name")
    assert HubSource.parse("hf:owner/name:sub/file.gguf") == HubSource("owner/name", "sub/file.gguf")
    for name in ("hf:", "hf:name", "hf:a/b/c", "hf:a/b:", "hf:a/b:model.bin", "hf:a/b:x.safetensors"):
        with pytest.raises(InvalidRequest, match="model: "):
            HubSource.parse(name)


def test_without_huggingface_hub_the_fix_is_named(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("huggingface_hub", "httpx2"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(PullError, match="install it with: pip install"):
                HubSource("owner/tiny").fetch(workspace, no_progress)
