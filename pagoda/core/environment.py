"""The one place that reads environment variables: each is typed and documented here, and a bad value is refused."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pagoda.core.errors import InvalidRequest


@dataclass(frozen=True)
class Variable:
    name: str
    meaning: str
    default: str


PAGODA_HOME = Variable("PAGODA_HOME", "folder that holds the model store", "$XDG_DATA_HOME/pagoda")
XDG_DATA_HOME = Variable("XDG_DATA_HOME", "folder for a user's data files", "~/.local/share")

PAGODA_API_KEY = Variable("PAGODA_API_KEY", "key that clients of `pagoda serve` must send", "none: everybody may call")

VARIABLES = (PAGODA_HOME, XDG_DATA_HOME, PAGODA_API_KEY)


def pagoda_home() -> Path:
    """The folder of the model store. It need not exist yet; an empty variable counts as unset."""
    home = _absolute_folder(PAGODA_HOME)
    if home is not None:
        return home
    data_home = _absolute_folder(XDG_DATA_HOME)
    if data_home is not None:
        return data_home / "pagoda"
    return _user_home() / ".local" / "share" / "pagoda"


def api_key() -> str | None:
    """The one key of a server that has no file of keys; an empty variable counts as unset."""
    return os.environ.get(PAGODA_API_KEY.name) or None


def variable_of(field: str) -> str:
    return f"PAGODA_{field.upper()}"


def serve_variables(fields: Iterable[str]) -> dict[str, str]:
    """Settings of `pagoda serve` by field name: PAGODA_PORT stands for --port, and so on."""
    names = {field: variable_of(field) for field in fields}
    return {field: os.environ[name] for field, name in names.items() if os.environ.get(name)}


def child_environment(**overrides: str) -> dict[str, str]:
    """This process's environment with some variables replaced, for a program started from here."""
    return {**os.environ, **overrides}


def _absolute_folder(variable: Variable) -> Path | None:
    value = os.environ.get(variable.name, "")
    if not value:
        return None
    path = Path(value)
    # A relative value would name a different store in every working folder.
    if not path.is_absolute():
        raise InvalidRequest(variable.name, f"must be an absolute path, not {value!r}")
    if path.exists() and not path.is_dir():
        raise InvalidRequest(variable.name, f"{value!r} is not a folder")
    return path


def _user_home() -> Path:
    try:
        home = Path.home()
    except RuntimeError:
        raise InvalidRequest(PAGODA_HOME.name, "must be set, because this user has no home folder") from None
    if not home.is_absolute():
        raise InvalidRequest("HOME", f"must be an absolute path, not {str(home)!r}")
    return home
