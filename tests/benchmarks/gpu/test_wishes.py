"""Every way to draw under the whole engine, on a tiny model: each is answered in full, and told as a line."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.models import QWEN_06B, write_folder
from benchmarks.gpu.wishes import PROMPT_WAYS, WAYS, prompt_seconds, step_seconds, table_of
from pagoda import LLM
from pagoda.executor.cuda import build

TINY = {"vocab_size": 600, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 16}


@pytest.mark.slow
def test_a_line_for_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():  # the kernels are interpreted
        monkeypatch.setattr(build, "CudaBuilder", partial(build.CudaBuilder, device="cpu"))
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "torch_dtype": "float32"}
    folder = write_folder(QWEN_06B | TINY | heads, tmp_path / "tiny")
    sizes = {"max_model_len": 256, "max_num_seqs": 2, "block_size": 16, "num_pages": 40}
    with LLM(folder, device="cuda", load_format="dummy", max_num_batched_tokens=256, **sizes) as llm:
        of_prompt = prompt_seconds(llm, 20, repeats=0)
        found = step_seconds(llm, 2, 2, repeats=1, prompt_tokens=8, warm_ups=0)
    assert list(of_prompt) == list(PROMPT_WAYS) and min(of_prompt.values()) > 0
    lines = table_of(found, 2)
    assert [line[0] for line in lines] == list(WAYS)
    assert lines[0][2] == "1.000x" and all(float(line[1]) > 0 for line in lines)
