"""A scenario as a simulated cluster: objects, loads, arrivals and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from kinema_core.model.match import parse_taints
from kinema_core.model.quantity import parse_amount
from kinema_sim.cloud.machines import Offer
from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import DAEMON_SET, DEPLOYMENT, HPA, NAMESPACE, NODE, PDB, POD, STATEFUL_SET, Kind
from kinema_sim.engine.objects import Obj, annotations_of, labels_of, namespace_of, phase_of
from kinema_sim.engine.store import Change
from kinema_sim.load.generator import WORKLOAD
from kinema_sim.load.model import PROFILES, Application, Profile, load_application
from kinema_sim.scenarios.objects import App, daemon_set, deployment, hpa, namespace, pdb, stateful_set
from kinema_sim.simulate.scenario import Application as Load
from kinema_sim.simulate.scenario import Fault, Loaded, Nodes, Row, Workload, milliseconds, node_names, offers_of

JOBS = "trace"
"""Namespace of pods that arrive and leave."""
_MIB = 2**20
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_HELD = {"kinema.io/do-not-move": "true"}
_HELD_PODS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
_PLACED_MS = 60_000
"""Time in which a stateful set has created the pods that are there at the beginning, one after the other."""


def build(loaded: Loaded, seed: int) -> Cluster:
    """Build the cluster of a scenario at its beginning; everything that is to come is scheduled in its virtual time."""
    scenario = loaded.scenario
    apps = tuple(_application(one) for one in scenario.applications)
    sim = Cluster(
        seed,
        apps=apps,
        offers=offers_of(scenario.cloud),
        window=1,
        recorded=False,
        metered=bool(scenario.applications),
        idle_percent=scenario.idle_percent,
    )
    sim.contend()
    if scenario.resize_in_place:
        sim.resize_in_place()
    for name, count in scenario.cloud.available.items():
        sim.cloud.available |= {offer.name: count for offer in sim.cloud.offers.values() if offer.machine_type == name}
    spaces = {one.namespace for one in scenario.workloads} | {one.namespace for one in scenario.daemons}
    spaces |= {app.namespace for app in apps}
    for name in sorted(spaces | {"default", "kube-system", JOBS}):
        sim.store.create(NAMESPACE, namespace(name))
    for daemon in scenario.daemons:
        app = App(daemon.name, daemon.namespace, "sim", parse_amount("cpu", daemon.cpu), _mib(daemon.memory))
        draft = daemon_set(app)
        draft["spec"]["template"]["spec"].update(daemon.pod)
        sim.store.create(DAEMON_SET, draft)
    _adopt_nodes(sim, loaded)
    sim.store.admit_with(_Places(sim, scenario.workloads).admit)
    for workload in scenario.workloads:
        _install(sim, workload, loaded)
    for load, application in zip(scenario.applications, apps, strict=True):
        _install_application(sim, load, application)
    if loaded.arrivals:
        Arrivals(sim, loaded.arrivals)
    for fault in scenario.faults:
        _schedule(sim, fault)
    return sim


def _mib(text: str) -> int:
    return -(-parse_amount("memory", text) // _MIB)


def _adopt_nodes(sim: Cluster, loaded: Loaded) -> None:
    names = node_names(loaded.scenario)
    for nodes in loaded.scenario.nodes:
        offer = _offer(sim, nodes, loaded)
        labels = {**nodes.labels, **({_CONTROL_PLANE: ""} if nodes.control_plane else {})}
        taints = [{"key": one.key, "value": one.value, "effect": one.effect} for one in parse_taints(nodes.taints)]
        for _ in range(nodes.count):
            sim.cloud.adopt(next(names), offer, labels=labels, taints=taints)


def _offer(sim: Cluster, nodes: Nodes, loaded: Loaded) -> Offer:
    """Return the machine of nodes: what is on sale, or a type that is not on sale any more."""
    found = sim.cloud.offers.get(f"{nodes.type}/{nodes.zone}/{'spot' if nodes.spot else 'on-demand'}")
    if found is not None:
        return found
    everything = offers_of(msgspec.structs.replace(loaded.scenario.cloud, types=()))
    alike = [one for one in everything if one.machine_type == nodes.type]
    return next((one for one in alike if one.zone == nodes.zone), alike[0])


class _Places:
    """Binds the pods that are there at the beginning to the nodes that the scenario names, as their creator could."""

    def __init__(self, sim: Cluster, workloads: Iterable[Workload]) -> None:
        self._sim = sim
        self._until = sim.loop.now_ms + _PLACED_MS
        self._left: dict[str, list[str]] = {
            f"{one.namespace}/{one.name}": [node for node, count in one.places.items() for _ in range(count)]
            for one in workloads
            if one.places
        }

    def admit(self, kind: Kind, obj: Obj) -> None:
        """Bind a pod at its creation."""
        left = self._left.get(annotations_of(obj).get(WORKLOAD, "")) if kind is POD else None
        if left and self._sim.loop.now_ms <= self._until:
            node = left.pop(0)
            if self._sim.store.get(NODE, "", node) is not None:
                obj["spec"]["nodeName"] = node


# --- workloads


def _install(sim: Cluster, workload: Workload, loaded: Loaded) -> None:
    for name in workload.names:
        points = ((("0s", workload.replicas)),) if isinstance(workload.replicas, int) else workload.replicas
        own = {WORKLOAD: f"{workload.namespace}/{name}"} if workload.usage or workload.places else {}
        app = App(
            name,
            workload.namespace,
            "sim",
            cpu_m=parse_amount("cpu", workload.cpu),
            memory_mi=_mib(workload.memory),
            cpu_limit_m=parse_amount("cpu", workload.cpu_limit) if workload.cpu_limit else 0,
            memory_limit_mi=_mib(workload.memory_limit) if workload.memory_limit else 0,
            replicas=points[0][1] if milliseconds(points[0][0]) == 0 else 0,
            annotations=workload.annotations,
            labels=workload.labels,
            pod_annotations={**workload.pod_annotations, **own},
            grace_seconds=max(1, milliseconds(workload.grace) // 1000),
        )
        kind = STATEFUL_SET if workload.kind == "StatefulSet" else DEPLOYMENT
        draft = stateful_set(app) if kind is STATEFUL_SET else deployment(app)
        _with_rules(draft, workload, app)
        sim.store.create(kind, draft)
        if workload.max_unavailable is not None:
            sim.store.create(PDB, pdb(app, maxUnavailable=workload.max_unavailable))
        if workload.min_available is not None:
            sim.store.create(PDB, pdb(app, minAvailable=workload.min_available))
        for at, replicas in points:
            if milliseconds(at):
                sim.loop.after(milliseconds(at), _scaling(sim, kind, (workload.namespace, name), replicas))
        if workload.usage:
            past_ms = milliseconds(loaded.scenario.past)
            sim.load.record(f"{workload.namespace}/{name}", loaded.series[workload.usage], past_ms=past_ms)


def _with_rules(draft: Obj, workload: Workload, app: App) -> None:
    spec = draft["spec"]["template"]["spec"]
    spec.update(workload.pod)
    if workload.spread:
        key = {"zone": "topology.kubernetes.io/zone", "node": "kubernetes.io/hostname"}[workload.spread]
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": app.selected},
            }
        ]
    if workload.local_storage:
        spec["volumes"] = [{"name": "files", "emptyDir": {}}]


def _scaling(sim: Cluster, kind: Kind, key: tuple[str, str], replicas: int) -> Callable[[], None]:
    def scale() -> None:
        def change(draft: Obj) -> None:
            draft["spec"]["replicas"] = replicas

        sim.store.edit(kind, key, change)

    return scale


# --- applications


def _application(load: Load) -> Application:
    found = load_application(load.name)
    services = tuple(
        msgspec.structs.replace(
            one,
            cpu_m=-(-one.cpu_m * load.requests // 100),
            memory_mi=-(-one.memory_mi * load.requests // 100),
            min=(load.min_replicas or one.min) if one.max > one.min else (load.fixed_replicas or one.min),
            max=(load.max_replicas or one.max) if one.max > one.min else (load.fixed_replicas or one.max),
        )
        for one in found.services
    )
    return msgspec.structs.replace(found, services=services)


def _install_application(sim: Cluster, load: Load, application: Application) -> None:
    for service in application.services:
        app = App(
            service.name,
            application.namespace,
            "sim",
            cpu_m=service.cpu_m,
            memory_mi=service.memory_mi,
            cpu_limit_m=service.cpu_limit_m,
            memory_limit_mi=service.memory_limit_mi,
            replicas=service.min,
            ready_seconds=service.ready_seconds,
        )
        sim.store.create(DEPLOYMENT, deployment(app))
        if service.max > service.min:
            sim.store.create(HPA, hpa(app, low=service.min, high=service.max))
    profile = PROFILES[load.users] if isinstance(load.users, str) else _profile(load.users)
    sim.loop.after(milliseconds(load.after), lambda: sim.load.follow(application.name, profile))


def _profile(points: tuple[tuple[str, int], ...]) -> Profile:
    return Profile(tuple((milliseconds(at) // 1000, users) for at, users in points))


# --- pods that arrive and leave


@dataclass
class _Guest:
    """A pod of the trace: one replica of a Deployment, which is deleted when the pod has run for long enough."""

    lasts_ms: int
    leaves: bool = False


@dataclass
class Arrivals:
    """Lets pods arrive, and leave after their running time, however often they were moved within it."""

    sim: Cluster
    rows: tuple[Row, ...]
    next: int = 0
    guests: dict[str, _Guest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = self.sim.loop.now_ms
        self.sim.store.subscribe(self._note)
        self._arm()

    def _arm(self) -> None:
        if self.next < len(self.rows):
            self.sim.loop.at(self.start + self.rows[self.next].at_ms, self._arrive)

    def _arrive(self) -> None:
        while self.next < len(self.rows) and self.start + self.rows[self.next].at_ms <= self.sim.loop.now_ms:
            row = self.rows[self.next]
            self.next += 1
            name = f"job-{self.next:06d}"
            self.guests[name] = _Guest(row.lasts_ms)
            held, marks = (_HELD, _HELD_PODS) if row.held else ({}, {})
            app = App(
                name,
                JOBS,
                "sim",
                cpu_m=row.cpu_m,
                memory_mi=-(-row.memory // _MIB),
                annotations=held,
                pod_annotations=marks,
            )
            self.sim.store.create(DEPLOYMENT, deployment(app))
        self._arm()

    def _note(self, change: Change) -> None:
        if change.kind is not POD or namespace_of(change.new) != JOBS or phase_of(change.new) != "Running":
            return
        name = labels_of(change.new).get("app", "")
        guest = self.guests.get(name)
        if guest is not None and not guest.leaves:
            guest.leaves = True
            self.sim.loop.after(guest.lasts_ms, lambda: self._leave(name))

    def _leave(self, name: str) -> None:
        del self.guests[name]
        self.sim.store.remove(DEPLOYMENT, (JOBS, name))


def is_guest(pod: Obj) -> bool:
    """Return whether a pod belongs to the trace."""
    return namespace_of(pod) == JOBS


# --- faults


def _schedule(sim: Cluster, fault: Fault) -> None:
    at, until = milliseconds(fault.at), milliseconds(fault.at) + milliseconds(fault.lasts)
    if fault.kind == "node-lost":
        sim.loop.after(at, lambda: sim.cloud.lose(fault.node))
        return
    if fault.kind == "cordon":
        sim.loop.after(at, lambda: _cordon(sim, fault.node, cordoned=True))
        if until > at:
            sim.loop.after(until, lambda: _cordon(sim, fault.node, cordoned=False))
        return
    zones = {fault.zone} if fault.zone else {offer.zone for offer in sim.cloud.offers.values()}
    concerned = {
        offer.name
        for offer in sim.cloud.offers.values()
        if offer.zone in zones and fault.type in ("", offer.machine_type)
    }

    def begin() -> None:
        sim.cloud.sold_out |= concerned
        if fault.kind == "zone-down":
            for machine in sorted(sim.cloud.machines.values(), key=lambda one: one.name):
                if machine.offer.zone == fault.zone:
                    sim.cloud.lose(machine.name)

    def end() -> None:
        sim.cloud.sold_out -= concerned

    sim.loop.after(at, begin)
    sim.loop.after(until, end)


def _cordon(sim: Cluster, node: str, *, cordoned: bool) -> None:
    """Cordon a node, or open it again; one that a policy has given back is left out."""
    if sim.store.get(NODE, "", node) is not None:
        sim.store.edit(NODE, ("", node), lambda draft: draft["spec"].update(unschedulable=cordoned))
