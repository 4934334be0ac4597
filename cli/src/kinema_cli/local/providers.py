"""`--provider KIND=WHERE`, as the rescheduler's setting."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kinema_cli.inputs import InputError, UsageError

_PLACES: Final = {"sim": "url", "kwok": "catalog", "delegate": "catalog", "static": "inventory"}
"""Kind of provider → the setting that its location is."""


def provider_setting(text: str) -> dict[str, object]:
    """Return the rescheduler's setting for `KIND=LOCATION`; raises UsageError, and InputError without the file."""
    kind, equals, where = text.partition("=")
    if kind not in _PLACES or not equals or not where:
        forms = ", ".join(f"{kind}={place.upper()}" for kind, place in _PLACES.items())
        raise UsageError(f"--provider {text!r}: write one of {forms}")
    if kind == "sim":
        address = urlsplit(where)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise UsageError(f"--provider {text!r}: {where!r} is no http or https address")
        return {"kind": kind, "url": where}
    if not Path(where).is_file():
        raise InputError(f"--provider {text}: no such file")
    return {"kind": kind, _PLACES[kind]: str(Path(where).resolve())}
