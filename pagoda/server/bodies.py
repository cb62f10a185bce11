"""Bodies in: read no further than the limit, decoded into typed records, and refused by the name of the field."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from pagoda.server.errors import ApiError, bad_request
from pagoda.server.json_depth import check_depth
from pagoda.server.limits import Limits

Receive = Callable[[], Awaitable[Any]]
Record = TypeVar("Record")
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


async def read_json_body(headers: Mapping[bytes, bytes], receive: Receive, limits: Limits) -> bytes:
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        raise ApiError(
            415, "invalid_request_error", "Content-Type must be application/json", code="unsupported_media_type"
        )
    return await read_body(headers, receive, limits.max_body_bytes)


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, most: int) -> bytes:
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and (len(length) > 18 or int(length) > most):
        raise _too_large(most)
    parts: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        num_bytes += len(part)
        if num_bytes > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(most: int) -> ApiError:
    message = f"the body is larger than {most} bytes"
    return ApiError(413, "invalid_request_error", message, code="body_too_large")


def decode(decoder: msgspec.json.Decoder[Record], body: bytes, limits: Limits) -> Record:
    check_depth(body, limits.max_json_depth)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(None, f"the body is not valid JSON: {error}", "invalid_json") from None
    except RecursionError:
        raise bad_request(None, "the body nests too deeply", "json_too_deep") from None


def _invalid(message: str) -> ApiError:
    """msgspec says what was expected and where; the place becomes the name of the field."""
    found = _PATH.search(message)
    if found is not None:
        return bad_request(found[1] or None, message[: found.start()])
    missing = re.search(r"missing required field `([^`]+)`", message)
    if missing is not None:
        return bad_request(missing[1], "is missing")
    return bad_request(None, message)
