"""What a client is told when something is wrong. Nothing of the machine shows in it: no path, no address, no trace."""

from __future__ import annotations

from typing import Literal

from pagoda.core.errors import (
    CapacityError,
    DeadlineExceeded,
    EngineError,
    EngineGone,
    InvalidRequest,
    PagodaError,
    TemplateError,
)

Kind = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "rate_limit_error",
    "overloaded_error",
    "timeout_error",
    "server_error",
]


class ApiError(Exception):
    """An answer that is an error. `retry_after` is in seconds, `allow` names the methods that there are instead."""

    def __init__(
        self,
        status: int,
        kind: Kind,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        allow: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after
        self.allow = allow


def bad_request(param: str | None, message: str, code: str | None = None, status: int = 400) -> ApiError:
    shown = f"{param}: {message}" if param else message
    return ApiError(status, "invalid_request_error", shown, param=param, code=code)


def not_supported(param: str, what: str) -> ApiError:
    """A field that we know and cannot honour: better refused than quietly ignored."""
    return bad_request(param, f"{what} is not supported by this server; leave it out", "unsupported_parameter")


def from_engine(error: PagodaError) -> ApiError:
    """An error of the engine, as far as it is the client's business."""
    match error:
        case InvalidRequest():
            is_too_long = error.field == "prompt" and "max_model_len" in str(error)
            code = "context_length_exceeded" if is_too_long else None
            return ApiError(400, "invalid_request_error", str(error), param=error.field, code=code)
        case CapacityError():
            return ApiError(400, "invalid_request_error", str(error), code="capacity_exceeded")
        case TemplateError():
            return bad_request("messages", str(error))
        case DeadlineExceeded():
            return ApiError(408, "timeout_error", str(error), code="deadline_exceeded")
        case EngineGone():
            message = "the engine failed and is not started again; this server is ending"
            return ApiError(503, "server_error", message, code="engine_failed", retry_after=30)
        case EngineError():
            return ApiError(
                503,
                "server_error",
                "the engine stopped before the answer was complete; try again",
                code="engine_stopped",
                retry_after=5,
            )
    return internal_error()


def internal_error() -> ApiError:
    return ApiError(500, "server_error", "something went wrong inside the server; the request id finds it in the log")
