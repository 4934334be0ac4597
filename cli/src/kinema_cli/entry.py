"""Where `kinema` begins: nothing is loaded before an interrupt would be told in one line."""

from __future__ import annotations

import sys
from pathlib import Path


def run() -> None:
    """Entry point of `kinema` and `kubectl-kinema`."""
    try:
        from kinema_cli.main import app

        app(prog_name=Path(sys.argv[0]).name)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
