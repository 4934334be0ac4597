"""Run a service that publishes what the next minor version would: `python -m tests.support.next_minor MODULE …`."""

from __future__ import annotations

import json
import runpy
import sys

from tests.support.minors import next_minor

from kinema_core.events import Event, encode
from kinema_core.runtime import framing


def encode_next(event: Event) -> bytes:
    """Encode an event as the next minor version would."""
    return json.dumps(next_minor(json.loads(encode(event))), separators=(",", ":")).encode()


if __name__ == "__main__":
    vars(framing)["encode"] = encode_next
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
