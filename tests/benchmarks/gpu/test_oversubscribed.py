"""A quarter of the pages that the running requests need, on CUDA's executor under the whole engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import oversubscribed
from benchmarks.gpu.oversubscribed import Work, measure
from pagoda.executor.cuda import build


@pytest.mark.slow
def test_all_answers_are_whole_and_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():  # the kernels are interpreted
        monkeypatch.setattr(build, "CudaBuilder", partial(build.CudaBuilder, device="cpu"))
    small = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    monkeypatch.setattr(oversubscribed, "TINY", oversubscribed.TINY | small)
    monkeypatch.setattr(oversubscribed, "PAGE_SIZE", 4)
    work = Work(num_requests=6, num_rows=6, max_model_len=14, prompt_lengths=(4, 6), num_new=8)
    found = measure(tmp_path, work)
    assert found.is_met(work), found
