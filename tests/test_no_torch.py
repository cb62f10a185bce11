"""The CPU path needs no framework: a fresh interpreter imports it, and answers, without torch or any test oracle."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
HEAVY = frozenset(
    [
        "torch",
        "triton",
        "transformers",
        "safetensors",
        "gguf",
        "sentencepiece",
        "huggingface_hub",
        "matplotlib",
        "scipy",
    ]
)

IMPORT_THE_FRONT_DOORS = """
import pagoda
from pagoda import LLM, AsyncLLM, SamplingParams
import pagoda.cli.main
"""

# kernels/cuda and executor/cuda are the places where torch may be imported.
IMPORT_EVERY_MODULE = """
import importlib, pkgutil, pagoda
def cuda(name): return name.startswith(("pagoda.kernels.cuda", "pagoda.executor.cuda")) or name == "pagoda.__main__"
names = [module.name for module in pkgutil.walk_packages(pagoda.__path__, "pagoda.") if not cuda(module.name)]
assert len(names) > 20, names
for name in names:
    importlib.import_module(name)
"""

ANSWER = """
from pagoda import LLM, SamplingParams
sampling = SamplingParams(max_tokens=2, temperature=0)
[output] = LLM({model!r}).generate(["The capital of France is"], sampling, use_tqdm=False)
assert len(output.outputs[0].token_ids) == 2
"""


def imported_packages(code: str) -> set[str]:
    """The top-level names in sys.modules after ``code`` ran in an interpreter of its own."""
    report = 'import sys\nprint("\\n".join(sorted({name.split(".")[0] for name in sys.modules})))'
    run = subprocess.run(
        [sys.executable, "-c", f"{textwrap.dedent(code)}\n{report}"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_the_check_sees_an_import() -> None:
    assert "decimal" in imported_packages("import decimal")


def test_the_front_doors_import_no_framework() -> None:
    found = imported_packages(IMPORT_THE_FRONT_DOORS)
    assert "pagoda" in found
    assert found & HEAVY == set()


def test_no_module_of_the_cpu_path_imports_a_framework() -> None:
    assert imported_packages(IMPORT_EVERY_MODULE) & HEAVY == set()


@pytest.mark.slow
def test_an_answer_imports_no_framework(smollm2_path: Path) -> None:
    found = imported_packages(ANSWER.format(model=str(smollm2_path)))
    assert {"pagoda", "numpy"} <= found
    assert found & HEAVY == set()
