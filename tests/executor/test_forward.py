"""A step gives the same logits operator by operator and as one recorded program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from pagoda.core.plan import RowPayload, RowStart
from pagoda.core.sampling_params import SamplingParams
from pagoda.executor import PageStore, WorkerRows
from pagoda.executor.forward import EagerForward, RecordedForward
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.library import available_instruction_sets
from pagoda.kernels.reference import ReferenceOperators
from tests.models.tiny import SMALL, random_ids, randomize, reference_logits, save_and_load

PAGE_SIZE = 16


@pytest.mark.skipif(not available_instruction_sets(), reason="the native kernels were not built")
def test_both_give_the_references_logits(tmp_path: Path):
    reference = randomize(LlamaForCausalLM(LlamaConfig(**SMALL | {"hidden_size": 64, "head_dim": 16})), seed=6)
    model = save_and_load(reference, tmp_path)
    groups = model.cache_groups()
    kernels = CpuKernels(num_threads=1)
    for weight in model.weights():
        kernels.prepare(weight)
    eager_pages = PageStore(groups, [8], PAGE_SIZE)
    native_pages = PageStore(groups, [8], PAGE_SIZE, kernels.new_pages)
    forwards = [
        EagerForward(model, ReferenceOperators(), eager_pages.layers),
        RecordedForward(model, kernels, native_pages.layers, max_tokens=64),
    ]
    rows = WorkerRows(2, 64, PAGE_SIZE, len(groups))
    texts = [random_ids(30, 1), random_ids(21, 2)]
    for row, (tokens, pages) in enumerate(zip(texts, [(5, 2), (7, 1)], strict=True)):
        payload = RowPayload(row, np.array(tokens, np.int32), len(tokens), SamplingParams(), 0)
        rows.start(RowStart(row, row, "r", 0, 0, (pages,)), payload)
    expected = [reference_logits(reference, tokens) for tokens in texts]
    both = np.arange(2, dtype=np.int32)
    done = np.zeros(2, int)
    for counts in ([20, 1], [9, 7], [1, 13]):
        batch = rows.batch(both, np.array(counts, np.int32))
        wanted = np.array([sum(counts) - 1, 0, counts[0] - 1], np.int32)
        places = [(1, done[1] + counts[1] - 1), (0, done[0]), (0, done[0] + counts[0] - 1)]
        for forward in forwards:
            found = forward.logits(batch, wanted)
            assert found.shape == (3, SMALL["vocab_size"])
            for logits, (row, place) in zip(found, places, strict=True):
                np.testing.assert_allclose(logits, expected[row][place], atol=1e-4, rtol=0)
        done += counts
        rows.num_computed[:2] += np.array(counts, np.int32)
