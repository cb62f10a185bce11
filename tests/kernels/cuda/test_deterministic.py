from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.base import KVPages
from pagoda.kernels.cuda import deterministic
from pagoda.kernels.cuda.attention import HeadShape
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.deterministic import FixedAttention, FixedMatrix, workspace_for
from pagoda.kernels.reference.linear import linear
from tests.kernels.cuda.device import DEVICE, assert_close, on_device, poisoned, to_numpy
from tests.kernels.reference.ragged import Row, make_case

ROWS = [Row(3, 1), Row(600, 1), Row(0, 20), Row(33, 5)]
NUM_DECODING = 2
SCALE = 0.3


def attend(max_rows: int) -> np.ndarray:
    """Two rows that decode and two prompts, as a step has them."""
    case = make_case(ROWS, 16, 2, 16, 0, seed=1)
    queries = np.random.default_rng(2).standard_normal((len(case.batch.token_ids), 4, 16), np.float32)
    starts = case.batch.row_starts
    batch = DeviceBatch(
        token_ids=on_device(case.batch.token_ids),
        positions=on_device(case.batch.positions),
        entries=on_device(np.repeat(np.arange(len(ROWS)), np.diff(starts)).astype(np.int32)),
        row_starts=on_device(starts),
        prompt_starts=on_device(starts[NUM_DECODING:] - starts[NUM_DECODING]),
        context_lens=on_device(case.batch.context_lens),
        page_tables=tuple(on_device(table) for table in case.batch.page_tables),
        num_decoding=NUM_DECODING,
        max_new=20,
    )
    attention = FixedAttention(torch.device(DEVICE), max_rows, 1024, [HeadShape(4, 2, 16)])
    out = poisoned(queries.shape, torch.float32)
    pages = KVPages(on_device(case.pages.keys), on_device(case.pages.values))
    attention(out, on_device(queries), pages, batch, 1, SCALE, 0)
    return to_numpy(out)


def test_rows_that_share_out_their_splits_have_the_same_bits(monkeypatch: pytest.MonkeyPatch):
    shared_out = attend(max_rows=8)
    monkeypatch.setattr(deterministic, "PROGRAMS_IN_ALL", 1)
    np.testing.assert_array_equal(attend(max_rows=8), shared_out)
    assert np.isfinite(shared_out).all()


def test_a_matrix_and_its_workspace():
    generator = np.random.default_rng(3)
    x, numbers = (generator.standard_normal((count, 2080), np.float32) for count in (3, 40))
    bias = generator.standard_normal(40, np.float32)
    matrix = FixedMatrix(on_device(numbers), bias=on_device(bias))
    out = poisoned((3, 40), torch.float32)
    matrix.multiply(on_device(x), out, workspace_for([matrix], torch.device(DEVICE), torch.float32))
    assert_close(out, linear(x, numbers, bias, np.float64), 1e-5)
