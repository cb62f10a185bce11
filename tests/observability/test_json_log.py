"""Lines of the log: what is in them, and when they are written."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pagoda.observability import json_log
from pagoda.observability.json_log import CollectedLines, JsonLines, current_request_id
from tests.waiting import until

LONG = 3600.0


class Stream(io.StringIO):
    """Remembers what each call wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, text: str) -> int:
        self.calls.append(text)
        return super().write(text)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def handler(stream: Stream) -> CollectedLines:
    handler = CollectedLines(stream)
    handler.setFormatter(JsonLines())
    return handler


@pytest.fixture
def logger(handler: CollectedLines) -> Iterator[logging.Logger]:
    logger = logging.getLogger("tests.json_log")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)
    handler.close()


@pytest.fixture
def long_moment(handler: CollectedLines, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line was just written, and its moment does not end by itself."""
    monkeypatch.setattr(json_log, "TOGETHER_SECONDS", LONG)
    handler._last_written = time.monotonic()


def test_a_line_is_an_object_with_the_request_that_it_is_about(logger: logging.Logger, stream: Stream) -> None:
    token = current_request_id.set("abc")
    logger.info("said %d", 3, extra={"fields": {"status": 503, "path": "/v1\n/x"}})
    current_request_id.reset(token)
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("it failed")
    first, second = stream.lines
    assert first["message"] == "said 3" and first["level"] == "info" and first["request_id"] == "abc"
    assert first["status"] == 503 and first["path"] == "/v1\n/x" and first["logger"] == "tests.json_log"
    assert "request_id" not in second and "ValueError: why" in second["trace"]


def test_lines_of_one_moment_are_written_in_one_call(logger: logging.Logger, stream: Stream) -> None:
    logger.info("first")
    assert len(stream.calls) == 1, "nobody waits for a line that comes alone"
    for number in range(50):
        logger.info("%d", number)
    until(lambda: len(stream.lines) == 51, 10)
    assert len(stream.calls) <= 4
    assert [line["message"] for line in stream.lines] == ["first", *map(str, range(50))]
    time.sleep(2 * json_log.TOGETHER_SECONDS)
    logger.info("later")
    assert stream.lines[-1]["message"] == "later"


@pytest.mark.usefixtures("long_moment")
def test_a_warning_does_not_wait_and_neither_does_what_came_before(logger: logging.Logger, stream: Stream) -> None:
    logger.info("before")
    assert not stream.calls
    logger.warning("now")
    assert [line["message"] for line in stream.lines] == ["before", "now"]


@pytest.mark.usefixtures("long_moment")
def test_nothing_is_lost_when_the_log_is_closed(
    logger: logging.Logger, handler: CollectedLines, stream: Stream
) -> None:
    logger.info("the last")
    assert not stream.calls
    handler.close()
    assert [line["message"] for line in stream.lines] == ["the last"]


def test_a_stream_that_is_gone_stops_nobody(logger: logging.Logger, handler: CollectedLines, stream: Stream) -> None:
    stream.close()
    raises = logging.raiseExceptions
    logging.raiseExceptions = False
    try:
        logger.info("one")
        logger.info("two")
        time.sleep(3 * json_log.TOGETHER_SECONDS)
        logger.warning("three")
    finally:
        logging.raiseExceptions = raises
        handler._stream = io.StringIO()
