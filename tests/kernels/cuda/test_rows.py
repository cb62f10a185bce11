from __future__ import annotations

import numpy as np
import torch

from pagoda.kernels.cuda.rows import advance, apply_edits, gather_table, gather_tokens
from tests.kernels.cuda.device import DEVICE, on_device, to_numpy


def ints(*values: int) -> torch.Tensor:
    return on_device(np.array(values, np.int32))


def test_edits_write_stretches_of_any_length() -> None:
    arena = torch.zeros(3000, dtype=torch.int32, device=DEVICE)
    values = np.arange(1, 1502, dtype=np.int32)
    edits = on_device(np.array([[10, 0, 1500], [2999, 1500, 1]], np.int32))
    apply_edits(arena, edits, on_device(values), 1500)
    expected = np.zeros(3000, np.int32)
    expected[10:1510], expected[2999] = values[:1500], values[1500]
    np.testing.assert_array_equal(to_numpy(arena), expected)


def test_the_next_tokens_of_rows_and_padding_between() -> None:
    token_ids = torch.arange(40, dtype=torch.int32, device=DEVICE).view(4, 10)
    num_computed = ints(0, 3, 0, 6)
    ids, positions, entries = (torch.full((6,), -7, dtype=torch.int32, device=DEVICE) for _ in range(3))
    lens = ints(-7, -7, -7)
    gather_tokens(ids, positions, entries, lens, ints(3, -1, 1), ints(0, 1, 2, 6), token_ids, num_computed, 4)
    assert to_numpy(ids).tolist() == [36, 0, 13, 14, 15, 16]
    assert to_numpy(positions).tolist() == [6, 0, 3, 4, 5, 6]
    assert to_numpy(entries).tolist() == [0, 1, 2, 2, 2, 2]
    assert to_numpy(lens).tolist() == [7, 0, 7]


def test_tables_as_far_as_the_contexts_reach() -> None:
    table = torch.arange(20, dtype=torch.int32, device=DEVICE).view(2, 10)
    out = torch.full((3, 10), -7, dtype=torch.int32, device=DEVICE)
    gather_table(out, table, ints(1, -1, 0), ints(9, 0, 4), 4)
    assert to_numpy(out)[0].tolist() == [10, 11, 12] + [-7] * 7
    assert to_numpy(out)[1].tolist() == [-7] * 10
    assert to_numpy(out)[2].tolist() == [0] + [-7] * 9


def test_drawn_tokens_go_behind_their_rows() -> None:
    token_ids = torch.full((3, 5), -7, dtype=torch.int32, device=DEVICE)
    num_computed = ints(0, 0, 0)
    # Row 2 draws its token number 2; row 0 draws none; padding; row 1 drew what is no token.
    advance(token_ids, num_computed, ints(2, 0, -1, 1), ints(2, 4, 0, 1), ints(0, -1, 2, 1), ints(9, 2**31 - 1, 8), 50)
    assert to_numpy(num_computed).tolist() == [4, 1, 2]
    assert to_numpy(token_ids).tolist() == [[-7] * 5, [-7, 0, -7, -7, -7], [-7, -7, 9, -7, -7]]
