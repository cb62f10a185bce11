"""Real weights: greedy answers are those of transformers in float32, and a shared prompt is computed once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pagoda import LLM, SamplingParams
from pagoda.engine.output import RequestOutput
from tests.models.gguf_to_transformers import load_reference

CLOSE = 1e-3
CLOSE_IN_BYTES = 0.5  # in logits, whose best two lie about 3 apart
NUM_TOKENS = 64
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "The three primary colours are",
    "A short history of the bicycle:",
    "To make bread you need",
    "In 1969, two people",
    "The opposite of hot is",
    "List five animals that live in the sea: 1.",
    "SELECT name FROM users WHERE",
    "Dear Sir or Madam,",
    "The theory of evolution says that",
    "Roses are red,",
    "import numpy as np\n\n",
    "The largest planet of the solar system",
    "He opened the door and saw",
    "One two three four five",
    "The recipe begins with two eggs and",
    "Why is the sky blue? Because",
    "Mon nom est",
    "Der Hund läuft",
    "El gato está",
    "Q: What is 7 times 8?\nA:",
    "The meeting is on Tuesday at",
    "<html>\n<head>\n<title>",
    "Music was heard from",
    "The old man said:",
    "A prime number is",
    "In conclusion,",
    "Photosynthesis is the process by which",
    "x",
]


def check_greedy(path: Path, compute: str, most_apart: float, capsys: pytest.CaptureFixture[str]) -> int:
    """The number of choices that are not the reference's own, none of them further from it than `most_apart`."""
    with LLM(path, compute=compute, max_model_len=256, max_num_seqs=32, max_num_batched_tokens=128) as llm:
        sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
        outputs = llm.generate(PROMPTS, sampling, use_tqdm=False)
        counters = llm.engine.loop.counters
    assert counters.num_drawn_tokens == len(PROMPTS) * NUM_TOKENS
    torch.set_num_threads(2)
    reference = load_reference(path)
    close = [line for output in outputs for line in close_choices(reference, output, most_apart)]
    with capsys.disabled():
        print(f"\n{len(PROMPTS)} prompts, {NUM_TOKENS} tokens each, {compute}: {len(close)} close choices")
        print(*close[:10], sep="\n  ")
    return len(close)


@torch.no_grad()
def close_choices(reference: torch.nn.Module, output: RequestOutput, most_apart: float) -> list[str]:
    """Every token of the answer is the reference's own choice after the tokens before it, or as good as that.

    One forward pass over prompt and answer shows what the reference would choose at each place. Where the answer's
    token is that choice all the way, generating with the reference gives the same answer: the first tokens agree, and
    if they agree up to a place, both continue from the same text there. So this proves what token-by-token generation
    would, and goes on checking after a close choice, where that would compare different texts.
    """
    prompt, answer = output.prompt_token_ids, output.outputs[0].token_ids
    assert len(answer) == NUM_TOKENS
    logits = reference(torch.tensor([prompt + answer[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
    lines = []
    for place, (row, token_id) in enumerate(zip(logits, answer, strict=True)):
        best = int(row.argmax())
        if best == token_id:
            continue
        gap = float(row[best] - row[token_id])
        line = f"{output.prompt[:20]!r}, token {place}: {token_id} instead of {best}, {gap:.2e} between them"
        assert gap < most_apart, line
        lines.append(line)
    return lines


@pytest.mark.slow
def test_smollm2_says_what_transformers_says(smollm2_path: Path, capsys: pytest.CaptureFixture[str]):
    check_greedy(smollm2_path, "f32", CLOSE, capsys)


@pytest.mark.slow
def test_gemma3_says_what_transformers_says(gemma3_path: Path, capsys: pytest.CaptureFixture[str]):
    check_greedy(gemma3_path, "f32", CLOSE, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["smollm2_path", "gemma3_path"])
def test_bytes_say_nearly_always_the_same(
    fixture: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
):
    """Rounded inputs may tip a choice between candidates that are close, and only such."""
    num_close = check_greedy(request.getfixturevalue(fixture), "int8", CLOSE_IN_BYTES, capsys)
    assert num_close < 0.03 * len(PROMPTS) * NUM_TOKENS


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_smollm2_embeds_as_transformers_does(smollm2_path: Path, pooling: str, capsys: pytest.CaptureFixture[str]):
    settings = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64}
    with LLM(smollm2_path, compute="f32", **settings) as llm:
        outputs = llm.embed(PROMPTS, pooling=pooling, use_tqdm=False)
    with LLM(smollm2_path, **settings) as llm:
        rounded = [output.embedding for output in llm.embed(PROMPTS, pooling=pooling, use_tqdm=False)]
    torch.set_num_threads(2)
    reference = load_reference(smollm2_path)
    apart, cosines = [], []
    for output, in_bytes in zip(outputs, rounded, strict=True):
        assert output.embedding is not None and in_bytes is not None
        with torch.no_grad():
            ids = torch.tensor([output.prompt_token_ids])
            states = reference(ids, output_hidden_states=True, use_cache=False).hidden_states[-1][0].double()
        expected = states.mean(dim=0) if pooling == "mean" else states[-1]
        expected = (expected / expected.norm()).numpy()
        apart.append(abs(output.embedding - expected).max())
        cosines.append(float(in_bytes @ expected))
    with capsys.disabled():
        print(
            f"\n{pooling}: f32 at most {max(apart):.1e} apart, bytes at an angle of cosine {min(cosines):.5f} or more"
        )
    assert max(apart) < 1e-4
    assert min(cosines) > 0.99


@pytest.mark.slow
def test_a_long_system_prompt_is_computed_once(smollm2_path: Path, capsys: pytest.CaptureFixture[str]):
    """32 questions behind 2,048 tokens. Two of them, run without the cache, show that there every token is computed."""
    with LLM(smollm2_path, max_model_len=2176, max_num_seqs=32) as llm:
        tokenizer = llm.get_tokenizer()
        words = " ".join(f"Rule {number}: answer question {number} in plain words." for number in range(400))
        system = tokenizer.encode(words)[:2048]
        prompts = [system + tokenizer.encode(f" Question {number}: {PROMPTS[number]}") for number in range(32)]
        sampling = SamplingParams(temperature=0, max_tokens=1)
        shared = [output.outputs[0].token_ids for output in llm.generate(prompts, sampling, use_tqdm=False)]
        with_cache = llm.engine.loop.counters.num_computed_tokens
    with LLM(smollm2_path, max_model_len=2176, max_num_seqs=32, enable_prefix_caching=False) as llm:
        apart = [output.outputs[0].token_ids for output in llm.generate(prompts[:2], sampling, use_tqdm=False)]
        assert llm.engine.loop.counters.num_computed_tokens == sum(map(len, prompts[:2]))
    without_cache = sum(map(len, prompts))
    with capsys.disabled():
        share = with_cache / without_cache
        print(f"\ncomputed with the cache {with_cache}, without {without_cache} prompt tokens: {share:.1%}")
    assert shared[:2] == apart
    assert with_cache < 0.1 * without_cache
