"""What every handler works with: the engine, the tokenizer, and the rules that hold for all dialects."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pagoda.core.sampling_defaults import SamplingDefaults
from pagoda.engine.prompts import PromptReader
from pagoda.engine.remote import RemoteEngine
from pagoda.server.admission import Admission
from pagoda.server.errors import ApiError
from pagoda.server.generation import Generation
from pagoda.server.history import History
from pagoda.server.keys import KeyRing
from pagoda.server.limits import Limits
from pagoda.server.memory_use import resident_by_process
from pagoda.server.observer import RequestObserver
from pagoda.server.recent_calls import RecentCalls
from pagoda.server.sessions import Sessions
from pagoda.server.snapshots import SnapshotKeeper
from pagoda.server.tracing import RequestTracer
from pagoda.text import Tokenizer

logger = logging.getLogger("pagoda.server")


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
    observer: RequestObserver
    sampling_defaults: SamplingDefaults = SamplingDefaults()
    """How requests draw that say nothing of it."""
    request_timeout: float | None = None
    """Seconds that any request may take."""
    openapi: dict[str, Any] = field(default_factory=dict)
    """What /openapi.json says."""
    docs_page: str = ""
    log_prompts: bool = False
    tracer: RequestTracer | None = None

    def __post_init__(self) -> None:
        self.generation = Generation(self.engine, self.admission, self.observer, self.log_prompts)
        self.history = History(self.observer.statistics, self.engine.state)
        self.sessions = Sessions()
        self.snapshots = SnapshotKeeper(self.engine)
        self._reader = PromptReader(self.tokenizer, self.context, self.limits.max_prompt_bytes_per_token)
        self.calls = RecentCalls()
        self.fingerprint = ""
        """Of the engine that answers, or did last; nothing is answered before there is one."""
        self.unsent_bytes: Callable[[], int] = lambda: 0
        """What lies ready for clients that have not taken it yet."""
        self.engine.on_change = self.engine_changed
        self.engine.on_report = self.observer.take_report

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
        if info is None:
            self.observer.work.begin_anew()
        else:
            self.observer.work.num_starts += 1
            self.fingerprint = info.fingerprint
            self.admission.set_rows(info.max_num_seqs)
            self._reader = PromptReader(self.tokenizer, info.max_model_len, self.limits.max_prompt_bytes_per_token)
            fields = {
                "planned_bytes": info.planned_bytes,
                "allocated_bytes": info.allocated_bytes,
                "planned_process_bytes": info.process_bytes,
                "resident_process_bytes": resident_by_process(self.engine.state),
            }
            logger.info("the engine is ready", extra={"fields": fields})

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
            "default_sampling_params": self.sampling_defaults.known(),
        }
