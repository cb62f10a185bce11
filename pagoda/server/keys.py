"""API keys: who may call, and how much. They come from a file or the environment, never from the command line."""

from __future__ import annotations

import hashlib
import hmac
import time
import tomllib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pagoda.core.errors import InvalidRequest
from pagoda.core.unreadable import UNREADABLE
from pagoda.server.errors import ApiError

MINUTE = 60.0
SHORTEST_KEY = 8


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[keys]]` table of the file."""

    name: str
    key: str = ""
    sha256: str = ""
    """Hash of the key, in hexadecimal, instead of the key itself."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_concurrency: int | None = None


class KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[KeyEntry] = []


@dataclass(eq=False)
class ApiKey:
    """One caller: its limits, and what it has used of them in the last minute."""

    name: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_concurrency: int | None = None
    num_open: int = 0
    _requests: deque[float] = field(default_factory=deque)
    _tokens: deque[tuple[float, int]] = field(default_factory=deque)
    _num_tokens: int = 0

    @classmethod
    def anonymous(cls) -> ApiKey:
        return cls("")

    def enter(self, num_tokens: int, now: float) -> None:
        """Count one request of so many prompt tokens, or refuse it with the time at which it would be taken."""
        self._forget(now)
        if self.max_concurrency is not None and self.num_open >= self.max_concurrency:
            raise self._refused(f"{self.max_concurrency} requests at once", 1.0)
        if self.requests_per_minute is not None and len(self._requests) >= self.requests_per_minute:
            raise self._refused(f"{self.requests_per_minute} requests a minute", self._requests[0] + MINUTE - now)
        if self.tokens_per_minute is not None and self._num_tokens + num_tokens > self.tokens_per_minute:
            wait = self._tokens[0][0] + MINUTE - now if self._tokens else MINUTE
            raise self._refused(f"{self.tokens_per_minute} tokens a minute", wait)
        self._requests.append(now)
        self.spend(num_tokens, now)
        self.num_open += 1

    def spend(self, num_tokens: int, now: float) -> None:
        """Tokens of an answer count once they are there."""
        if self.tokens_per_minute is not None and num_tokens:
            self._tokens.append((now, num_tokens))
            self._num_tokens += num_tokens

    def leave(self) -> None:
        self.num_open -= 1

    def _forget(self, now: float) -> None:
        while self._requests and self._requests[0] <= now - MINUTE:
            self._requests.popleft()
        while self._tokens and self._tokens[0][0] <= now - MINUTE:
            self._num_tokens -= self._tokens.popleft()[1]

    def _refused(self, limit: str, retry_after: float) -> ApiError:
        message = f"this key may make {limit}; try again in {max(1, round(retry_after))} s"
        return ApiError(429, "rate_limit_error", message, code="rate_limit_exceeded", retry_after=retry_after)


class KeyRing:
    """All keys. Without any, everybody is the same nameless caller."""

    def __init__(self, entries: list[KeyEntry], clock: Callable[[], float] = time.monotonic) -> None:
        self._keys: dict[bytes, ApiKey] = {}
        self._nobody = ApiKey.anonymous()
        self.clock = clock
        for entry in entries:
            digest = _digest_of(entry)
            if digest in self._keys or any(key.name == entry.name for key in self._keys.values()):
                raise InvalidRequest("api_keys_file", f"key {entry.name!r} is there twice")
            self._keys[digest] = ApiKey(
                entry.name, entry.requests_per_minute, entry.tokens_per_minute, entry.max_concurrency
            )

    @classmethod
    def load(cls, path: str | None, single_key: str | None) -> KeyRing:
        entries = _read(Path(path)) if path is not None else []
        if single_key:
            entries.append(KeyEntry(name="environment", key=single_key))
        return cls(entries)

    @property
    def is_open(self) -> bool:
        return not self._keys

    @property
    def keys(self) -> list[ApiKey]:
        return [*self._keys.values()] or [self._nobody]

    def find(self, authorization: bytes, x_api_key: bytes) -> ApiKey:
        """The caller behind `Authorization: Bearer KEY` or `x-api-key: KEY`."""
        if self.is_open:
            return self._nobody
        kind, _, token = authorization.partition(b" ")
        presented = token.strip() if kind.lower() == b"bearer" else x_api_key
        digest = hashlib.sha256(presented).digest()
        found = None
        for known, key in self._keys.items():  # all of them, so that the time tells nothing
            if hmac.compare_digest(known, digest):
                found = key
        if found is None:
            message = "no API key was given" if not presented else "the API key is not known"
            hint = "; send it as 'Authorization: Bearer KEY'"
            raise ApiError(401, "authentication_error", message + hint, code="invalid_api_key")
        return found


def _digest_of(entry: KeyEntry) -> bytes:
    if bool(entry.key) == bool(entry.sha256):
        raise InvalidRequest("api_keys_file", f"key {entry.name!r} needs either key or sha256")
    if entry.sha256:
        try:
            digest = bytes.fromhex(entry.sha256)
        except ValueError:
            digest = b""
        if len(digest) != hashlib.sha256().digest_size:
            raise InvalidRequest("api_keys_file", f"sha256 of key {entry.name!r} is not 64 hexadecimal digits")
        return digest
    if len(entry.key) < SHORTEST_KEY:
        raise InvalidRequest("api_keys_file", f"key {entry.name!r} is shorter than {SHORTEST_KEY} characters")
    return hashlib.sha256(entry.key.encode()).digest()


def _read(path: Path) -> list[KeyEntry]:
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
        return list(msgspec.convert(content, KeyFile).keys)
    except OSError as error:
        raise InvalidRequest("api_keys_file", f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, *UNREADABLE) as error:
        raise InvalidRequest("api_keys_file", f"is not a list of keys: {error}") from None
