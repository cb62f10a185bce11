"""A Hugging Face hub on 127.0.0.1: a listing, files with byte ranges, and the ways in which a hub may misbehave."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LARGE_BYTES = 4096  # files from this size on are listed by sha256, as Git LFS files are


@dataclass
class FakeHub:
    repository: str = "owner/tiny"
    revision: str = "0123456789abcdef0123456789abcdef01234567"
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)  # bytes to send before hanging up, one entry a request
    served: dict[str, bytes] = field(default_factory=dict)  # what is sent in place of the listed content
    honours_ranges: bool = True
    status: int = 200
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # file, Range header
    address: str = ""

    def listing(self) -> dict[str, object]:
        siblings = [_listed(name, content) for name, content in self.files.items()]
        return {
            "id": self.repository,
            "sha": self.revision,
            "siblings": siblings,
            "cardData": {"license": "mit"},
            "tags": [],
            "private": False,
        }

    @contextmanager
    def serve(self) -> Iterator[FakeHub]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


def _listed(name: str, content: bytes) -> dict[str, object]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": blob}
    if len(content) >= LARGE_BYTES:
        sha256 = hashlib.sha256(content).hexdigest()
        # The blob of such a file is a pointer, so its id says nothing about the content.
        entry |= {"blobId": "0" * 40, "lfs": {"sha256": sha256, "size": len(content), "pointerSize": 130}}
    return entry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def do_GET(self) -> None:
        hub = self.hub
        path = unquote(urlsplit(self.path).path)
        if path == f"/api/models/{hub.repository}":
            self._answer(hub.status, json.dumps(hub.listing()).encode())
            return
        prefix = f"/{hub.repository}/resolve/{hub.revision}/"
        name = path.removeprefix(prefix)
        if not path.startswith(prefix) or name not in hub.files:
            self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        hub.requests.append((name, self.headers.get("Range")))
        self._send_file(name, hub.served.get(name, hub.files[name]))

    def _send_file(self, name: str, content: bytes) -> None:
        start = 0
        range_header = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if range_header and self.hub.honours_ranges:
            start = int(range_header[1])
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cuts = self.hub.cuts.get(name)
        body = content[start : start + cuts.pop(0)] if cuts else content[start:]
        with suppress(ConnectionError):  # a client that has had enough hangs up
            self.wfile.write(body)
        if len(body) < len(content) - start:
            self.close_connection = True

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests read `requests` instead."""
