"""What msgspec and its like raise of bytes that do not hold what they should."""

from __future__ import annotations

import msgspec

# Text that is no UTF-8 and lists too deep within lists have errors of Python's own.
UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
