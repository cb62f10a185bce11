"""Numbers and tables as printed."""

from __future__ import annotations

import pytest

from pagoda.cli.formatting import format_bytes, format_count, format_table


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (98_362_432, "98.4 MB"),
        (999_960, "1.0 MB"),
        (3 * 10**12, "3000.0 GB"),
    ],
)
def test_bytes(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("number", "text"), [(24, "24"), (1000, "1k"), (134_515_008, "135M"), (999_600, "1M"), (8_030_261_248, "8.03B")]
)
def test_counts(number: int, text: str) -> None:
    assert format_count(number) == text


def test_tables() -> None:
    assert format_table([("A", "LONG"), ("wide", "x")]) == "A     LONG\nwide  x"
