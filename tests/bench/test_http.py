from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.bench.http import BadAnswer, Response

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Id: 7\r\n\r\n"


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.data())
def test_chunks_come_through_however_they_are_torn(pieces: list[bytes], data: st.DataObject) -> None:
    whole = CHUNKED + chunked(pieces)
    response = Response()
    body = b""
    rest = whole
    while rest:
        assert not response.is_complete
        size = data.draw(st.integers(1, len(rest)))
        body += response.feed(rest[:size])
        rest = rest[size:]
    assert body == b"".join(pieces)
    assert response.is_complete and response.keeps_alive
    assert response.status == 200 and response.headers["x-id"] == "7"


@given(st.binary(max_size=60), st.integers(1, 20))
def test_a_body_with_a_length(body: bytes, step: int) -> None:
    whole = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    response = Response()
    found = b"".join(response.feed(whole[start : start + step]) for start in range(0, len(whole), step))
    assert found == body and response.status == 404
    assert response.is_complete and response.keeps_alive


def test_a_body_that_ends_with_its_connection() -> None:
    response = Response()
    assert response.feed(b"HTTP/1.1 200 OK\r\n\r\nabc") + response.feed(b"def") == b"abcdef"
    assert not response.is_complete
    assert response.end() and not response.keeps_alive


def test_chunks_that_break_off_are_no_answer() -> None:
    response = Response()
    response.feed(CHUNKED + b"5\r\nab")
    assert not response.end()


def test_a_hint_before_the_answer_is_skipped() -> None:
    response = Response()
    assert response.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi") == b"hi"
    assert response.status == 200


def test_fields_after_the_last_chunk() -> None:
    response = Response()
    assert response.feed(CHUNKED + b"2\r\nhi\r\n0\r\nX-Check: 1\r\n") == b"hi"
    assert not response.is_complete
    response.feed(b"\r\n")
    assert response.is_complete


def test_a_connection_that_is_to_be_closed_is_not_kept() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    response.feed(b"")
    assert not response.keeps_alive


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH_9\r\n\r\n", CHUNKED + b"xyz\r\n"])
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        Response().feed(data)
