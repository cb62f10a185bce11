"""Every error a caller may see. Each message is one line that names the cause and, where there is one, the fix."""

from __future__ import annotations


class PagodaError(Exception):
    """Base of every error raised on purpose. Anything else that escapes is a bug."""


class InvalidRequest(PagodaError, ValueError):
    """A field of a request or a setting holds a value that cannot be honoured."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class CapacityError(PagodaError):
    """A request that could never run in this engine, refused at once with the numbers."""


class ModelFileError(PagodaError):
    """A model file that is damaged, hostile or of a kind that is not supported."""


class ModelNotFound(PagodaError):
    """No model goes by that name or path."""


class PullError(PagodaError):
    """A model could not be fetched, checked or stored."""


class TemplateError(PagodaError):
    """A chat template that is invalid, unsafe or over its budget."""


class DeadlineExceeded(PagodaError):
    """The time that a request was given is over, and it is not finished."""


class EngineError(PagodaError):
    """The engine stopped working; the message says why."""


class EngineGone(EngineError):
    """The engine stopped working, and no other will take its place."""
