"""The source package of llama-cpp-python, whose vocabularies and templates come with the results they must give."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pagoda.core.environment import pagoda_home
from pagoda.text import Tokenizer
from pagoda.weights.gguf import GGUFFile
from pagoda.weights.sources.pip_download import pip_command

VERSION = "0.3.36"
ARCHIVE = f"llama_cpp_python-{VERSION}.tar.gz"
MODELS = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/models/"


@pytest.fixture(scope="session")
def llama_cpp_models() -> Path:
    """The folder `models` of llama.cpp, downloaded by pip with the user's own settings and unpacked once.

    pip reads the metadata of a source package before it saves it, with a build back end that it fetches for that;
    nothing is compiled.
    """
    cache = pagoda_home() / "test-cache"
    folder = cache / MODELS
    if not folder.is_dir():
        archive = _download(cache)
        with tarfile.open(archive) as package:
            members = [member for member in package.getmembers() if member.name.startswith(MODELS)]
            unpacked = cache / "unpacking"
            package.extractall(unpacked, members, filter="data")
        folder.parent.mkdir(parents=True, exist_ok=True)
        (unpacked / MODELS).rename(folder)
    return folder


def _download(cache: Path) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / ARCHIVE
    if not archive.is_file():
        options = [
            "--no-deps",
            "--no-binary",
            "llama-cpp-python",
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
        ]
        command = [*pip_command(), "download", *options, "--dest", str(cache), f"llama-cpp-python=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode != 0 or not archive.is_file():
            pytest.skip(f"pip cannot download the source package of llama-cpp-python {VERSION} (is there a network?)")
    return archive


@pytest.fixture(scope="session")
def gguf_tokenizer() -> Callable[[Path], Tokenizer]:
    known: dict[Path, Tokenizer] = {}

    def load(path: Path) -> Tokenizer:
        if path not in known:
            with GGUFFile.open(path) as file:
                known[path] = Tokenizer.from_gguf(file.metadata)
        return known[path]

    return load


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_path: Path, gguf_tokenizer: Callable[[Path], Tokenizer]) -> Tokenizer:
    return gguf_tokenizer(smollm2_path)


@pytest.fixture(scope="session")
def gemma3_tokenizer(gemma3_path: Path, gguf_tokenizer: Callable[[Path], Tokenizer]) -> Tokenizer:
    return gguf_tokenizer(gemma3_path)
