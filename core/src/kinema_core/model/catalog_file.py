"""Reading a price catalog: CSV with a header, each cell checked and named in what goes wrong."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal, TypeVar

from kinema_core.events import EMPTY, Amounts, FrozenMap, Labels, Quota
from kinema_core.model.match import parse_taint, taint_text
from kinema_core.model.quantity import LIMIT, QuantityError, parse_amount

T = TypeVar("T")

GIB: Final = 2**30
MAX_PODS: Final = 110
"""Pods on a new node of a type that no live node is of, where its row does not say otherwise: the kubelet's default."""
MICRO: Final = 10**6
REQUIRED: Final = ("machine_type", "vcpus", "memory_gib", "usd_per_hour")
OPTIONAL: Final = (
    "zone",
    "capacity_type",
    "gpus",
    "gpu_resource",
    "labels",
    "taints",
    "allocatable_cpu_m",
    "allocatable_memory_bytes",
    "max_pods",
    "watts",
    "available",
    "committed",
    "committed_usd_per_hour",
    "extended",
)
_WRITTEN: Final = (
    "zone",
    "capacity_type",
    "labels",
    "taints",
    "allocatable_cpu_m",
    "allocatable_memory_bytes",
    "max_pods",
    "available",
    "committed",
    "committed_usd_per_hour",
    "extended",
)
_DEAREST: Final = 100_000
"""USD per hour or W of one machine, at most: far above any, and the sum over 90,000 of them is exact as a float."""
_DATE: Final = re.compile(r"^#.*?\b(\d{4}-\d\d-\d\d)\b", re.MULTILINE)
_DECIMAL: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}")
_WHOLE: Final = re.compile(r"[0-9]{1,19}")
_RESOURCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_NAME: Final = re.compile(r"[^\s/#,;=\x00-\x1f]+")
_SEPARATORS: Final = {";": "semicolons", "\t": "tabs", "|": "bars"}
_MALFORMED: Final = (
    ("unexpected end of data", "a quotation mark is opened and not closed again: close it"),
    ("expected after", "text follows a closing quotation mark: write a quotation mark inside a cell twice"),
    ("field limit", "a cell is longer than any value: close its quotation mark, or take it out"),
    ("new-line character", "a line ends within a cell: put the cell into quotation marks"),
)
"""What the CSV reader says, and what that means."""


class CatalogError(ValueError):
    """A catalog cannot be used: names line, column and what to do."""


@dataclass(frozen=True)
class CatalogRow:
    """One row: a machine, its price in micro-USD per hour, and what is said of it beyond the provider's formula.

    `zone` None: every zone. `vcpus` is exact, as shared cores are fractions. `extended` holds GPUs too.
    """

    line: int
    machine_type: str
    vcpus: Fraction
    memory: int
    micro_usd_per_hour: int
    zone: str | None = None
    capacity_type: Literal["on-demand", "spot"] = "on-demand"
    labels: Labels = EMPTY
    denied: frozenset[str] = frozenset()
    """Keys of labels that new nodes do not have, whatever live ones have."""
    taints: tuple[str, ...] = ()
    allocatable_cpu: int | None = None
    allocatable_memory: int | None = None
    max_pods: int | None = None
    watts: float | None = None
    available: int | None = None
    committed: int | None = None
    """How many are paid for already, live ones included; None: no commitment."""
    committed_micro_usd_per_hour: int = 0
    """What is left to pay for each of those."""
    extended: Amounts = EMPTY
    quotas: tuple[Quota, ...] = ()
    """Limits of the provider that it shares with other rows; a file has none."""

    @property
    def capacity(self) -> Amounts:
        """What the whole machine has."""
        pods = MAX_PODS if self.max_pods is None else self.max_pods
        return FrozenMap({"cpu": int(self.vcpus * 1000), "memory": self.memory, "pods": pods, **self.extended})


def dated(text: str) -> datetime | None:
    """From when the prices are: the first date in a remark, as a copy of a file is newer than what it says."""
    for found in _DATE.findall(text):
        with suppress(ValueError):
            return datetime.fromisoformat(found).replace(tzinfo=UTC)
    return None


def parse_catalog(text: str) -> tuple[CatalogRow, ...]:
    """Return the rows of a catalog, in file order.

    Raises:
        CatalogError: a column is missing, unknown or doubled, a cell cannot be read, or two rows sell the same.
    """
    rows = tuple(_row(row) for row in read_rows(text, REQUIRED, OPTIONAL))
    for row in rows:
        _check_allocatable(row)
        _check_committed(row)
    _check_alike(rows)
    return rows


def catalog_text(rows: Iterable[CatalogRow], priced: datetime | None, source: str) -> str:
    """Return a catalog that reads as these rows; its first line says from when and where the prices are."""
    text = io.StringIO()
    text.write(f"# prices of {priced:%Y-%m-%d}: {source}\n" if priced is not None else f"# {source}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*REQUIRED, *_WRITTEN))
    for row in rows:
        gib, usd = Decimal(row.memory) / GIB, Decimal(row.micro_usd_per_hour) / MICRO
        pairs = (row.labels, row.extended)
        labels, extended = (";".join(f"{key}={value}" for key, value in found.items()) for found in pairs)
        amounts = (row.allocatable_cpu, row.allocatable_memory, row.max_pods, row.available, row.committed)
        cells = ("" if amount is None else str(amount) for amount in amounts)
        paid = Decimal(row.committed_micro_usd_per_hour) / MICRO
        tier = f"{paid.normalize():f}" if paid else ""
        vcpus = f"{float(row.vcpus):g}"
        taints = ";".join(row.taints)
        size = (row.machine_type, vcpus, f"{gib.normalize():f}", f"{usd.normalize():f}")
        writer.writerow((*size, row.zone or "", row.capacity_type, labels, taints, *cells, tier, extended))
    return text.getvalue()


def read_rows(text: str, required: Sequence[str], optional: Sequence[str]) -> Iterator[CatalogLine]:
    """Yield the lines of a CSV file whose first line names its columns.

    Raises:
        CatalogError: a column is missing, unknown or doubled, or a line has another number of cells.
    """
    lines = _cells(text)
    header = next(lines, None)
    if header is None:
        raise CatalogError(f"the catalog is empty: its first line names the columns, at least {', '.join(required)}")
    columns = [name.strip() for name in header[1]]
    _check_header(header[0], columns, required, optional)
    for line, cells in lines:
        if len(cells) != len(columns):
            raise CatalogError(
                f"catalog line {line} has {len(cells)} cells, the header {len(columns)}: make them equal"
            )
        yield CatalogLine(line, {name: cell.strip() for name, cell in zip(columns, cells, strict=True)})


def _check_allocatable(row: CatalogRow) -> None:
    """Check that what pods may use of a machine is part of it; GiB may be rounded, by 1% at most."""
    for column, part, whole, most in (
        ("allocatable_cpu_m", row.allocatable_cpu, "vcpus", int(row.vcpus * 1000)),
        ("allocatable_memory_bytes", row.allocatable_memory, "memory_gib", row.memory + row.memory // 100),
    ):
        if part is not None and part > most:
            raise CatalogError(
                f"catalog line {row.line}, column {column}: '{part}': more than the machine has by its {whole}: "
                "write what a node of the type reports as allocatable, or leave it empty"
            )


def _check_committed(row: CatalogRow) -> None:
    """Check that what is paid for already is a part of what there is, and no dearer than the rest."""
    if row.committed is not None and row.available is not None:
        raise CatalogError(
            f"catalog line {row.line} has both committed and available: leave available empty, or give "
            "the limited machines a line of their own"
        )
    if row.committed_micro_usd_per_hour and row.committed is None:
        raise CatalogError(f"catalog line {row.line} has committed_usd_per_hour: say how many in the column committed")
    if row.committed is not None and row.committed_micro_usd_per_hour > row.micro_usd_per_hour:
        raise CatalogError(
            f"catalog line {row.line}, column committed_usd_per_hour: dearer than usd_per_hour: write what each costs "
            "beyond what is paid in any case, 0 where nothing"
        )


def _check_alike(rows: Iterable[CatalogRow]) -> None:
    """Two rows may sell the same machine in pools that differ, or a limited number of it at another price."""
    first: dict[tuple[object, ...], CatalogRow] = {}
    for row in rows:
        if row.available is not None:
            continue
        kind = row.machine_type, row.zone, row.capacity_type, row.labels, row.denied, row.taints
        other = first.setdefault(kind, row)
        if other is not row:
            where = f" in {row.zone}" if row.zone else ""
            raise CatalogError(
                f"catalog lines {other.line} and {row.line} both sell {row.machine_type}{where}, {row.capacity_type}: "
                "take one out, or distinguish them by labels, taints or available"
            )


def _cells(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each line that is neither blank nor a remark (`# …`)."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    read = 0
    try:
        for cells in reader:
            read = reader.line_num
            if any(cell.strip() for cell in cells) and not cells[0].startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        said = next((text for found, text in _MALFORMED if found in str(error)), f"{error}: write plain CSV")
        raise CatalogError(f"catalog line {read + 1}: {said}") from error


def _check_header(line: int, columns: list[str], required: Sequence[str], optional: Sequence[str]) -> None:
    known = (*required, *optional)
    other = next((sign for sign in _SEPARATORS if len(columns) == 1 and sign in columns[0]), None)
    if other is not None:
        raise CatalogError(
            f"catalog line {line} is separated by {_SEPARATORS[other]}: write commas between the cells, and points in "
            f"numbers, as in 0.25; the first line names the columns, at least {', '.join(required)}"
        )
    for problem, names in (
        ("lacks the column", [name for name in required if name not in columns]),
        ("has the unknown column", sorted({name for name in columns if name not in known})),
        ("has twice the column", sorted({name for name in columns if columns.count(name) > 1})),
    ):
        if names:
            said = f"the catalog {problem} {', '.join(map(repr, names))} in its header, line {line}"
            raise CatalogError(f"{said}: separate by commas, known are {', '.join(known)}")


def _row(row: CatalogLine) -> CatalogRow:
    gpus = row.optional("gpus", _whole) or 0
    device = row.optional("gpu_resource", _resource) or "nvidia.com/gpu"
    extended = {**({device: gpus} if gpus else {}), **(row.optional("extended", _extended) or {})}
    return CatalogRow(
        line=row.line,
        machine_type=row.required("machine_type", _name),
        vcpus=row.required("vcpus", _positive),
        memory=row.required("memory_gib", _gibibytes),
        micro_usd_per_hour=row.required("usd_per_hour", read_price),
        zone=row.optional("zone", _name),
        capacity_type=row.optional("capacity_type", read_capacity_type) or "on-demand",
        labels=row.optional("labels", _labels) or EMPTY,
        denied=row.optional("labels", _denied) or frozenset(),
        taints=row.optional("taints", _taints) or (),
        allocatable_cpu=row.optional("allocatable_cpu_m", _whole),
        allocatable_memory=row.optional("allocatable_memory_bytes", _whole),
        max_pods=row.optional("max_pods", _whole),
        watts=row.optional("watts", _watts),
        available=row.optional("available", _whole),
        committed=row.optional("committed", _whole),
        committed_micro_usd_per_hour=row.optional("committed_usd_per_hour", micro_usd) or 0,
        extended=FrozenMap(extended) if extended else EMPTY,
    )


class CatalogLine:
    """The cells of one line by column; an empty cell is no value."""

    def __init__(self, line: int, cells: Mapping[str, str]) -> None:
        self.line = line
        self._cells = cells

    def optional(self, column: str, read: Callable[[str], T]) -> T | None:
        """Return what a cell says, None for an empty one; raises CatalogError."""
        text = self._cells.get(column, "")
        if not text:
            return None
        try:
            return read(text)
        except ValueError as error:
            raise CatalogError(f"catalog line {self.line}, column {column}: {text!r}: {error}") from error

    def required(self, column: str, read: Callable[[str], T]) -> T:
        """Return what a cell says; raises CatalogError, also for an empty one."""
        value = self.optional(column, read)
        if value is None:
            raise CatalogError(f"catalog line {self.line}, column {column} is empty: give every machine one")
        return value


# --- one reader per form of cell; each raises ValueError with what to write instead


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("write a name without spaces and without any of / # , ; =")
    return text


def _resource(text: str) -> str:
    if not _RESOURCE.fullmatch(text):
        raise ValueError("write a resource's name such as nvidia.com/gpu")
    return text


def decimal(text: str) -> Fraction:
    """Return a plain decimal number of 0 or more, exact.

    Raises:
        ValueError: it is none.
    """
    if not _DECIMAL.fullmatch(text):
        raise ValueError("write a plain decimal number of 0 or more, such as 0.25")
    return Fraction(text)


def _positive(text: str) -> Fraction:
    number = decimal(text)
    if not number:
        raise ValueError("write a number above 0")
    return number


def _gibibytes(text: str) -> int:
    found = int(_positive(text) * GIB)
    if found > LIMIT:
        raise ValueError("write GiB, which no machine has so many of")
    return found


def micro_usd(text: str) -> int:
    """USD as whole micro-USD, rounded half up.

    Raises:
        ValueError: the text is no plain decimal number of 0 or more, or one that no machine costs.
    """
    return int(_of_a_machine(text, "costs", "USD per hour") * MICRO + Fraction(1, 2))


def _of_a_machine(text: str, verb: str, unit: str) -> Fraction:
    found = decimal(text)
    if found > _DEAREST:
        raise ValueError(f"no machine {verb} more than {_DEAREST:,} {unit}: write {unit}, of one machine")
    return found


def read_price(text: str) -> int:
    """Return micro-USD of a price above 0; raises ValueError."""
    price = micro_usd(text)
    if not price:
        raise ValueError("a price of 0 would make every plan want this machine: write USD per hour above 0")
    return price


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text) or int(text) > LIMIT:
        raise ValueError("write a whole number of 0 or more")
    return int(text)


def _watts(text: str) -> float:
    return float(_of_a_machine(text, "draws", "W"))


def read_capacity_type(text: str) -> Literal["on-demand", "spot"]:
    """Return a capacity type; raises ValueError."""
    if text == "on-demand":
        return "on-demand"
    if text == "spot":
        return "spot"
    raise ValueError("write on-demand or spot")


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


def _pair(part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"{part!r} is no name=value")
    return key.strip(), value.strip()


def _labels(text: str) -> Labels:
    return FrozenMap(dict(_pair(part) for part in _parts(text) if not _denies(part)))


def _denied(text: str) -> frozenset[str]:
    return frozenset(part[:-1] for part in _parts(text) if _denies(part))


def _denies(part: str) -> bool:
    """Return whether it is `key-`, as kubectl takes a label away."""
    return part.endswith("-") and "=" not in part and len(part) > 1


def _taints(text: str) -> tuple[str, ...]:
    return tuple(taint_text(parse_taint(part)) for part in _parts(text))


def _extended(text: str) -> Amounts:
    found: dict[str, int] = {}
    for part in _parts(text):
        name, amount = _pair(part)
        if name in ("cpu", "memory", "pods"):
            raise ValueError(f"{name} has its own column")
        try:
            found[_resource(name)] = parse_amount(name, amount)
        except QuantityError as error:
            raise ValueError(str(error)) from error
    return FrozenMap(found)
