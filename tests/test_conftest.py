"""The integrity hook of conftest.py is seen at work: a fresh run of pytest fails where an owner's books are wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

SUITE = """
import pytest
from hypothesis import given, strategies

class Owner:
    broken = False
    def check_integrity(self):
        assert not self.broken, "the books are wrong"

@pytest.fixture(scope="module")
def owner(): return Owner()

def test_in_order(owner, integrity): integrity.add(owner)

@given(strategies.booleans())
def test_property(flag): pass

def test_breaks(owner): owner.broken = True

def test_after(owner): pass
"""


def test_a_broken_owner_fails_the_test_that_broke_it(tmp_path: Path) -> None:
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "-rA", "--rootdir=."]
    run = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True)
    assert "ERROR test_suite.py::test_breaks - AssertionError: the books are wrong" in run.stdout
    assert "4 passed, 1 error" in run.stdout
