"""64 mixed requests give the same tokens alone, in any batch, in any chunks, cached or not, preempted or not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pagoda import LLM
from tests.engine.conftest import KERNELS, VOCAB_SIZE, MakeLLM
from tests.engine.independence import ALONE, VARIANTS, Answers, Case, Variant, differences, mixed_sampling, run

NUM_CASES = 64
TOPICS = ["the sea", "old maps", "a quiet library", "bread", "winter in the mountains", "the speed of light", "owls"]
SYSTEM = "You are a careful assistant who answers every question in plain words and never at great length. "


def random_cases() -> list[Case]:
    rng = random.Random(64)
    cases = []
    for _ in range(NUM_CASES):
        stem = [rng.randrange(4, 8)] * rng.choice([0, 0, 20, 48])
        prompt = stem + [rng.randrange(4, VOCAB_SIZE) for _ in range(rng.randrange(1, 60))]
        cases.append(Case(tuple(prompt), mixed_sampling(rng, most_tokens=24)))
    return cases


@pytest.fixture(scope="module", params=KERNELS)
def kernels(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def expected(tiny_folder: Path, kernels: str) -> Answers:
    with LLM(tiny_folder, kernels=kernels, num_threads=1, **ALONE.settings()) as llm:
        return run(llm, random_cases(), ALONE)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_tiny_model(variant: Variant, kernels: str, expected: Answers, make_llm: MakeLLM):
    cases = random_cases()
    few = {"num_pages": 40, "max_model_len": 160} if variant.preempts else {}
    llm = make_llm(kernels=kernels, **variant.settings() | few)
    close = differences(llm, cases, expected, run(llm, cases, variant))
    print(*close, sep="\n")
    assert not close or kernels == "reference", "native sums do not hang on the batch, so nothing may differ at all"


def text_cases(llm: LLM) -> list[Case]:
    rng = random.Random(65)
    cases = []
    for number in range(NUM_CASES):
        start = SYSTEM if number % 3 == 0 else ""
        text = f"{start}Write {number + 2} lines about {rng.choice(TOPICS)}." + " Please do." * rng.randrange(4)
        cases.append(Case(tuple(llm.get_tokenizer().encode(text)), mixed_sampling(rng, most_tokens=8)))
    return cases


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 2])
def test_smollm2(num_threads: int, smollm2_path: Path, capsys: pytest.CaptureFixture[str]):
    with LLM(smollm2_path, max_model_len=128, num_threads=1, **ALONE.settings()) as llm:
        cases = text_cases(llm)
        expected = run(llm, cases, ALONE)
    for variant in VARIANTS:
        few = {"num_pages": 24} if variant.preempts else {}
        with LLM(smollm2_path, max_model_len=128, num_threads=num_threads, **variant.settings() | few) as llm:
            found = run(llm, cases, variant)
            close = differences(llm, cases, expected, found)
        with capsys.disabled():
            print(f"\n{variant}: {len(close)} close choices", *close, sep="\n  ")
