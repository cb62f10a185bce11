"""Small model files: the two real GGUF models cut down to their keys, and a safetensors file shaped like MiniLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.weights import small_files
from tests.weights.gguf_surgery import small_copy


@pytest.fixture(scope="session")
def small_smollm2(smollm2_path: Path) -> bytes:
    return small_copy(smollm2_path)


@pytest.fixture(scope="session")
def small_gemma3(gemma3_path: Path) -> bytes:
    return small_copy(gemma3_path)


@pytest.fixture(scope="session")
def small_safetensors() -> bytes:
    return small_files.small_safetensors()
