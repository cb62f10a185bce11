"""Numbers and tables as the verbs print them."""

from __future__ import annotations

from collections.abc import Sequence


def format_bytes(num_bytes: int) -> str:
    """Decimal units, as model sizes are usually given."""
    size = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95 or unit == "GB":
            break
        size /= 1000
    return f"{num_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def format_count(number: int) -> str:
    """A number of parameters, such as 135M."""
    size = float(number)
    for unit in ("", "k", "M", "B"):
        if size < 999.5 or unit == "B":
            break
        size /= 1000
    return f"{size:.3g}{unit}"


def format_table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
