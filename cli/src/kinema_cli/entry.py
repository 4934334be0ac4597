"""Where `kinema` begins: nothing is loaded before an interrupt would be told in one line."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path


def run() -> None:
    """Entry point of `kinema` and `kubectl-kinema`."""
    began = time.monotonic()  # a time limit counts from here, before anything is imported
    try:
        from kinema_cli.main import app

        app(prog_name=Path(sys.argv[0]).name, obj=began)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.stderr.write(f"the output cannot be written: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left of it would be tried once more at the end
        sys.exit(1)
