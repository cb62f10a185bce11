"""The settings of `pagoda serve`, one frozen record per concept; flags, environment and a TOML file fill them."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import get_args

import msgspec

from pagoda.core.config import EngineConfig
from pagoda.core.errors import InvalidRequest
from pagoda.observability.json_log import Level
from pagoda.server.limits import Limits

NO_ENGINE = signal.SIGUSR1
"""With this the supervisor tells the HTTP process that it starts no engine again."""


class ListenConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is found."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all. Beyond this machine, set an API key."""
    port: int = 8000
    """Port to listen on; 0 takes any that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that the Host header may have beside this machine's own."""
    allowed_origins: tuple[str, ...] = ()
    """Web origins that may call from a browser, such as https://chat.example.com."""
    tls_certificate: str | None = None
    """File of the certificate chain; with it the server speaks HTTPS."""
    tls_key: str | None = None
    """File of the certificate's private key."""
    send_buffer_bytes: int = 65536
    """Bytes that the kernel may hold for a client; with these and 64 KiB more unread, its request pauses."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidRequest("port", f"must lie between 0 and 65535, not {self.port}")
        if not 4096 <= self.send_buffer_bytes <= 1 << 30:
            raise InvalidRequest("send_buffer_bytes", f"must lie between 4096 and 2^30, not {self.send_buffer_bytes}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidRequest("tls_key", "tls_certificate and tls_key go together; give both or neither")


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much may wait, and for how long."""

    max_queued_requests: int = 256
    """Requests that may wait for a row; one more is answered with 503 and a time to come back."""
    max_queued_tokens: int = 262144
    """Prompt tokens that may wait."""
    request_timeout: float | None = None
    """Seconds after which a request is given up, wherever it is; None: never."""
    slow_reader_seconds: float = 60.0
    """A client that takes nothing for so long is let go."""
    drain_seconds: float = 30.0
    """After SIGTERM, how long requests under way may take to finish."""
    load_stall_seconds: float = 300.0
    """An engine that loads and does not get on for so long, not even reading, is killed and started again."""

    def __post_init__(self) -> None:
        for field in ("max_queued_requests", "max_queued_tokens"):
            if getattr(self, field) < 1:
                raise InvalidRequest(field, f"must be at least 1, not {getattr(self, field)}")
        if not self.drain_seconds >= 0:
            raise InvalidRequest("drain_seconds", f"must not be negative, not {self.drain_seconds}")
        for field in ("slow_reader_seconds", "load_stall_seconds", "request_timeout"):
            value = getattr(self, field)
            if value is not None and not 0 < value < math.inf:
                raise InvalidRequest(field, f"must be more than 0 seconds, not {value}")


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is written down."""

    log_level: Level = "info"
    """Least weight of a line that is written."""
    log_prompts: bool = False
    """Write prompts and answers into the log. They may be private: off unless asked for."""
    trace_endpoint: str | None = None
    """OpenTelemetry collector that gets a span for each phase of a request, such as http://localhost:4318."""

    def __post_init__(self) -> None:
        if self.log_level not in get_args(Level):
            raise InvalidRequest("log_level", f"{self.log_level!r} is not one of {', '.join(get_args(Level))}")
        if self.trace_endpoint is not None and not self.trace_endpoint.startswith(("http://", "https://")):
            raise InvalidRequest("trace_endpoint", f"must begin with http:// or https://, not {self.trace_endpoint!r}")


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    listen: ListenConfig = ListenConfig()
    queue: QueueConfig = QueueConfig()
    limits: Limits = Limits()
    log: LogConfig = LogConfig()
    served_model_name: str | None = None
    """What clients call the model; None: its own name, of a file or folder the last part of its path."""
    api_keys_file: str | None = None
    """TOML file of API keys and their limits; without keys everybody on this address may call."""


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that the processes of one server are told, on a command line that everybody on the machine can read. The API
    key is therefore none of it: they have it from the environment."""

    server: ServerConfig
    engine: EngineConfig
    model_path: str
    engine_socket: str = ""
    """In a folder that nobody else can enter."""
    supervisor_pid: int | None = None
    """The HTTP process does not outlive it, not even if it is gone before that one has begun."""

    @property
    def model_name(self) -> str:
        """What clients call the model. Where it lies on this machine is not for them to know."""
        model = self.engine.model
        if self.server.served_model_name:
            return self.server.served_model_name
        if not Path(model).exists():
            return model
        path = Path(model).resolve()
        is_nameless = path.name == "model.gguf"  # as the store calls all of its files
        return path.parent.name if is_nameless else path.name.removesuffix(".gguf")
