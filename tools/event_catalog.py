"""Write `docs/events.md` from the structs in `kinema_core.events`, or check that it is up to date.

    python tools/event_catalog.py            write it
    python tools/event_catalog.py --check    exit 1 when it is not what would be written

Order, docstrings, fields and defaults come from the structs, the publishers of an event from the broker's rights.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from kinema_core.events import BODIES, PREFIX, Body, Plan, bodies, codec, execution, objects, plan
from kinema_core.events import body as body_module
from kinema_core.runtime.bus import STREAM_OF_FAMILY
from kinema_core.runtime.topology import PUBLISHES

DOC: Final = Path(__file__).resolve().parent.parent / "docs" / "events.md"

FAMILIES: Final = {
    "state": "what the cluster is",
    "usage": "what workloads used",
    "plan": "what is to be done, and why not",
    "exec": "what is being done",
    "control": "what the operator asks for",
    "dlq": "what could not be handled",
}


@dataclass(frozen=True)
class Field:
    """One field of a struct as its source declares it; `default` is None where there is none."""

    name: str
    annotation: str
    default: str | None
    meaning: str


@dataclass(frozen=True)
class Struct:
    """One struct as its source declares it, without what it inherits."""

    name: str
    bases: tuple[str, ...]
    meaning: str
    fields: tuple[Field, ...]


@cache
def structs(module: ModuleType) -> tuple[Struct, ...]:
    """Return the classes of a module in order of their source, which is read once: it is asked for each field."""
    return tuple(
        Struct(
            name=node.name,
            bases=tuple(ast.unparse(base) for base in node.bases),
            meaning=ast.get_docstring(node) or "",
            fields=tuple(_fields(node)),
        )
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef)
    )


def _fields(node: ast.ClassDef) -> Iterator[Field]:
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(item, ast.AnnAssign) or "ClassVar" in ast.unparse(item.annotation):
            continue
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        name, default = _wire_name(item)
        yield Field(name=name, annotation=ast.unparse(item.annotation), default=default, meaning=str(text))


def _wire_name(item: ast.AnnAssign) -> tuple[str, str | None]:
    """The field's name on the wire and its default: `msgspec.field(name=...)` renames without giving a default."""
    name = ast.unparse(item.target)
    if isinstance(item.value, ast.Call) and ast.unparse(item.value.func) == "msgspec.field":
        given = {word.arg: ast.unparse(word.value) for word in item.value.keywords}
        return ast.literal_eval(given.get("name", repr(name))), given.get("default")
    return name, None if item.value is None else ast.unparse(item.value)


def aliases(module: ModuleType) -> Iterator[Field]:
    """Yield the type aliases of a module: name, meaning, and documentation."""
    body = ast.parse(inspect.getsource(module)).body
    for item, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign) and ast.unparse(item.annotation) == "TypeAlias" and item.value is not None:
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield Field(
                name=ast.unparse(item.target), annotation=ast.unparse(item.value), default=None, meaning=str(text)
            )


def publishers(body: type[Body] | type[Plan]) -> str:
    """Return the services with the right to publish such an event."""
    users = [user for user, own in PUBLISHES.items() if body in own]
    services = [user for user in PUBLISHES if user != "operator"]
    return "every service" if users == services else ", ".join(users)


def catalog() -> str:
    """The whole document."""
    known = {item.name: item for module in (bodies, execution, plan, objects, codec) for item in structs(module)}
    events = {body.__name__ for body in BODIES}
    nested = [name for name, item in known.items() if name not in events and item.fields and not name.startswith("_")]
    nested.remove("Event")
    shown = [*sorted(events), *nested]
    lines = [
        "# Events",
        "",
        "<!-- Written by tools/event_catalog.py from the structs: change those, then run it. -->",
        "",
        f"Subject of an event: `{PREFIX}.<cluster>.<family>.<kind>.<version>`. How events travel, and what a released",
        "one may never do, is in [architecture.md](architecture.md#events).",
        "",
        *_overview(),
        "## Envelope",
        "",
        *_struct(known["Event"], known, shown),
    ]
    for family, meaning in FAMILIES.items():
        lines += [f"## {family}: {meaning}", ""]
        for body in BODIES:
            if family == body.FAMILY:
                lines += [
                    f"### {body.TYPE}",
                    "",
                    f'<a id="{body.__name__.lower()}"></a>Published by: {publishers(body)}.',
                    "",
                ]
                lines += _struct(known[body.__name__], known, shown)
    lines += ["## Values inside events", ""]
    for name in nested:
        lines += [f"### {name}", "", *_struct(known[name], known, shown)]
    lines += ["## Names of types", ""]
    lines += _table(
        ("name", "stands for", "meaning"),
        [
            (f"`{alias.name}`", _linked(alias.annotation, ()), " ".join(alias.meaning.split()))
            for module in (objects, plan, body_module, bodies, execution)
            for alias in aliases(module)
        ],
    )
    return "\n".join(lines).rstrip() + "\n"


def _overview() -> list[str]:
    rows = [
        (
            f"[`{body.TYPE}`](#{body.__name__.lower()})",
            STREAM_OF_FAMILY[body.FAMILY],
            body.FAMILY,
            publishers(body),
        )
        for body in BODIES
    ]
    return [*_table(("event", "stream", "family", "published by"), rows), ""]


def _struct(item: Struct, known: dict[str, Struct], shown: Sequence[str]) -> list[str]:
    fields = _all_fields(item, known)
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", item.meaning)
    rows = [
        (f"`{field.name}`", _linked(field.annotation, shown), "" if field.default is None else f"`{field.default}`")
        for field in fields
    ]
    head: tuple[str, ...] = ("field", "type", "default")
    if not any(field.meaning for field in fields):
        return [text, "", *_table(head, rows), ""]
    explained = [(*row, " ".join(field.meaning.split())) for row, field in zip(rows, fields, strict=True)]
    return [text, "", *_table((*head, "meaning"), explained), ""]


def _all_fields(item: Struct, known: dict[str, Struct]) -> list[Field]:
    inherited = [field for base in item.bases if base in known for field in _all_fields(known[base], known)]
    return inherited + list(item.fields)


def _linked(annotation: str, shown: Sequence[str]) -> str:
    """The annotation as code; names of structs in the document become links."""
    names = [name for name in re.findall(r"\w+", annotation) if name in shown]
    code = f"`{annotation}`".replace("|", "\\|")
    links = ", ".join(f"[{name}](#{name.lower()})" for name in dict.fromkeys(names))
    return f"{code} ({links})" if links else code


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [" ".join(["|", *(f"{cell} |" if cell else "|" for cell in line)]) for line in lines]


def write_or_check(document: Path, wanted: str, arguments: Sequence[str], tool: str) -> int:
    """Write the document, or with `--check` say whether it is what the tool would write; returns the exit code."""
    if "--check" not in arguments:
        document.write_text(wanted, encoding="utf-8")
        return 0
    if document.exists() and document.read_text(encoding="utf-8") == wanted:
        return 0
    sys.stderr.write(f"{document} is not up to date: run `python tools/{tool}`\n")
    return 1


def main(arguments: Sequence[str]) -> int:
    """Write the document, or with `--check` say whether it is up to date."""
    return write_or_check(DOC, catalog(), arguments, "event_catalog.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
