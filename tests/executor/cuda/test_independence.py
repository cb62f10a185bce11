"""The deterministic mode: the same logits and tokens, bit for bit, alone, in any batch and chunks, cached or preempted.

On a GPU the tensor cores are tried, with 64 requests. The interpreter multiplies with NumPy, whose sums hang on shapes
in the last bits of a float64: what it can show is that every sum is put together in one order.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
import torch

from pagoda import LLM, SamplingParams
from pagoda.executor.cuda import build
from pagoda.kernels.cuda import deterministic, fixed_attention
from tests.engine.conftest import save_tokenizer
from tests.engine.independence import ALONE, VARIANTS, Answers, Case, Variant, mixed_sampling, run
from tests.executor.cuda.logit_book import LogitBook, WatchedExecutor
from tests.kernels.cpu.families import FAMILIES, make_family
from tests.models.tiny import VOCAB_SIZE

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MAX_LEN = 128
TOGETHER = Variant(3, 9, caching=False)
OTHERS = [Variant(1, 23), Variant(3, 64, is_reversed=True)]
PREEMPTED = Variant(3, 32, preempts=True)


@pytest.fixture(autouse=True)
def builds_on_the_device_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "CudaBuilder", partial(build.CudaBuilder, device=DEVICE))
    for module in (deterministic, fixed_attention):  # so that short contexts have several splits
        monkeypatch.setattr(module, "SPLIT_LEN", 64)


@pytest.fixture
def make_folder(tmp_path: Path) -> Path:
    save_tokenizer(tmp_path)
    return tmp_path


def answer(folder: Path, cases: list[Case], variant: Variant, book: LogitBook, **settings: object) -> Answers:
    common = {"device": "cuda", "dtype": "float32", "deterministic": True, "max_model_len": MAX_LEN}
    with LLM(folder, **common | variant.settings() | settings) as llm:
        loop = llm.engine.loop
        loop.executor = WatchedExecutor(loop.executor, book)
        return run(llm, cases, variant)


def few_cases() -> list[Case]:
    """A beginning in common, and every way to draw: greedy, on the device, on the host."""
    rng = random.Random(3)
    stem = [rng.randrange(VOCAB_SIZE) for _ in range(17)]
    drawn = {"temperature": 0.8, "seed": 5}
    ways = [{"temperature": 0}, {**drawn, "top_p": 0.9}, {**drawn, "repetition_penalty": 1.3}]
    return [
        Case(
            (*stem, *(rng.randrange(VOCAB_SIZE) for _ in range(count))),
            SamplingParams(max_tokens=4, ignore_eos=True, **way),  # type: ignore[arg-type]
        )
        for count, way in zip((2, 6, 49), ways, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES if DEVICE == "cuda" else ["qwen3"])  # interpreted, each takes minutes
def test_every_family(family: str, make_folder: Path) -> None:
    make_family(family, make_folder)
    cases, book = few_cases(), LogitBook()
    expected = answer(make_folder, cases, ALONE, book)
    for variant in (TOGETHER, *(OTHERS if DEVICE == "cuda" else ())):
        assert answer(make_folder, cases, variant, book) == expected, str(variant)
    assert answer(make_folder, cases, PREEMPTED, book, num_pages=5, max_model_len=80) == expected
    assert book.num_repeated >= 2 * sum(len(tokens) for samples in expected for tokens in samples)
    assert not book.differing


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_without_the_mode_bits_do_differ(make_folder: Path) -> None:
    make_family("qwen3", make_folder)
    cases, book = few_cases(), LogitBook()
    for variant in (ALONE, TOGETHER):
        answer(make_folder, cases, variant, book, deterministic=False)
    assert book.differing


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "settings", [{"dtype": "float32"}, {"dtype": "bfloat16"}, {"dtype": "bfloat16", "quantization": "fp8"}], ids=str
)
def test_64_mixed_requests(family: str, settings: dict[str, str], make_folder: Path) -> None:
    make_family(family, make_folder)
    rng = random.Random(64)
    cases, book = [], LogitBook()
    for _ in range(64):
        stem = [rng.randrange(4, 8)] * rng.choice([0, 0, 20, 48])
        prompt = stem + [rng.randrange(4, VOCAB_SIZE) for _ in range(rng.randrange(1, 60))]
        cases.append(Case(tuple(prompt), mixed_sampling(rng, most_tokens=12)))
    expected = answer(make_folder, cases, ALONE, book, **settings)
    for variant in VARIANTS:
        few = {"num_pages": 40} if variant.preempts else {}
        assert answer(make_folder, cases, variant, book, **settings | few) == expected, str(variant)
    assert not book.differing
