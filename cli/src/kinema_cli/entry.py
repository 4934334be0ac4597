"""Entry point of the command; imports nothing heavy before an interrupt can be reported in one line."""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
import time
from pathlib import Path


def run() -> None:
    """Run `kinema`, or `kubectl kinema` as a plugin of kubectl."""
    began = time.monotonic()  # a time limit counts from here, before anything is imported
    try:
        from kinema_cli.main import app
        from kinema_core.runtime.collector import spare_the_collector

        spare_the_collector()
        plugin = Path(sys.argv[0]).name.startswith("kubectl-")
        app(prog_name="kubectl kinema" if plugin else "kinema", obj=began)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except ModuleNotFoundError as error:
        if importlib.util.find_spec("kinema_sim") is not None:
            raise
        sys.stderr.write(f"error: this command needs {error.name}, which the image kinema-admin does not hold\n")
        sys.stderr.write("hint: use the image kinema-cli, in Compose by KINEMA_TOOLS=cli\n")
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest of the output once more when it exits
        sys.exit(1)
