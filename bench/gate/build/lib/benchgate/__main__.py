"""``python -m benchgate`` is the same as the command ``benchgate``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
