from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.cuda import decode_plan
from pagoda.kernels.cuda.decode_plan import DecodePlan, PlanKind
from tests.kernels.cuda.device import DEVICE, on_device

UNIT, SPLIT_LEN, MOST_SPLITS = 64, 512, 128

Split = tuple[int, int, int, int, int, int]
"""Its row, first token and end, the length of the row, its number and how many there are."""


def whole_units(tokens: int) -> int:
    return -(-tokens // UNIT) * UNIT


def twin(kind: PlanKind, lens: list[int], firsts: list[int]) -> list[Split]:
    """Row after row, in whole numbers."""
    left = [length - first for length, first in zip(lens, firsts, strict=True)]
    split_len = max(
        UNIT,
        min(SPLIT_LEN, whole_units(-(-sum(left) // kind.num_wanted))),
        whole_units(-(-sum(left) // (kind.num_slots(len(lens)) - len(lens)))),
        whole_units(-(-max(left) // MOST_SPLITS)),
    )
    found: list[Split] = []
    for row, (length, first) in enumerate(zip(lens, firsts, strict=True)):
        wanted = max(1, -(-(length - first) // split_len))
        own_len = max(UNIT, whole_units(-(-(length - first) // wanted)))
        begins = range(first, length, own_len) or [first]
        for number, begin in enumerate(begins):
            found.append((row, begin, min(begin + own_len, length), length, number, len(begins)))
    return found


def planned(kind: PlanKind, lens: list[int], shared_lens: list[int] | None = None, room: int = 0) -> list[Split]:
    """As the kernel makes it, for a step of some of the rows that there is room for."""
    plan = DecodePlan.of(kind, max(room, len(lens)), DEVICE)
    plan.records.fill_(77)
    plan.make(
        on_device(np.array(lens, np.int32)),
        None if shared_lens is None else on_device(np.array(shared_lens, np.int32)),
    )
    records = plan.records.cpu().numpy()[: kind.num_slots(len(lens)), :6]
    num_used = int((records[:, 0] >= 0).sum())
    assert (records[num_used:, 0] == -1).all(), "what has nothing to do lies behind all others"
    splits = [tuple(record) for record in records[:num_used].tolist()]
    of_rows = [(index, split[5]) for index, split in enumerate(splits) if split[4] == 0]
    assert plan.rows.cpu().numpy()[: len(lens)].tolist() == [list(place) for place in of_rows]
    return splits


kinds = st.builds(PlanKind, st.sampled_from([1, 2, 8, 32, 5000]), st.sampled_from([0, 0, 1, 40, 4096]))
lengths = st.lists(
    st.one_of(st.integers(0, 700), st.integers(0, 131_072), st.just(0), st.just(1_000_000)), min_size=1, max_size=40
)


@given(kind=kinds, lens=lengths, programs=st.sampled_from([1, 24, 1056]), data=st.data())
def test_every_token_of_every_row_is_in_one_split(kind: PlanKind, lens: list[int], programs: int, data: st.DataObject):
    shared_lens = None
    if not kind.window:
        most = [max(0, (length - 1) // 16) for length in lens]  # at least a token is a row's own
        shared_lens = data.draw(st.none() | st.tuples(*(st.integers(0, pages).map(lambda n: 16 * n) for pages in most)))
    firsts = [max(0, length - kind.window) if kind.window else 0 for length in lens]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_plan, "PROGRAMS_IN_ALL", programs)
        found = planned(
            kind, lens, None if shared_lens is None else list(shared_lens), room=data.draw(st.integers(1, 64))
        )
        firsts = list(shared_lens) if shared_lens is not None else firsts
        assert found == twin(kind, lens, firsts)
        assert len(found) <= kind.num_slots(len(lens))
    for row, (length, first) in enumerate(zip(lens, firsts, strict=True)):
        own = [split for split in found if split[0] == row]
        assert [begin for _, begin, *_ in own] == [first, *(end for _, _, end, *_ in own[:-1])]
        assert own[-1][2] == length and len(own) <= MOST_SPLITS
        assert all((end - begin) % UNIT == 0 for _, begin, end, *_ in own[:-1])


@pytest.mark.parametrize(
    ("lens", "num_splits"),
    [
        ([384], [6]),  # finely, until the device is full
        ([8192] * 8, [16] * 8),
        ([131_072], [128]),
        ([300] * 256, [1] * 256),  # as little as will do
        ([640] * 256, [2] * 256),
        ([100_000, *[500] * 63], [121, *[1] * 63]),  # a long one among short ones
    ],
)
def test_what_eight_heads_of_an_h200_are_given(lens: list[int], num_splits: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decode_plan, "PROGRAMS_IN_ALL", 1056)
    found = planned(PlanKind(8), lens)
    assert [split[5] for split in found if split[4] == 0] == num_splits
