"""Strict reading of a model's metadata: each key that is used is typed and range-checked, and refused by name."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal

from pagoda.core.errors import ModelFileError

MAX_INTEGER = 2**31 - 1
MAX_NUMBER = sys.float_info.max


class NoDefault(Enum):
    NO_DEFAULT = 0


NO_DEFAULT: Literal[NoDefault.NO_DEFAULT] = NoDefault.NO_DEFAULT


class ConfigReader:
    """`values` come from a file that nobody checked. A null counts as absent, as it does in config.json.

    `prefix` stands before every key: "llama." in GGUF metadata, nothing in config.json.
    """

    def __init__(self, values: Mapping[str, Any], source: str, prefix: str = "") -> None:
        self._values = values
        self._source = source
        self._prefix = prefix

    def has(self, key: str) -> bool:
        return self._values.get(self._prefix + key) is not None

    def integer(
        self, key: str, default: int | NoDefault = NO_DEFAULT, minimum: int = 1, maximum: int = MAX_INTEGER
    ) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refusal(key, "must be an integer")
        if not minimum <= value <= maximum:
            raise self.refusal(key, f"must lie between {minimum} and {maximum}")
        return value

    def number(
        self, key: str, default: float | NoDefault = NO_DEFAULT, minimum: float = 0.0, maximum: float = MAX_NUMBER
    ) -> float:
        """A finite number greater than `minimum` and no greater than `maximum`."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refusal(key, "must be a number")
        # NaN fails every comparison, infinity and integers beyond any float the second.
        if not minimum < value <= maximum:
            raise self.refusal(key, f"must be above {minimum} and at most {maximum}")
        return float(value)

    def boolean(self, key: str, default: bool | NoDefault = NO_DEFAULT) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.refusal(key, "must be true or false")
        return value

    def choice(self, key: str, choices: Sequence[str], default: str | NoDefault = NO_DEFAULT) -> str:
        value = self._get(key, default)
        if not isinstance(value, str) or value not in choices:
            raise self.refusal(key, f"is not supported; supported: {', '.join(choices)}")
        return value

    def choices(self, key: str, choices: Sequence[str], length: int) -> tuple[str, ...]:
        values = self._get(key, NO_DEFAULT)
        if not isinstance(values, list | tuple) or len(values) != length:
            raise self.refusal(key, f"must be a list of {length} entries")
        for value in values:
            if not isinstance(value, str) or value not in choices:
                raise ModelFileError(
                    f"{self._source}: {self._prefix}{key} holds {shown(value)}; supported: {', '.join(choices)}"
                )
        return tuple(values)

    def require(self, key: str, expected: bool | float | str, default: bool | float | str | None = None) -> None:
        """Refuse any value but the one this engine computes; absent counts as `default`, or as the expected value."""
        value = self._values.get(self._prefix + key)
        if value is None:
            value = expected if default is None else default
        if not isinstance(value, bool | int | float | str) or value != expected:
            raise self.refusal(key, f"is not supported; only {shown(expected)} is")

    def refuse(self, key: str, reason: str) -> None:
        if self.has(key):
            raise self.refusal(key, reason)

    def section(self, key: str) -> ConfigReader:
        value = self._get(key, NO_DEFAULT)
        if not isinstance(value, Mapping):
            raise self.refusal(key, "must be an object")
        return ConfigReader(value, f"{self._source}: {self._prefix}{key}")

    def with_defaults(self, **defaults: int | float | bool) -> ConfigReader:
        present = {key: value for key, value in self._values.items() if value is not None}
        return ConfigReader({**defaults, **present}, self._source, self._prefix)

    def without(self, *keys: str) -> ConfigReader:
        kept = {key: value for key, value in self._values.items() if key not in keys}
        return ConfigReader(kept, self._source, self._prefix)

    def refusal(self, key: str, reason: str) -> ModelFileError:
        value = self._values.get(self._prefix + key)
        return ModelFileError(f"{self._source}: {self._prefix}{key} = {shown(value)} {reason}")

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(self._prefix + key)
        if value is not None:
            return value
        if default is NO_DEFAULT:
            raise ModelFileError(f"{self._source}: {self._prefix}{key} is missing")
        return default


def shown(value: object) -> str:
    """A value of a hostile file as it may stand in a one-line message."""
    text = " ".join(reprlib.repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."
