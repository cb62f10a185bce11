"""A benchmark as one HTML file that needs nothing but itself."""

from __future__ import annotations

from pagoda.bench.report.page import render_report

__all__ = ["render_report"]
