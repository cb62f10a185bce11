from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from pagoda.cli.bench.files import check_writable, write_json
from pagoda.core.errors import InvalidRequest


class Record(msgspec.Struct):
    number: int


def test_a_record_is_written_where_one_is_wanted(tmp_path: Path) -> None:
    write_json(Record(1), None)
    write_json(Record(3), str(tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_text()) == {"number": 3}
    check_writable("--json", None)
    check_writable("--json", str(tmp_path / "out.json"))
    assert (tmp_path / "out.json").stat().st_size, "asking changes nothing"


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--json: .*cannot be written: "):
        check_writable("--json", str(tmp_path / "no" / "out.json"))
