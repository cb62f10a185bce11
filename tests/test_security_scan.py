"""SEC-1, and the house rules that a syntax tree can show, held against every file of pagoda/."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# (path, what) pairs that are let through. It is empty and stays so: SEC-1 knows no exception.
ALLOWED: frozenset[tuple[str, str]] = frozenset()

FORBIDDEN_MODULES = frozenset(
    ["pickle", "_pickle", "cPickle", "pickle5", "cloudpickle", "dill", "marshal", "shelve", "diskcache", "joblib"]
)
FORBIDDEN_ATTRIBUTES = frozenset(
    [
        "torch.load",
        "torch.save",
        "numpy.lib.format.read_array",
        "yaml.load",
        "yaml.load_all",
        "yaml.full_load",
        "yaml.full_load_all",
        "yaml.unsafe_load",
        "yaml.unsafe_load_all",
        "builtins.eval",
        "builtins.exec",
    ]
)
FORBIDDEN_BUILTINS = frozenset(["eval", "exec"])
ENVIRONMENT_READS = frozenset(["os.environ", "os.environb", "os.getenv", "os.getenvb", "os.path.expandvars"])
ENVIRONMENT_READER = "pagoda/core/environment.py"
FORBIDDEN_FILE_NAMES = frozenset(["utils", "util", "helpers", "misc", "common"])
# The position of allow_pickle among the arguments of numpy.load.
NUMPY_LOAD_ALLOW_PICKLE = 2


class Scanner:
    """Finds what one source text must not hold. Names are followed through `import ... as` and `from ... import`."""

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self.known_as: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    local = alias.asname or alias.name.split(".")[0]
                    self.known_as[local] = alias.name if alias.asname else local
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self.known_as[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def findings(self) -> Iterator[tuple[int, str]]:
        """(line, what) for each use of a forbidden module, function or argument."""
        for node in ast.walk(self.tree):
            what: list[str] = []
            if isinstance(node, ast.Import):
                what = [alias.name for alias in node.names if _forbidden_module(alias.name)]
            elif isinstance(node, ast.ImportFrom):
                what = self._from_import(node)
            elif isinstance(node, ast.Name | ast.Attribute):
                what = self._name(node)
            elif isinstance(node, ast.Call):
                what = self._call(node)
            yield from ((getattr(node, "lineno", 0), found) for found in what)

    def environment_reads(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Attribute):
                names = [self._dotted(node)]
            yield from ((getattr(node, "lineno", 0), name) for name in names if name in ENVIRONMENT_READS)

    def _from_import(self, node: ast.ImportFrom) -> list[str]:
        module = node.module or ""
        if _forbidden_module(module):
            return [module]
        names = [f"{module}.{alias.name}" for alias in node.names]
        return [name for name in names if name in FORBIDDEN_ATTRIBUTES or _forbidden_module(name)]

    def _name(self, node: ast.Name | ast.Attribute) -> list[str]:
        if isinstance(node, ast.Name):
            # The bare name counts, not the call alone: `run = eval` is as bad as `eval(...)`.
            return [node.id] if node.id in FORBIDDEN_BUILTINS and node.id not in self.known_as else []
        name = self._dotted(node)
        return [name] if name in FORBIDDEN_ATTRIBUTES else []

    def _call(self, node: ast.Call) -> list[str]:
        found = []
        if any(keyword.arg == "allow_pickle" and not _is_false(keyword.value) for keyword in node.keywords):
            found.append("allow_pickle")
        name = self._dotted(node.func)
        if name == "numpy.load" and len(node.args) > NUMPY_LOAD_ALLOW_PICKLE:
            found += [] if _is_false(node.args[NUMPY_LOAD_ALLOW_PICKLE]) else ["allow_pickle"]
        if name.split(".")[-1] in {"import_module", "__import__"} and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and _forbidden_module(str(first.value)):
                found.append(str(first.value))
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            reached = f"{self._dotted(node.args[0])}.{node.args[1].value}"
            found += [reached] if reached in FORBIDDEN_ATTRIBUTES else []
        return found

    def _dotted(self, node: ast.expr) -> str:
        """The full name an expression reads, such as numpy.load for np.load; empty where it is no plain name."""
        if isinstance(node, ast.Name):
            return self.known_as.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""


def _forbidden_module(name: str) -> bool:
    return name.split(".")[0] in FORBIDDEN_MODULES


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def sources() -> list[Path]:
    found = sorted((REPOSITORY / "pagoda").rglob("*.py"))
    assert found, "no source was found, so nothing was scanned"
    return found


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_nothing_runs_code_found_in_data() -> None:
    found = [
        f"{relative(path)}:{line}: {what}"
        for path in sources()
        for line, what in Scanner(path.read_text(encoding="utf-8")).findings()
        if (relative(path), what) not in ALLOWED
    ]
    assert found == []


def test_the_environment_is_read_in_one_file() -> None:
    found = [
        f"{relative(path)}:{line}: {what}"
        for path in sources()
        if relative(path) != ENVIRONMENT_READER
        for line, what in Scanner(path.read_text(encoding="utf-8")).environment_reads()
    ]
    assert found == []


def test_every_module_says_what_it_is() -> None:
    trees = {relative(path): ast.parse(path.read_text(encoding="utf-8")) for path in sources()}
    assert [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_no_module_is_named_for_nothing() -> None:
    names = {relative(path): {path.stem, *path.relative_to(REPOSITORY).parts} for path in sources()}
    assert [name for name, parts in names.items() if parts & FORBIDDEN_FILE_NAMES] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, marshal",
        "import cloudpickle as safe",
        "from dill import loads",
        "from shelve import open",
        "def late():\n    import diskcache",
        "import importlib\nimportlib.import_module('pickle')",
        "__import__('marshal')",
        "import torch\ntorch.load('x')",
        "import torch as t\nreader = t.load",
        "from torch import load",
        "import torch\ngetattr(torch, 'load')('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x', None, True)",
        "import numpy as np\nflag = True\nnp.load('x', allow_pickle=flag)",
        "from numpy import load\nload('x', None, True)",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "from yaml import unsafe_load",
        "eval('1')",
        "exec('x = 1')",
        "run = eval",
        "import builtins\nbuiltins.exec('x = 1')",
        "from builtins import eval",
    ],
)
def test_the_scanner_catches(source: str) -> None:
    assert list(Scanner(source).findings())


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "self.model.eval().forward(x)",
        "import torch\ntorch.nn.Linear(1, 1)",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "import numpy as np\nnp.load('x', 'r', False)",
        "import yaml\nyaml.safe_load(text)",
        "import json\njson.load(stream)",
        "import re\nre.compile('eval(')",
        "text = 'import pickle'  # eval(x)",
    ],
)
def test_the_scanner_lets_pass(source: str) -> None:
    assert list(Scanner(source).findings()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['HOME']",
        "import os as system\nsystem.getenv('HOME')",
        "from os import environ",
        "from os import getenv as read",
        "import os\nos.path.expandvars('$HOME')",
        "import os\nsettings = {**os.environ}",
    ],
)
def test_an_environment_read_is_caught(source: str) -> None:
    assert list(Scanner(source).environment_reads())


def test_other_uses_of_os_are_no_environment_read() -> None:
    assert (
        list(Scanner("import os\nos.path.join('a', 'b')\nself.os.environ\nos.replace('a', 'b')").environment_reads())
        == []
    )
