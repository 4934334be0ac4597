"""Scenario of a simulation: a YAML file, read and checked before anything runs. `docs/simulate.md` describes it.

Unknown keys are refused. A fault names the file, the place in it, and what is expected there.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from kinema_core.model.match import parse_taint
from kinema_core.model.quantity import QuantityError, parse_amount
from kinema_sim.cloud.machines import ZONES, Offer, load_offers
from kinema_sim.load.model import PROFILES
from kinema_sim.simulate.reading import DURATION, ReadingError, parse, pod_faults

_DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
SCHEMA: Final = "kinema.scenario/v1"
MOST: Final = 100_000
"""Of anything that is counted: a machine could not hold more of it, and clusters have less."""
LONGEST_DAYS: Final = 3650
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MOST)]
Number: TypeAlias = Annotated[int, Meta(ge=1, le=MOST)]
Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
Series: TypeAlias = tuple[tuple[int, int, int | None], ...]
"""(Milliseconds, millicores, bytes) of a recorded usage; None: half of the memory that is requested."""
Points: TypeAlias = tuple[tuple[str, Count], ...]


class ScenarioError(Exception):
    """A scenario cannot be used; the text names the file, the place in it and what is expected."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything in a scenario."""


class Nodes(_Part, frozen=True, kw_only=True):
    """Nodes that are there at the beginning."""

    type: str
    zone: str = ZONES[0]
    count: Number = 1
    control_plane: bool = False
    """It is never deleted; pods may run on it."""
    name: str = ""
    """Of a single node; by default a number."""
    spot: bool = False
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    """As `key=value:NoSchedule`."""


class Machine(_Part, frozen=True, kw_only=True):
    """A machine type on sale, beside the price list that comes with the simulator."""

    type: Annotated[str, Meta(min_length=1)]
    vcpus: Number
    memory: str
    usd_per_hour: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    watts: Count = 0
    reserved: bool = True
    """The provider keeps its share of CPU and memory (as GKE does); without, all is allocatable."""
    allocatable_cpu: str = ""
    allocatable_memory: str = ""
    """What is allocatable, where it is known; both or neither."""
    zones: tuple[str, ...] = ()
    """Where it is sold; empty: everywhere."""
    spot: bool = False
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    """Labels and taints of its nodes."""


class Cloud(_Part, frozen=True, kw_only=True):
    """What can be bought."""

    types: tuple[str, ...] = ()
    """Machine types on sale; empty: all of the price list."""
    zones: tuple[str, ...] = ZONES
    machines: tuple[Machine, ...] = ()
    available: dict[str, Count] = {}
    """Machine type → how many more can be had in each zone."""


class Daemon(_Part, frozen=True, kw_only=True):
    """A daemon set that runs on every node."""

    name: Name
    namespace: Name = "kube-system"
    cpu: str
    memory: str
    pod: dict[str, Any] = {}
    """Fields of the pods' spec as Kubernetes has them; without, they tolerate everything."""


class Workload(_Part, frozen=True, kw_only=True):
    """A Deployment, or several alike."""

    name: Name
    namespace: Name = "shop"
    count: Number = 1
    """Deployments of this kind; from the second one on they have a number behind the name."""
    cpu: str
    memory: str
    cpu_limit: str = ""
    memory_limit: str = ""
    """Limits of its container; none without. A pod that uses more memory than its limit is killed."""
    replicas: Count | Points = 1
    """A number, or `[time, replicas]` points: from each point on so many, before the first one none.
    Points after the end are never reached."""
    usage: str = ""
    """CSV file of the recorded usage of one pod: columns `seconds`, `cpu_m` and, as you like, `memory_mi`. Default: a
    fifth of the CPU and half of the memory that it requests."""
    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    max_unavailable: str | int | None = None
    """Of a disruption budget; none without."""
    min_available: str | int | None = None
    """The same, one or the other."""
    spread: Literal["", "zone", "node"] = ""
    """Pods are spread evenly, as a rule."""
    local_storage: bool = False
    """Pods have an emptyDir."""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    """Labels of the pods; by default `app` with the name."""
    pod_annotations: dict[str, str] = {}
    pod: dict[str, Any] = {}
    """Fields of the pods' spec as Kubernetes has them: `nodeSelector`, `affinity`, `tolerations`, …"""
    places: dict[str, Count] = {}
    """Node → how many of the pods are on it at the beginning; the scheduler places the others."""
    grace: str = "30s"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the Deployments of this kind."""
        return (self.name, *(f"{self.name}-{index}" for index in range(2, self.count + 1)))


class Application(_Part, frozen=True, kw_only=True):
    """An example application under the load of virtual users."""

    name: Literal["teastore", "online-boutique"]
    users: str | Points
    """`linear`, `spike` or `random` of the thesis, or `[time, users]` points, straight lines between them."""
    after: str = "0s"
    """When the users of a named load begin."""
    min_replicas: Count = 0
    """Of every service that scales; 0: as the application comes."""
    max_replicas: Count = 0
    fixed_replicas: Count = 0
    """Of every service that does not scale; 0: as the application comes."""
    requests: Annotated[int, Meta(ge=1, le=1000)] = 100
    """Requests in per cent of the application's own."""


class Arrival(_Part, frozen=True, kw_only=True):
    """Pods that arrive and leave."""

    at: str
    lasts: str
    """Running time, from when it runs: a pod that waits ends later."""
    cpu: str
    memory: str = "0"
    count: Number = 1


class Trace(_Part, frozen=True, kw_only=True):
    """Pods that arrive and leave, by a file with the columns `at`, `lasts` (seconds), `cpu_m`, `memory_mi`."""

    file: str
    speed: Annotated[float, Meta(gt=0, le=1_000_000)] = 1.0
    """Times are divided by it."""
    most: Annotated[int, Meta(ge=1)] | None = None
    """Rows that are read."""
    held: bool = False
    """No policy may move these pods."""


class Fault(_Part, frozen=True, kw_only=True):
    """Something that goes wrong."""

    kind: Literal["zone-down", "stock-out", "node-lost", "cordon"]
    at: str
    lasts: str = "0s"
    zone: str = ""
    type: str = ""
    node: str = ""


class Phase(_Part, frozen=True, kw_only=True):
    """A part of the time, with figures of its own."""

    name: Name
    start: str
    end: str


class Scenario(_Part, frozen=True, kw_only=True):
    """A whole scenario."""

    schema: Literal["kinema.scenario/v1"] = "kinema.scenario/v1"
    name: Name
    about: str = ""
    duration: str
    past: str = "0s"
    """How long ago the series began: recommenders know so much of them at the beginning."""
    cloud: Cloud = Cloud()
    nodes: tuple[Nodes, ...]
    daemons: tuple[Daemon, ...] = ()
    workloads: tuple[Workload, ...] = ()
    applications: tuple[Application, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    traces: tuple[Trace, ...] = ()
    faults: tuple[Fault, ...] = ()
    phases: tuple[Phase, ...] = ()
    idle_percent: Annotated[int, Meta(ge=0, le=100)] = 20
    """CPU usage of pods without a load or a series, in per cent of their requests."""
    resize_in_place: bool = False
    """Whether kubelets change requests of pods that run, as those of Kubernetes 1.33 and newer do."""


class Row(msgspec.Struct, frozen=True):
    """A pod of a trace, times in milliseconds since the beginning."""

    at_ms: int
    lasts_ms: int
    cpu_m: int
    memory: int
    held: bool = False


class Loaded(msgspec.Struct, frozen=True):
    """A scenario with what its files contain."""

    scenario: Scenario
    arrivals: tuple[Row, ...]
    series: dict[str, Series]
    """By file."""
    sources: dict[str, bytes]
    """Contents of the scenario and of all files that it names, by name."""


def milliseconds(text: str) -> int:
    """Return a duration such as `90s`, `1h30m` or `7d`, up to `LONGEST_DAYS`, in milliseconds; raises ValueError."""
    found = _DURATION.fullmatch(text)
    if not text or found is None or not any(found.groups()):
        message = f"{DURATION}, got {text!r}"
        raise ValueError(message)
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total > LONGEST_DAYS * 86_400:
        message = f"expected a duration of at most {LONGEST_DAYS}d, got {text!r}"
        raise ValueError(message)
    return round(total * 1000)


def read_scenario(path: Path) -> Loaded:
    """Read a scenario and the files that it names.

    Raises:
        ScenarioError: the first fault.
    """
    return load_scenario(path.name, lambda name: (path.parent / name).read_bytes(), path)


def load_scenario(name: str, read: Callable[[str], bytes], path: Path) -> Loaded:
    """Read a scenario and the files that it names, each by `read`; `path` is what errors begin with.

    Raises:
        ScenarioError: the first fault.
    """
    data = _bytes(read, name, f"{path}")
    try:
        scenario = parse(data, Scenario)
    except ReadingError as error:
        raise ScenarioError(f"{path}: {error}") from error
    for place, problem in _faults(scenario):
        raise ScenarioError(f"{path}: {place}: {problem}")
    sources = {name: data}
    rows = [row for index, one in enumerate(scenario.arrivals) for row in _rows_of(one)]
    for index, trace in enumerate(scenario.traces):
        sources[trace.file] = _bytes(read, trace.file, f"{path}: traces[{index}].file: {path.parent / trace.file}")
        rows += _trace(sources[trace.file], trace, f"{path}: traces[{index}].file {trace.file}")
    series = {}
    for index, workload in enumerate(scenario.workloads):
        if workload.usage and workload.usage not in series:
            where = f"workloads[{index}].usage"
            sources[workload.usage] = _bytes(read, workload.usage, f"{path}: {where}: {path.parent / workload.usage}")
            series[workload.usage] = _series(sources[workload.usage], f"{path}: {where} {workload.usage}")
    rows.sort(key=lambda row: (row.at_ms, row.lasts_ms, row.cpu_m, row.memory))
    return Loaded(scenario, tuple(rows), series, sources)


def _bytes(read: Callable[[str], bytes], name: str, where: str) -> bytes:
    try:
        return read(name)
    except OSError as error:
        raise ScenarioError(f"{where}: {error.strerror}; name a file that can be read") from error


def _faults(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield what no type can refuse, by place."""
    for place, text in _durations(scenario):
        try:
            milliseconds(text)
        except ValueError as error:
            yield place, str(error)
    for place, text in _taints(scenario):
        try:
            parse_taint(text)
        except ValueError as error:
            yield place, str(error)
    for place, resource, text in _quantities(scenario):
        try:
            parse_amount(resource, text)
        except QuantityError as error:
            yield place, f"expected an amount such as {'250m' if resource == 'cpu' else '512Mi'}: {error}"
    for name in ("daemons", "workloads"):
        for index, one in enumerate(getattr(scenario, name)):
            yield from ((f"{name}[{index}].pod.{place}", problem) for place, problem in pod_faults(one.pod))
    yield from _unknown_names(scenario)
    yield from _contradictions(scenario)


def _durations(scenario: Scenario) -> Iterator[tuple[str, str]]:
    yield "duration", scenario.duration
    yield "past", scenario.past
    for index, workload in enumerate(scenario.workloads):
        yield f"workloads[{index}].grace", workload.grace
        if not isinstance(workload.replicas, int):
            yield from ((f"workloads[{index}].replicas[{i}]", at) for i, (at, _) in enumerate(workload.replicas))
    for index, app in enumerate(scenario.applications):
        yield f"applications[{index}].after", app.after
        if not isinstance(app.users, str):
            yield from ((f"applications[{index}].users[{i}]", at) for i, (at, _) in enumerate(app.users))
    for name in ("arrivals", "faults"):
        for index, one in enumerate(getattr(scenario, name)):
            yield f"{name}[{index}].at", one.at
            yield f"{name}[{index}].lasts", one.lasts
    for index, phase in enumerate(scenario.phases):
        yield f"phases[{index}].start", phase.start
        yield f"phases[{index}].end", phase.end


def _taints(scenario: Scenario) -> Iterator[tuple[str, str]]:
    given = [(f"nodes[{i}].taints", one.taints) for i, one in enumerate(scenario.nodes)]
    given += [(f"cloud.machines[{i}].taints", one.taints) for i, one in enumerate(scenario.cloud.machines)]
    yield from ((f"{place}[{i}]", text) for place, taints in given for i, text in enumerate(taints))


def _quantities(scenario: Scenario) -> Iterator[tuple[str, str, str]]:
    for name in ("daemons", "workloads", "arrivals"):
        for index, one in enumerate(getattr(scenario, name)):
            yield f"{name}[{index}].cpu", "cpu", one.cpu
            yield f"{name}[{index}].memory", "memory", one.memory
    for index, workload in enumerate(scenario.workloads):
        yield f"workloads[{index}].cpu_limit", "cpu", workload.cpu_limit or "0"
        yield f"workloads[{index}].memory_limit", "memory", workload.memory_limit or "0"
    for index, machine in enumerate(scenario.cloud.machines):
        yield f"cloud.machines[{index}].memory", "memory", machine.memory
        if machine.allocatable_cpu or machine.allocatable_memory:
            yield f"cloud.machines[{index}].allocatable_cpu", "cpu", machine.allocatable_cpu
            yield f"cloud.machines[{index}].allocatable_memory", "memory", machine.allocatable_memory


def _unknown_names(scenario: Scenario) -> Iterator[tuple[str, str]]:
    known = {offer.machine_type for offer in load_offers()} | {one.type for one in scenario.cloud.machines}
    wanted = f"expected one of {', '.join(sorted(known))}"
    named = [(f"cloud.types[{i}]", name) for i, name in enumerate(scenario.cloud.types)]
    named += [(f"cloud.available.{name}", name) for name in scenario.cloud.available]
    named += [(f"nodes[{i}].type", one.type) for i, one in enumerate(scenario.nodes)]
    named += [(f"faults[{i}].type", one.type) for i, one in enumerate(scenario.faults) if one.type]
    yield from ((place, f"{wanted}, got {name!r}") for place, name in named if name not in known)
    zones = scenario.cloud.zones
    placed = [(f"nodes[{i}].zone", one.zone) for i, one in enumerate(scenario.nodes)]
    placed += [(f"faults[{i}].zone", one.zone) for i, one in enumerate(scenario.faults) if one.zone]
    placed += [(f"cloud.machines[{i}].zones", z) for i, one in enumerate(scenario.cloud.machines) for z in one.zones]
    yield from ((at, f"expected one of {', '.join(zones)}, got {zone!r}") for at, zone in placed if zone not in zones)
    nodes = set(node_names(scenario))
    meant = [(f"faults[{i}].node", one.node) for i, one in enumerate(scenario.faults) if one.node]
    meant += [(f"workloads[{i}].places", node) for i, one in enumerate(scenario.workloads) for node in one.places]
    yield from ((at, f"expected a node of the scenario, got {node!r}") for at, node in meant if node not in nodes)
    for index, app in enumerate(scenario.applications):
        if isinstance(app.users, str) and app.users not in PROFILES:
            yield f"applications[{index}].users", f"expected points, or one of {', '.join(PROFILES)}, got {app.users!r}"


def _contradictions(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if not scenario.nodes:
        yield "nodes", "expected one node or more: a policy begins with a cluster"
    yield from _contradictions_in_time(scenario)
    for name, found in (("workloads", scenario.workloads), ("daemons", scenario.daemons), ("phases", scenario.phases)):
        names = [(getattr(one, "namespace", ""), one.name) for one in found]
        again = next((i for i, one in enumerate(names) if one in names[:i]), None)
        if again is not None:
            yield f"{name}[{again}].name", f"expected a name of its own, {names[again][1]!r} is taken"
    yield from _contradictions_of_nodes(scenario)
    for index, workload in enumerate(scenario.workloads):
        if workload.max_unavailable is not None and workload.min_available is not None:
            yield f"workloads[{index}].min_available", "expected one of max_unavailable and min_available"
        yield from ((f"workloads[{index}].{place}", problem) for place, problem in _contradictions_in_amounts(workload))


def _contradictions_in_amounts(workload: Workload) -> Iterator[tuple[str, str]]:
    for resource, asked, limit in (
        ("cpu", workload.cpu, workload.cpu_limit),
        ("memory", workload.memory, workload.memory_limit),
    ):
        if limit and parse_amount(resource, limit) < parse_amount(resource, asked):
            yield f"{resource}_limit", f"expected {asked} or more, the {resource} that it requests, got {limit}"
    replicas = workload.replicas
    most = replicas if isinstance(replicas, int) else max(count for _, count in replicas)
    if workload.count * most > MOST:
        yield "count", f"expected at most {MOST} pods in all, got {workload.count} times {most}"


def _contradictions_of_nodes(scenario: Scenario) -> Iterator[tuple[str, str]]:
    taken = list(node_names(scenario))
    again = next((i for i, one in enumerate(scenario.nodes) if one.name and taken.count(one.name) > 1), None)
    if again is not None:
        yield (
            f"nodes[{again}].name",
            f"expected a name of its own for one node, {scenario.nodes[again].name!r} is taken",
        )
    for index, fault in enumerate(scenario.faults):
        if fault.kind == "zone-down" and not fault.zone:
            yield f"faults[{index}].zone", "expected the zone that goes down"
        if fault.kind in ("node-lost", "cordon") and not fault.node:
            yield f"faults[{index}].node", f"expected the node of the {fault.kind}"


def node_names(scenario: Scenario) -> Iterator[str]:
    """Yield the names of the nodes that are there at the beginning, in order."""
    number = 0
    for one in scenario.nodes:
        for _ in range(one.count):
            number += 1
            yield one.name or f"node-{number:03d}"


def _contradictions_in_time(scenario: Scenario) -> Iterator[tuple[str, str]]:
    end = milliseconds(scenario.duration)
    if not end:
        yield "duration", f"expected more than 0, got {scenario.duration!r}"
    for index, phase in enumerate(scenario.phases):
        if not milliseconds(phase.start) < milliseconds(phase.end) <= end:
            yield f"phases[{index}]", f"expected start before end, and end within {scenario.duration}"
    given: list[tuple[str, str | int | Points]] = [
        (f"workloads[{i}].replicas", one.replicas) for i, one in enumerate(scenario.workloads)
    ]
    given += [(f"applications[{i}].users", one.users) for i, one in enumerate(scenario.applications)]
    for place, points in given:
        if not isinstance(points, tuple):
            continue
        times = [milliseconds(at) for at, _ in points]
        if not times or any(late <= early for early, late in pairwise(times)):
            yield place, "expected points by rising time, one at least"
        elif place.endswith("replicas") and times[0] >= end:
            yield place, f"expected a first point within {scenario.duration}, got {points[0][0]}"


def _rows_of(one: Arrival) -> list[Row]:
    row = Row(
        milliseconds(one.at),
        milliseconds(one.lasts),
        parse_amount("cpu", one.cpu),
        parse_amount("memory", one.memory),
    )
    return [row] * one.count


def _table(
    data: bytes, columns: tuple[str, ...], where: str, *, optional: tuple[str, ...] = ()
) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield line and figures of a CSV file."""
    reader = csv.DictReader(StringIO(data.decode("utf-8-sig", errors="replace")))
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise ScenarioError(f"{where}: expected the columns {', '.join(columns)}; {', '.join(missing)} is missing")
    columns = (*columns, *(name for name in optional if name in (reader.fieldnames or ())))
    for number, row in enumerate(reader, 2):
        try:
            found = {name: float(row[name]) for name in columns}
        except (TypeError, ValueError) as error:
            raise ScenarioError(f"{where}: line {number}: expected numbers in {', '.join(columns)}") from error
        if not all(0 <= value < inf for value in found.values()):
            raise ScenarioError(f"{where}: line {number}: expected numbers from 0 on")
        if None in row:
            raise ScenarioError(
                f"{where}: line {number}: expected {len(reader.fieldnames or ())} values, as in the header"
            )
        yield number, found


def _trace(data: bytes, trace: Trace, where: str) -> list[Row]:
    found = []
    for _, row in _table(data, ("at", "lasts", "cpu_m", "memory_mi"), where):
        at, lasts = round(row["at"] * 1000 / trace.speed), round(row["lasts"] * 1000 / trace.speed)
        found.append(Row(at, lasts, round(row["cpu_m"]), round(row["memory_mi"] * 2**20), trace.held))
        if len(found) == trace.most:
            break
    return found


def _series(data: bytes, where: str) -> Series:
    found = [
        (
            round(row["seconds"] * 1000),
            round(row["cpu_m"]),
            round(row["memory_mi"] * 2**20) if "memory_mi" in row else None,
        )
        for _, row in _table(data, ("seconds", "cpu_m"), where, optional=("memory_mi",))
    ]
    if not found or any(late[0] <= early[0] for early, late in pairwise(found)):
        raise ScenarioError(f"{where}: expected rows by rising seconds, one at least")
    return tuple(found)


def _measured(one: Machine) -> tuple[int, int] | None:
    if not one.allocatable_cpu:
        return None
    return parse_amount("cpu", one.allocatable_cpu), parse_amount("memory", one.allocatable_memory)


def offers_of(cloud: Cloud) -> tuple[Offer, ...]:
    """Return what the cloud sells."""
    own = [
        Offer(
            machine_type=one.type,
            zone=zone,
            capacity_type="spot" if one.spot else "on-demand",
            vcpus=one.vcpus,
            memory_bytes=parse_amount("memory", one.memory),
            usd_micro=round(one.usd_per_hour * 10**6),
            watts=one.watts,
            reserved=one.reserved,
            measured=_measured(one),
            labels=tuple(sorted(one.labels.items())),
            taints=one.taints,
        )
        for one in cloud.machines
        for zone in one.zones or cloud.zones
    ]
    listed = [offer for offer in load_offers(cloud.zones) if not cloud.types or offer.machine_type in cloud.types]
    named = {one.type for one in cloud.machines}
    kept = [] if cloud.machines and not cloud.types else [one for one in listed if one.machine_type not in named]
    return (*kept, *(one for one in own if not cloud.types or one.machine_type in cloud.types))
