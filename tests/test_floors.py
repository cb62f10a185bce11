"""Imports point down: the floor list in docs/architecture.md is read and every import in pagoda/ is held against it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
MODULE_NAME = re.compile(r"pagoda(\.\w+)+")
DYNAMIC_IMPORTS = {"import_module", "__import__", "find_spec"}


def read_floors(page: str) -> list[str]:
    """Names from the one block fenced as ``floors``, highest first."""
    blocks = re.findall(r"^```floors\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"docs/architecture.md must hold exactly one floors block, found {len(blocks)}"
    floors = [line.split()[0] for line in blocks[0].splitlines() if line.strip()]
    assert len(floors) == len(set(floors)), "a floor is listed twice"
    return floors


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def resolve_relative(path: Path, root: Path, level: int, target: str) -> str:
    """The absolute name of a relative import written in ``path``; ``level`` counts its leading dots."""
    package = path.parent.relative_to(root).parts
    return ".".join([*package[: len(package) - level + 1], *([target] if target else [])])


class Importer:
    """The imports of one file, each as (line, absolute dotted name)."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path, self.root = path, root
        self.tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))

    def imports(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from self._from_import(node)
            elif isinstance(node, ast.Call) and _called_name(node) in DYNAMIC_IMPORTS:
                yield from self._dynamic_import(node)

    def _from_import(self, node: ast.ImportFrom) -> Iterator[tuple[int, str]]:
        base = node.module or ""
        if node.level:
            base = resolve_relative(self.path, self.root, node.level, base)
        # `from pagoda import engine` names a floor in its alias, so aliases count as part of the name.
        yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)

    def _dynamic_import(self, node: ast.Call) -> Iterator[tuple[int, str]]:
        written = node.args[0] if node.args else None
        if isinstance(written, ast.JoinedStr) and written.values:
            written = written.values[0]
        if isinstance(written, ast.Constant) and isinstance(written.value, str):
            name = written.value
            target = name.lstrip(".")
            if level := len(name) - len(target):
                name = resolve_relative(self.path, self.root, level, target)
            yield node.lineno, name
            return
        # The name is computed: every module name spelt in this file may be the one.
        spelt = [name for name in _string_constants(self.tree) if MODULE_NAME.fullmatch(name)]
        yield from ((node.lineno, name) for name in spelt or ["<computed>"])


def _called_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _string_constants(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def floor_of(name: str, floors: list[str]) -> str | None:
    """The floor a dotted name lies on; None for another package. A public name such as pagoda.LLM lies on `pagoda`."""
    parts = name.rstrip(".").split(".")
    if parts[0] != "pagoda":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in floors else "pagoda"


def upward_imports(root: Path, floors: list[str]) -> list[str]:
    """One line for each import under ``root``/pagoda that points up or cannot be checked."""
    height = {floor: len(floors) - index for index, floor in enumerate(floors)}
    found = []
    for path in sorted((root / "pagoda").rglob("*.py")):
        if path == root / "pagoda" / "__main__.py":
            continue
        own = floor_of(module_name(path, root), floors)
        assert own is not None
        for line, name in Importer(path, root).imports():
            target = floor_of(name, floors)
            where = f"{path.relative_to(root)}:{line}"
            if name == "<computed>":
                found.append(f"{where}: imports a computed name, which cannot be checked")
            elif target is not None and height[target] > height[own]:
                found.append(f"{where}: {own} imports {name}, which lies on the higher floor {target}")
    return found


def unlisted(root: Path, floors: list[str]) -> list[str]:
    """What lies in ``root``/pagoda on no floor: folders that are not listed, and loose modules."""
    package = root / "pagoda"
    folders = [entry.name for entry in package.iterdir() if entry.is_dir() and entry.name != "__pycache__"]
    modules = [entry.name for entry in package.glob("*.py") if entry.name not in {"__init__.py", "__main__.py"}]
    return sorted([name for name in folders if name not in floors] + modules)


@pytest.fixture(scope="module")
def floors() -> list[str]:
    return read_floors((REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8"))


def test_every_import_points_down(floors: list[str]) -> None:
    assert upward_imports(REPOSITORY, floors) == []


def test_every_folder_is_a_listed_floor(floors: list[str]) -> None:
    assert unlisted(REPOSITORY, floors) == []


FAKE_FLOORS = ["cli", "pagoda", "engine", "models", "core"]


def write_tree(root: Path, files: dict[str, str]) -> None:
    for floor in FAKE_FLOORS:
        folder = root / "pagoda" / ("" if floor == "pagoda" else floor)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    for name, source in files.items():
        path = root / "pagoda" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("models/llama.py", "import pagoda.engine.loop"),
        ("models/llama.py", "import numpy, pagoda.engine as machine"),
        ("models/llama.py", "from pagoda.engine.loop import Loop"),
        ("models/llama.py", "from pagoda import engine"),
        ("models/llama.py", "from pagoda import LLM"),
        ("models/llama.py", "import pagoda"),
        ("models/llama.py", "def build():\n    from pagoda.engine import loop\n    return loop"),
        ("models/llama.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pagoda.cli import main"),
        ("models/llama.py", "try:\n    import pagoda.cli.main\nexcept ImportError:\n    pass"),
        ("models/llama.py", "from .. import engine"),
        ("models/llama.py", "from ..engine import loop"),
        ("models/layers/rope.py", "from ...engine.loop import Loop"),
        ("models/layers/__init__.py", "from ...engine import loop"),
        ("models/__init__.py", "from ..cli import main"),
        ("models/llama.py", "import importlib\nimportlib.import_module('pagoda.engine.loop')"),
        ("models/llama.py", "from importlib import import_module\nimport_module('..engine', __package__)"),
        ("models/llama.py", "def load(verb):\n    return import_module(f'pagoda.cli.{verb}')"),
        ("models/llama.py", "PLACES = {'loop': 'pagoda.engine.loop'}\nimport_module(PLACES['loop'])"),
        ("models/llama.py", "__import__('pagoda.engine')"),
        ("models/llama.py", "def load(name):\n    return import_module(name)"),
        ("__init__.py", "from pagoda.cli.main import main"),
    ],
)
def test_an_upward_import_is_caught(tmp_path: Path, file: str, source: str) -> None:
    write_tree(tmp_path, {file: source})
    found = upward_imports(tmp_path, FAKE_FLOORS)
    assert len(found) == 1
    assert found[0].startswith(f"pagoda/{file}:")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("engine/loop.py", "from pagoda.models.llama import Llama\nfrom pagoda.core import errors"),
        ("models/llama.py", "from pagoda.models.layers import rope\nfrom .layers import norm\nfrom . import registry"),
        ("models/layers/rope.py", "from ...core.errors import PagodaError\nfrom .. import registry"),
        ("models/__init__.py", "from .llama import Llama"),
        ("models/registry.py", "def load(family):\n    return import_module(f'pagoda.models.{family}')"),
        ("cli/run.py", "from pagoda import LLM"),
        (
            "__init__.py",
            "from pagoda.engine.llm import LLM\nPLACES = {'LLM': 'pagoda.engine.llm'}\nimport_module(PLACES['LLM'])",
        ),
        ("__main__.py", "from pagoda.cli.main import main"),
        ("core/errors.py", "import numpy\nfrom pagodas import engine\nNAME = 'pagoda.engine'"),
    ],
)
def test_a_downward_import_passes(tmp_path: Path, file: str, source: str) -> None:
    write_tree(tmp_path, {file: source})
    assert upward_imports(tmp_path, FAKE_FLOORS) == []


def test_an_unlisted_folder_or_loose_module_is_caught(tmp_path: Path) -> None:
    write_tree(tmp_path, {"managers/pool.py": "", "version.py": ""})
    assert unlisted(tmp_path, FAKE_FLOORS) == ["managers", "version.py"]


def test_the_list_is_read_from_its_fence_alone() -> None:
    page = "# Page\n\n```\nother  block\n```\n\n```floors\ncli   verbs\ncore  nouns\n```\n"
    assert read_floors(page) == ["cli", "core"]
