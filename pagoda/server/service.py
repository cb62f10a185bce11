"""What every handler works with: the engine, the tokenizer, and the rules that hold for all dialects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from pagoda.engine.prompts import PromptReader
from pagoda.engine.remote import RemoteEngine
from pagoda.engine.wire import EngineInfo
from pagoda.server.admission import Admission
from pagoda.server.errors import ApiError
from pagoda.server.generation import Generation
from pagoda.server.history import History
from pagoda.server.keys import KeyRing
from pagoda.server.limits import Limits
from pagoda.server.observer import RequestObserver
from pagoda.server.recent_calls import RecentCalls
from pagoda.server.sessions import Sessions
from pagoda.server.snapshots import SnapshotKeeper
from pagoda.text import Tokenizer


@dataclass
class Service:
    engine: RemoteEngine
    tokenizer: Tokenizer
    model_name: str
    """What clients call it."""
    context: int
    """The model's own context; the engine may have room for less, which is known once it is there."""
    created: int
    keys: KeyRing
    admission: Admission
    limits: Limits
    fingerprint: str
    observer: RequestObserver
    request_timeout: float | None = None
    """Seconds that any request may take."""

    def __post_init__(self) -> None:
        self.generation = Generation(self.engine, self.admission)
        self.history = History(self.observer.statistics, self.engine.state)
        self.sessions = Sessions()
        self.snapshots = SnapshotKeeper(self.engine)
        self._reader = PromptReader(self.tokenizer, self.context, self.limits.max_prompt_bytes_per_token)
        self.openapi: dict[str, Any] = {}
        self.docs_page = ""
        self.calls = RecentCalls()
        self.unsent_bytes: Callable[[], int] = lambda: 0
        """What lies ready for clients that have not taken it yet."""

    @property
    def reader(self) -> PromptReader:
        return self._reader

    @property
    def max_model_len(self) -> int:
        info = self.engine.state.info
        return info.max_model_len if info is not None else self.context

    def engine_changed(self) -> None:
        """It became ready, perhaps with less room than the model's context, or it is gone."""
        info = self.engine.state.info
        if info is not None:
            self.admission.set_rows(info.max_num_seqs)
            self._reader = PromptReader(self.tokenizer, info.max_model_len, self.limits.max_prompt_bytes_per_token)

    def check_model(self, name: str | None) -> None:
        if name and name != self.model_name:
            message = f"the model {name[:100]!r} is not here; this server has {self.model_name!r}"
            raise ApiError(404, "not_found_error", message, param="model", code="model_not_found")

    def check_length(self, num_tokens: int, field: str = "messages") -> None:
        """Before the request costs anything."""
        if num_tokens >= self.max_model_len:
            message = (
                f"the prompt has {num_tokens} tokens; the context is {self.max_model_len}, the answer's tokens included"
            )
            raise ApiError(400, "invalid_request_error", message, param=field, code="context_length_exceeded")

    def describe_model(self) -> dict[str, Any]:
        return {
            "id": self.model_name,
            "object": "model",
            "created": self.created,
            "owned_by": "pagoda",
            "root": self.model_name,
            "parent": None,
            "max_model_len": self.max_model_len,
        }

    def describe_engine(self) -> dict[str, Any] | None:
        info: EngineInfo | None = self.engine.state.info
        return None if info is None else msgspec.to_builtins(info)
