"""GGUF files of every family, tiny ones by the `gguf` package and the real ones, against transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pagoda.core.errors import ModelFileError
from pagoda.kernels.reference import ReferenceOperators
from pagoda.models import load_model, read_config
from pagoda.weights.checkpoint import open_checkpoint
from tests.models.gguf_to_transformers import load_reference
from tests.models.paged import PagedRunner
from tests.models.parity import TOLERANCE
from tests.models.test_llama import LINEAR_ROPE, LLAMA3_ROPE, YARN_ROPE
from tests.models.tiny import SMALL, random_ids, randomize, reference_logits
from tests.models.transformers_to_gguf import write_gguf

GEMMA = {**SMALL, "num_hidden_layers": 7, "head_dim": 20, "query_pre_attn_scalar": 20, "sliding_window": 6}
GEMMA_ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 50_000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
CASES = {
    "llama": ("llama", LlamaForCausalLM, LlamaConfig(**SMALL)),
    "llama tied": ("llama", LlamaForCausalLM, LlamaConfig(**SMALL, tie_word_embeddings=True)),
    "llama linear": ("llama", LlamaForCausalLM, LlamaConfig(**SMALL, rope_parameters=LINEAR_ROPE)),
    "llama wide heads": ("llama", LlamaForCausalLM, LlamaConfig(**SMALL, head_dim=20)),
    "qwen2": ("qwen2", Qwen2ForCausalLM, Qwen2Config(**SMALL)),
    "qwen2 yarn": ("qwen2", Qwen2ForCausalLM, Qwen2Config(**SMALL, rope_parameters=YARN_ROPE)),
    "qwen3": ("qwen3", Qwen3ForCausalLM, Qwen3Config(**SMALL, head_dim=20, tie_word_embeddings=True)),
    "gemma3": ("gemma3", Gemma3ForCausalLM, Gemma3TextConfig(**GEMMA)),
    "gemma3 scaled": ("gemma3", Gemma3ForCausalLM, Gemma3TextConfig(**GEMMA, rope_parameters=GEMMA_ROPES)),
}
PROMPTS = [
    [1, 504, 3575, 282, 4649, 314],
    [28, 198, 253, 1120, 9, 17, 338, 260, 2],
    list(range(100, 130)),
]


def check_file(reference: PreTrainedModel, path) -> None:
    ids = random_ids(40, seed=5)
    runner = PagedRunner(load_model(open_checkpoint(path)), ReferenceOperators(), page_size=4)
    actual = np.concatenate([runner.step({"row": ids[:17]})["row"], runner.step({"row": ids[17:]})["row"]])
    np.testing.assert_allclose(actual, reference_logits(reference, ids), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_logits_of_a_tiny_file_equal_those_of_transformers(case, tmp_path):
    architecture, model_class, config = CASES[case]
    reference = randomize(model_class(config))
    check_file(reference, write_gguf(reference, architecture, tmp_path / "tiny.gguf"))


def test_stored_divisors_are_the_scaling_of_llama3(tmp_path):
    reference = randomize(LlamaForCausalLM(LlamaConfig(**SMALL, rope_parameters=LLAMA3_ROPE)))
    scaled = reference.model.rotary_emb.inv_freq.double().numpy()
    plain = 10_000.0 ** (-np.arange(0, 12, 2) / 12)
    path = write_gguf(reference, "llama", tmp_path / "tiny.gguf", divisors=plain / scaled)
    check_file(reference, path)


@pytest.mark.parametrize("divisors", [np.ones(5), np.array([1.0] * 5 + [0.0]), np.array([1.0] * 5 + [np.nan])])
def test_divisors_that_make_no_sense_are_refused(divisors, tmp_path):
    reference = LlamaForCausalLM(LlamaConfig(**SMALL))
    path = write_gguf(reference, "llama", tmp_path / "tiny.gguf", divisors)
    with pytest.raises(ModelFileError, match=r"rope_freqs\.weight must"):
        read_config(open_checkpoint(path))


@pytest.mark.parametrize("case", ["llama", "qwen2 yarn", "gemma3 scaled"])
def test_a_damaged_file_is_refused_or_runs(case, tmp_path):
    """Mostly the header is hit; what still loads must also survive a step."""
    architecture, model_class, config = CASES[case]
    path = write_gguf(randomize(model_class(config)), architecture, tmp_path / "tiny.gguf")
    whole = path.read_bytes()
    generator = np.random.default_rng(3)
    for _ in range(300):
        damaged = bytearray(whole)
        for start in generator.integers(0, generator.choice([1200, 8000]), size=generator.integers(1, 4)).tolist():
            word = int(generator.choice([0, 1, 3, 2**31 - 1, 2**31, 2**32 - 1, generator.integers(2**32)]))
            damaged[start : start + 4] = word.to_bytes(4, "little")
        path.write_bytes(damaged)
        try:
            with open_checkpoint(path) as checkpoint, np.errstate(all="ignore"):
                PagedRunner(load_model(checkpoint), ReferenceOperators(), page_size=4).step({"row": [1, 2, 3, 4, 5]})
        except ModelFileError as error:
            assert "\n" not in str(error)


def test_the_helper_reads_back_what_was_written(tmp_path):
    """The oracle of the real files, held against a model whose logits are known."""
    for case in ("llama", "gemma3"):
        architecture, model_class, config = CASES[case]
        reference = randomize(model_class(config))
        again = load_reference(write_gguf(reference, architecture, tmp_path / f"{case}.gguf"))
        ids = random_ids(30, seed=2)
        np.testing.assert_allclose(reference_logits(again, ids), reference_logits(reference, ids), atol=1e-5)


def check_real_model(path, prompts: list[list[int]]) -> None:
    reference = load_reference(path)
    model = load_model(open_checkpoint(path))
    operators = ReferenceOperators()
    for ids in prompts:
        with torch.no_grad():
            expected = reference(torch.tensor([ids]), logits_to_keep=1).logits[0, -1].numpy()
        runner = PagedRunner(model, operators)
        actual = runner.step({"row": ids})["row"][-1]
        np.testing.assert_allclose(actual, expected, atol=1e-3, rtol=0)
        assert actual.argmax() == expected.argmax()


@pytest.mark.slow
def test_smollm2_equals_transformers_on_the_same_weights(smollm2_path):
    check_real_model(smollm2_path, PROMPTS)


@pytest.mark.slow
def test_gemma3_equals_transformers_on_the_same_weights(gemma3_path):
    # The last prompt is longer than the window of 512 tokens.
    long_prompt = np.random.default_rng(0).integers(4, 200_000, 600).tolist()
    check_real_model(gemma3_path, [[2, *ids] for ids in (*PROMPTS[:2], long_prompt)])
