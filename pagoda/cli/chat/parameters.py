"""Sampling parameters as a chat takes them: typed at the prompt, and limited to what a chat can show."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_type_hints

import msgspec

from pagoda.core.errors import InvalidRequest
from pagoda.core.sampling_params import SamplingParams
from pagoda.core.unreadable import UNREADABLE

PARAMETERS = SamplingParams.__struct_fields__
_WORDS = {"none": None, "true": True, "false": False}


def check_sampling(sampling: SamplingParams) -> SamplingParams:
    """A chat shows one answer as text; what would hide it is refused."""
    if sampling.n != 1:
        raise InvalidRequest("n", f"a chat shows one answer, not {sampling.n}; LLM.generate gives several")
    if not sampling.detokenize:
        raise InvalidRequest("detokenize", "a chat shows text, so this stays True")
    return sampling


def with_parameter(sampling: SamplingParams, name: str, text: str) -> SamplingParams:
    """The text is read as JSON where it is JSON; SamplingParams judges the value."""
    given = {field: getattr(sampling, field) for field in PARAMETERS}
    return check_sampling(SamplingParams.from_dict(given | {name: _value(name, text)}))


def _value(name: str, text: str) -> Any:
    value: Any = text
    if text.lower() in _WORDS:
        value = _WORDS[text.lower()]
    else:
        with suppress(*UNREADABLE):
            value = msgspec.json.decode(text)
    if name == "stop" and not isinstance(value, list | str | None):
        return text  # the stop string 42 is no number
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, get_type_hints(SamplingParams).get(name, Any), str_keys=True)
    return value
