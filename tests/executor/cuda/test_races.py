"""Whole steps of the engine in every form that has kernels which start early: each of them is looked at for races, as
all tests here are in the forms that they happen to take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from pagoda.core.request import Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.executor.cuda import sharing
from pagoda.kernels import cuda
from pagoda.models import Model
from tests.executor.cuda.test_executor import answers, cuda_loop
from tests.kernels.cpu.families import SIZES
from tests.kernels.cuda.races import Races
from tests.models.tiny import randomize, save_and_load

FORMS = [(1, "none"), (1, "fp8"), (1, "int4"), (4, "none"), (4, "fp8")]
KERNEL = re.compile(r"@triton\.jit[^\n]*\ndef (\w+)\([^)]*\bEARLY: tl\.constexpr[^)]*\):")
NOT_IN_STEPS = {"_small_linear"}  # which no step asks to start early


def early_kernels() -> set[str]:
    """All that the sources have, but for what other kernels call."""
    sources = [path.read_text() for path in Path(cuda.__path__[0]).glob("*.py")]
    return {name for source in sources for name in KERNEL.findall(source) if f"{name}[" in source} - NOT_IN_STEPS


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted here alone")
def test_every_kernel_that_starts_early_is_looked_at(
    races: Races, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "FEWEST_TOKENS", 16)
    config = Qwen3Config(**{**SIZES, "num_hidden_layers": 2})
    model: Model = save_and_load(randomize(Qwen3ForCausalLM(config)), tmp_path)
    sampling = SamplingParams(temperature=0, max_tokens=3)
    for count, quantization in FORMS:
        loop = cuda_loop(model, quantization=quantization, warms_up=False)
        requests = [
            Request(request_id=f"r{number}", prompt_token_ids=(*range(20), number), sampling=sampling)
            for number in range(count)
        ]
        assert len(answers(loop, requests)) == count
    assert races.early_kernels == early_kernels() and len(races.early_kernels) > 5
