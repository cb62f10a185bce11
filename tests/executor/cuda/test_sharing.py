from __future__ import annotations

import numpy as np
import torch

from pagoda.core.plan import RowStart, TableUpdate
from pagoda.executor.cuda.sharing import PageSharing

PAGE_SIZE = 64
COMMON = (7, 3, 9, 4, 8)


def sharing(tables: list[tuple[int, ...]]) -> PageSharing:
    made = PageSharing(len(tables), 1024, PAGE_SIZE, torch.device("cpu"))
    for row, pages in enumerate(tables):
        made.start(RowStart(row, row, str(row), 0, 0, (pages,)))
    return made


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.intp)


def test_rows_that_begin_alike_form_a_group_as_far_as_all_of_them_do() -> None:
    found = sharing([(*COMMON, 20), (*COMMON, 21), (1, 2), (*COMMON[:4], 30, 31), (*COMMON, 22)])
    computed = np.full(5, 6 * PAGE_SIZE, np.int32)
    [(entries, num_tokens)] = found.find(rows(4, 2, 1, 0, 3), computed)
    assert entries.tolist() == [0, 2, 3, 4]
    assert num_tokens == 4 * PAGE_SIZE


def test_too_few_rows_or_tokens_are_no_group() -> None:
    computed = np.full(4, 6 * PAGE_SIZE, np.int32)
    assert sharing([COMMON] * 3 + [(1,)]).find(rows(0, 1, 2, 3), computed) == []
    assert sharing([(*COMMON[:3], 10 + row) for row in range(4)]).find(rows(0, 1, 2, 3), computed) == []


def test_only_computed_pages_count_and_pages_of_earlier_tenants_do_not() -> None:
    found = sharing([COMMON] * 4)
    assert found.find(rows(0, 1, 2, 3), np.full(4, 4 * PAGE_SIZE + 5, np.int32))[0][1] == 4 * PAGE_SIZE
    for row in range(4):
        found.start(RowStart(row, 9 + row, "next", 0, 0, (COMMON[:2],)))
    computed = np.full(4, 1000, np.int32)
    assert found.find(rows(0, 1, 2, 3), computed) == []
    for row in range(4):
        found.update(TableUpdate(row, 0, 2, (40, 41, 50 + row)))
    assert found.find(rows(0, 1, 2, 3), computed)[0][1] == 4 * PAGE_SIZE


def test_what_is_sent_lists_the_members_of_each_group() -> None:
    found = sharing([(1,)] * 6)
    found.send([(rows(1, 4), 256), (rows(0, 2, 5), 320)])
    shared = found.shared_rows(6)
    assert shared.shared_lens.tolist() == [320, 256, 320, 0, 256, 320]
    assert shared.members.tolist()[:5] == [1, 4, 0, 2, 5]
    assert shared.starts.tolist()[:4] == [0, 2, 5, 5] and set(shared.starts.tolist()[3:]) == {5}
