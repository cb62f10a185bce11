from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.bench.conversation import Conversation, Question
from pagoda.bench.trace import TraceWriter, played, read_trace
from pagoda.core.errors import InvalidRequest

MESSAGES = [{"role": "user", "content": "Name a river."}]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    questions = [Question("Name a river.", 5), Question([1, 2, 3], 6), Question(MESSAGES, 7)]
    with TraceWriter(tmp_path / "trace") as writer:
        for number, question in enumerate(questions):
            writer.add(0.25 * number, question)
    found = read_trace(tmp_path / "trace")
    assert found == [Conversation((question,), 0.25 * number) for number, question in enumerate(questions)]


def test_lines_are_plain_json(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace") as writer:
        writer.add(1.5, Question(MESSAGES, 7))
    [line] = (tmp_path / "trace").read_text().splitlines()
    assert json.loads(line) == {"at": 1.5, "messages": MESSAGES, "max_tokens": 7}


def test_requests_are_played_in_the_order_of_their_times(tmp_path: Path) -> None:
    lines = [{"at": at, "prompt": str(at), "max_tokens": 1} for at in (3.0, 1.0, 2.0)]
    (tmp_path / "trace").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    due = [at for at, _ in played(read_trace(tmp_path / "trace"), speed=2.0)]
    assert due == [0.5, 1.0, 1.5]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"at": 0, "max_tokens": 1}',
        '{"at": 0, "prompt": "", "max_tokens": 1}',
        '{"at": -1, "prompt": "x", "max_tokens": 1}',
        '{"at": 0, "prompt": "x", "max_tokens": 0}',
        '{"at": 0, "prompt": "x", "max_tokens": 1, "temprature": 1}',
        '{"at": 0, "prompt": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}',
        '{"at": 0, "prompt": "\xff", "max_tokens": 1}',
        '{"at": 0, "prompt": "x", "max_tokens": 1, "more": ' + "[" * 10_000,
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "trace").write_text('{"at": 0, "prompt": "x", "max_tokens": 1}\n' + line, encoding="latin-1")
    with pytest.raises(InvalidRequest, match="line 2"):
        read_trace(tmp_path / "trace")


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for path in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(InvalidRequest, match="--trace"):
            read_trace(path)
    with pytest.raises(InvalidRequest, match="--record-trace"):
        TraceWriter(tmp_path / "no" / "folder")
