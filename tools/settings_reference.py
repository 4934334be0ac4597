"""Write `docs/settings.md` from the settings structs of the services, or check that it is up to date.

    python tools/settings_reference.py            write it
    python tools/settings_reference.py --check    exit 1 when it is not what would be written

Names, types and defaults are those of the structs, the meaning is what stands below each field, the unit is in the
name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, time
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Annotated, Final, Literal, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

# As a script this file finds its neighbors, in a test it is part of a package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.event_catalog import structs, write_or_check

from kinema_core.ranges import range_text
from kinema_core.runtime.settings import RuntimeSettings

DOC: Final = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
SERVICES: Final = ("observer", "predictor", "optimizer", "decider", "rescheduler")
_UNITS: Final = {
    "_seconds": "s",
    "_watt_hours": "Wh",
    "_usd": "USD",
    "_watts": "W",
    "_mib": "MiB",
    "_percent": "%",
}
_PLAIN: Final[dict[object, str]] = {
    str: "text",
    float: "number",
    int: "whole number",
    bool: "true or false",
    NoneType: "null",
    datetime: "time (RFC 3339)",
    time: "time of day",
}
_INTRO: Final = """\
# Settings

<!-- Written by tools/settings_reference.py from the structs: change those, then run it. -->

Each service reads one JSON file (`python -m kinema_<service> --settings FILE`). `kinema up --settings FILE` takes one
for all, JSON or YAML, by service: `decider: {limits: {approval: automatic}}`. A dot leads into an object. Unknown names
are refused, and so is what is out of range; the error names the place. Seconds are those of the cluster's clock, which
is the real one beside a real cluster.

A variable of the environment overrides one setting of a service: `KINEMA__RUNTIME__NATS_URL=nats://broker:4222` sets
`runtime.nats_url`, with `__` for each dot. Text is written as it is, everything else as JSON:
`KINEMA__RUNTIME__HEALTH_PORT=8081`, `KINEMA__LIMITS__APPROVAL=required`. With such variables no file is needed. An
error names the variable.

Where the meaning says that another service needs the same value, `kinema up`, `kinema doctor --nats` and
the notes of the chart `kinema` name the settings that differ."""
_HEAD: Final = ("setting", "type", "unit", "default", "meaning")


class _Part:
    """The section of one service, or of the values inside its settings."""

    def __init__(self, title: str, owner: str, kind: type[msgspec.Struct]) -> None:
        self.title = title
        self._owner = owner
        self._kind = kind
        self.inside: dict[type[msgspec.Struct], None] = {}
        """Structs that have a section of their own, in order of mention."""

    def lines(self) -> Iterator[str]:
        """The section."""
        yield from ("", f"{'##' if self.title == self._owner else '###'} {self.title}", "")
        yield from (_meaning(self._kind), "")
        for row in (_HEAD, ["---"] * len(_HEAD), *self._rows(self._kind, "")):
            yield " ".join(["|", *(f"{cell} |" if cell else "|" for cell in row)])

    def _rows(self, kind: type[msgspec.Struct], prefix: str) -> Iterator[Sequence[str]]:
        tag = kind.__struct_config__.tag
        if tag is not None:
            yield f"`{kind.__struct_config__.tag_field}`", f'`"{tag}"`', "", "", "Kind of provider."
        texts = fields_of(kind)
        for field in msgspec.structs.fields(kind):
            name = prefix + field.encode_name
            if field.type is RuntimeSettings:
                yield (
                    f"`{name}`",
                    "[runtime](#runtime)",
                    "",
                    "",
                    "Connection to the broker, health endpoint, logs and clock.",
                )
            elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
                yield from self._rows(field.type, f"{name}.")
            else:
                yield f"`{name}`", self._type(field.type), _unit(name), _default(field), texts.get(field.name, "")

    def _type(self, kind: object) -> str:
        """A type in words; a struct becomes a link to its section."""
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            self.inside[kind] = None
            return f"[{kind.__name__}](#{self._owner}-{kind.__name__.lower()})"
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Literal:
            return " or ".join(f'`"{value}"`' for value in inner)
        if origin is Annotated:
            return f"{self._type(inner[0])} ({range_text(kind)})"
        if origin is tuple:
            return f"list of {self._type(inner[0])}"
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return f"{self._type(inner[1])} by name"
        return _PLAIN[kind] if kind in _PLAIN else " or ".join(self._type(one) for one in inner)


def _meaning(kind: type[msgspec.Struct]) -> str:
    return " ".join((kind.__doc__ or "").split())


def fields_of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstring below each field, its own and inherited ones."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if issubclass(one, msgspec.Struct) and one is not msgspec.Struct:
            (source,) = [item for item in structs(sys.modules[one.__module__]) if item.name == one.__name__]
            found.update({field.name: " ".join(field.meaning.split()) for field in source.fields})
    return found


def _unit(name: str) -> str:
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")


def _default(field: FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return f"`{msgspec.json.encode(value).decode()}`"


def reference() -> str:
    """The whole document."""
    lines = [_INTRO]
    for title, kind in (
        ("runtime", RuntimeSettings),
        *((name, import_module(f"kinema_{name}.settings").Settings) for name in SERVICES),
    ):
        part = _Part(title, title, kind)
        lines += part.lines()
        waiting = list(part.inside)
        for inner in waiting:
            own = _Part(f"{title}: {inner.__name__}", title, inner)
            lines += own.lines()
            waiting += [one for one in own.inside if one not in waiting]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the document, or with `--check` say whether it is up to date."""
    return write_or_check(DOC, reference(), arguments, "settings_reference.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
