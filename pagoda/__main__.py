"""`python -m pagoda` is the `pagoda` command."""

from __future__ import annotations

import sys

from pagoda.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
