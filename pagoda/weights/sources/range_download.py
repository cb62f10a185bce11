"""Downloads over HTTP that continue where the last one was cut, within a pull and from one pull to the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pagoda.core.errors import PullError

if TYPE_CHECKING:
    import httpx2

NUM_FRUITLESS_TRIES = 4
TIMEOUT_SECONDS = 10.0
_OK, _PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE, _TOO_MANY_REQUESTS, _SERVER_ERROR = 200, 206, 416, 429, 500


class _TryAgain(Exception):
    """This attempt failed in a way that another may not."""


@dataclass(frozen=True)
class RangeDownload:
    client: httpx2.Client
    url: str
    headers: dict[str, str]
    num_bytes: int

    def run(self, part: Path, on_bytes: Callable[[int], None]) -> None:
        """Grow `part` to its full size. It is kept whatever happens, so that a later run goes on from its end."""
        part.touch()
        num_fruitless = 0
        while (offset := part.stat().st_size) != self.num_bytes:
            try:
                self._append(part, offset, on_bytes)
                continue
            except _TryAgain as error:
                num_fruitless = num_fruitless + 1 if part.stat().st_size <= offset else 1
                if num_fruitless >= NUM_FRUITLESS_TRIES:
                    raise PullError(f"{self.url} broke off at byte {offset}: {error}; pull again to go on") from None
            time.sleep(0.25 * 2**num_fruitless)

    def _append(self, part: Path, offset: int, on_bytes: Callable[[int], None]) -> None:
        import httpx2

        headers = {**self.headers, "Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        try:
            with self.client.stream("GET", self.url, headers=headers, timeout=TIMEOUT_SECONDS) as response:
                start = self._start_of_body(response, offset)
                self._copy_body(response, part, start, on_bytes)
        except httpx2.TransportError as error:
            raise _TryAgain(str(error) or type(error).__name__) from None

    def _start_of_body(self, response: httpx2.Response, offset: int) -> int:
        """The position in the file of the first byte that this response carries."""
        status = response.status_code
        if status == _OK:
            return 0  # the server took no notice of the range
        if status == _PARTIAL_CONTENT:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
                raise PullError(f"{self.url} answered with another range than bytes={offset}-")
            return offset
        if status == _RANGE_NOT_SATISFIABLE:
            raise PullError(f"{self.url} is shorter than the {self.num_bytes} bytes it is listed with")
        if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
            raise _TryAgain(f"HTTP status {status}")
        raise PullError(f"{self.url} answered with HTTP status {status}")

    def _copy_body(self, response: httpx2.Response, part: Path, position: int, on_bytes: Callable[[int], None]) -> None:
        with part.open("r+b") as out:
            out.truncate(position)
            out.seek(position)
            # As they come off the network: chunks of a set size would lose the last, incomplete one to a cut.
            for chunk in response.iter_raw():
                position += len(chunk)
                if position > self.num_bytes:
                    raise PullError(f"{self.url} is longer than the {self.num_bytes} bytes it is listed with")
                out.write(chunk)
                on_bytes(position)
        if position < self.num_bytes:
            raise _TryAgain("the connection ended early")
