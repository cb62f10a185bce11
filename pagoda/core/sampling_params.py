"""How the tokens of one request are chosen: vLLM's field names and defaults, every value checked when it is built."""

from __future__ import annotations

import difflib
import math
import numbers
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pagoda.core.errors import InvalidRequest

MAX_SEQUENCES = 16
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_BYTES = 256
MAX_STOP_TOKEN_IDS = 1024
MAX_LOGIT_BIAS = 1024
MAX_LISTED_TOKEN_IDS = 1 << 19
MAX_INT32 = (1 << 31) - 1

# Below this a division by the temperature says no more than an argmax does, and may overflow.
GREEDY_TEMPERATURE = 1e-5


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bad value raises `InvalidRequest`, which names the field, the value and the range.

    `stop` also takes one string; every list may be None; `top_k` of -1 becomes 0 and `seed` of -1 becomes None.
    `max_tokens` of None means up to the end of the context.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    banned_token_ids: tuple[int, ...] = ()
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    detokenize: bool = True

    def __post_init__(self) -> None:
        for field, limits in _INTEGERS.items():
            value = getattr(self, field)
            if value is not None or not limits.optional:
                self._set(field, _integer(field, value, limits))
        for field, span in _REALS.items():
            self._set(field, _real(field, getattr(self, field), span))
        for field in _FLAGS:
            _flag(field, getattr(self, field))
        for field, longest in _TOKEN_LISTS.items():
            self._set(field, _token_ids(field, getattr(self, field), longest))
        self._set("stop", _stop_strings(self.stop))
        self._set("logit_bias", _logit_bias(self.logit_bias))
        self._set("top_k", max(self.top_k, 0))
        self._set("seed", None if self.seed == -1 else self.seed)
        self._check_together()

    def _set(self, field: str, value: object) -> None:
        if value is not getattr(self, field):
            msgspec.structs.force_setattr(self, field, value)

    def _check_together(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest("min_tokens", f"{self.min_tokens} is more than max_tokens={self.max_tokens}")
        if self.stop and not self.detokenize:
            raise InvalidRequest("stop", "stop strings need detokenize=True; use stop_token_ids instead")
        if self.allowed_token_ids is not None and not set(self.allowed_token_ids).difference(self.banned_token_ids):
            raise InvalidRequest("allowed_token_ids", "no token is both allowed and not banned; name at least one")

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_TEMPERATURE

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SamplingParams:
        known = cls.__struct_fields__
        for field in fields:
            if field in known:
                continue
            near = difflib.get_close_matches(str(field)[:64], known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the fields are {', '.join(known)}"
            raise InvalidRequest(_shown_name(field), f"no such sampling field; {hint}")
        return cls(**fields)

    def validate_for(self, vocab_size: int, max_model_len: int) -> None:
        """Check what depends on the model: token ids inside the vocabulary, min_tokens inside the context."""
        named = {field: getattr(self, field) or () for field in _TOKEN_LISTS}
        named["logit_bias"] = self.logit_bias or {}
        for field, token_ids in named.items():
            if token_ids and max(token_ids) >= vocab_size:
                raise InvalidRequest(
                    field, f"token id {max(token_ids)} is outside the vocabulary; ids go from 0 to {vocab_size - 1}"
                )
        if self.min_tokens > max_model_len:
            raise InvalidRequest("min_tokens", f"{self.min_tokens} does not fit the context of {max_model_len} tokens")


@dataclass(frozen=True)
class _IntegerRange:
    low: int
    high: int
    optional: bool = False

    def __str__(self) -> str:
        return f"an integer from {self.low} to {self.high}" + (", or None" if self.optional else "")


@dataclass(frozen=True)
class _RealRange:
    low: float
    high: float
    open_below: bool = False

    def __str__(self) -> str:
        lower = f"above {self.low:g}" if self.open_below else f"from {self.low:g}"
        return f"a finite number {lower} to {self.high:g}"

    def holds(self, value: float) -> bool:
        return (self.low < value if self.open_below else self.low <= value) and value <= self.high


_INTEGERS = {
    "n": _IntegerRange(1, MAX_SEQUENCES),
    "top_k": _IntegerRange(-1, MAX_INT32),
    "seed": _IntegerRange(-(1 << 63), (1 << 63) - 1, optional=True),
    "max_tokens": _IntegerRange(1, MAX_INT32, optional=True),
    "min_tokens": _IntegerRange(0, MAX_INT32),
    "logprobs": _IntegerRange(0, MAX_LOGPROBS, optional=True),
    "prompt_logprobs": _IntegerRange(0, MAX_LOGPROBS, optional=True),
}
_REALS = {
    "temperature": _RealRange(0.0, 100.0),
    "top_p": _RealRange(0.0, 1.0, open_below=True),
    "min_p": _RealRange(0.0, 1.0),
    "typical_p": _RealRange(0.0, 1.0, open_below=True),
    "presence_penalty": _RealRange(-2.0, 2.0),
    "frequency_penalty": _RealRange(-2.0, 2.0),
    "repetition_penalty": _RealRange(0.01, 100.0),
}
RANGES: dict[str, _IntegerRange | _RealRange] = {**_INTEGERS, **_REALS}
"""What each number may be, for those who describe the fields."""
_BIAS = _RealRange(-100.0, 100.0)
_TOKEN_ID = _IntegerRange(0, MAX_INT32)
_FLAGS = ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output", "detokenize")
_TOKEN_LISTS = {
    "stop_token_ids": MAX_STOP_TOKEN_IDS,
    "allowed_token_ids": MAX_LISTED_TOKEN_IDS,
    "banned_token_ids": MAX_LISTED_TOKEN_IDS,
}


def _integer(field: str, value: Any, limits: _IntegerRange) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidRequest(field, f"{_shown(value)} is not {limits}")
    number = int(value)
    if not limits.low <= number <= limits.high:
        raise InvalidRequest(field, f"{_shown(value)} is out of range; give {limits}")
    return number


def _real(field: str, value: Any, span: _RealRange) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidRequest(field, f"{_shown(value)} is not {span}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not span.holds(number):
        raise InvalidRequest(field, f"{_shown(value)} is out of range; give {span}")
    return number


def _flag(field: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InvalidRequest(field, f"{_shown(value)} is not True or False")


def _token_ids(field: str, value: Any, longest: int) -> tuple[int, ...] | None:
    """Sorted and without repeats. For `allowed_token_ids` None means all, so it stays None."""
    if value is None:
        return None if field == "allowed_token_ids" else ()
    if not isinstance(value, list | tuple):
        raise InvalidRequest(field, f"{_shown(value)} is not a list of token ids")
    if len(value) > longest:
        raise InvalidRequest(field, f"{len(value)} token ids are too many; give at most {longest}")
    return tuple(sorted({_integer(field, token_id, _TOKEN_ID) for token_id in value}))


def _stop_strings(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    strings = (value,) if isinstance(value, str) else value
    if not isinstance(strings, list | tuple):
        raise InvalidRequest("stop", f"{_shown(value)} is not a string or a list of strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidRequest("stop", f"{len(strings)} strings are too many; give at most {MAX_STOP_STRINGS}")
    for text in strings:
        _check_stop_string(text)
    return tuple(strings)


def _check_stop_string(text: Any) -> None:
    if not isinstance(text, str):
        raise InvalidRequest("stop", f"{_shown(text)} is not a string")
    try:
        num_bytes = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidRequest("stop", f"{_shown(text)} holds half a surrogate pair and is no text") from None
    if not 1 <= num_bytes <= MAX_STOP_BYTES:
        raise InvalidRequest("stop", f"a string of {num_bytes} bytes is out of range; give 1 to {MAX_STOP_BYTES} bytes")


def _logit_bias(value: Any) -> dict[int, float] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequest("logit_bias", f"{_shown(value)} is not a map from token ids to numbers")
    if len(value) > MAX_LOGIT_BIAS:
        raise InvalidRequest("logit_bias", f"{len(value)} keys are too many; give at most {MAX_LOGIT_BIAS}")
    return {
        _integer("logit_bias", token_id, _TOKEN_ID): _real("logit_bias", bias, _BIAS)
        for token_id, bias in value.items()
    } or None


def _shown(value: Any) -> str:
    """The value in a message, never long and always on one line."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = reprlib.repr(value)
    except Exception:  # a caller's own __repr__ may raise anything, and the message must still come out
        text = type(value).__name__
    return " ".join(text.split())[:100]


def _shown_name(field: Any) -> str:
    return field if isinstance(field, str) and field.isidentifier() and len(field) <= 64 else _shown(field)
