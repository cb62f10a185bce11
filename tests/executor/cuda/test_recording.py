from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.executor.cuda.recording import record
from pagoda.kernels.cuda.recorder import Linear
from tests.kernels.cpu.families import FAMILIES, make_family


@pytest.mark.parametrize("family", FAMILIES)
def test_behind_the_last_attention_only_the_tokens_that_are_asked_for_go_on(family: str, tmp_path: Path) -> None:
    recorder, _ = record(make_family(family, tmp_path))
    kinds = [type(call).__name__ for call in recorder.calls]
    last = len(kinds) - 1 - kinds[::-1].index("Attend")
    assert all(call.out is None or not call.out.is_rows for call in recorder.calls[: last + 1])
    taken = recorder.calls[last + 1 :]
    assert all(call.out is not None and call.out.is_rows for call in taken)
    assert kinds.count("TakeRows") == 2, "what attention gave, and what it is added to"
    assert [call.is_head for call in taken if isinstance(call, Linear)] == [*4 * [False], True]
