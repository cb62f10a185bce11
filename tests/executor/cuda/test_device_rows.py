from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.core.plan import RowPayload, RowStart, TableUpdate
from pagoda.core.sampling_params import SamplingParams
from pagoda.executor.cuda import edits
from pagoda.executor.cuda.device_rows import DeviceRows

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def payload(*token_ids: int) -> RowPayload:
    return RowPayload(0, np.array(token_ids, np.int32), len(token_ids), SamplingParams(), 0)


def make() -> DeviceRows:
    return DeviceRows(num_rows=3, max_tokens=10, page_size=4, num_groups=2, device=DEVICE)


def start(row: int, num_computed: int, *tables: tuple[int, ...]) -> RowStart:
    return RowStart(row, 0, "r", 0, num_computed, tables)


def test_what_plans_say_arrives_in_one_go() -> None:
    rows = make()
    rows.start(start(2, 4, (7,), (9,)), payload(11, 12, 13, 14, 15))
    rows.start(start(0, 0, (), ()), payload(21, 22))
    rows.update_table(TableUpdate(2, 1, 1, (5, 6)))
    assert not rows.arena.any(), "nothing is sent before flush"
    rows.flush()
    assert rows.token_ids[2, :5].tolist() == [11, 12, 13, 14, 15]
    assert rows.token_ids[0, :2].tolist() == [21, 22]
    assert rows.num_computed.tolist() == [0, 0, 4]
    assert rows.page_tables[0][2].tolist() == [7, 0, 0]
    assert rows.page_tables[1][2].tolist() == [9, 5, 6]
    assert not rows.arena[11:22].any(), "row 1 was left alone"


def test_more_than_the_mailbox_holds_goes_in_several_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "MAILBOX_NUMBERS", 24)
    rows = make()
    for row in range(3):
        rows.start(start(row, row, (row + 1,), (row + 4,)), payload(*range(10 * row, 10 * row + 10)))
    rows.flush()
    assert rows.token_ids[:, :10].flatten().tolist() == list(range(30))
    assert rows.num_computed.tolist() == [0, 1, 2]
    assert rows.page_tables[1][:, 0].tolist() == [4, 5, 6]
