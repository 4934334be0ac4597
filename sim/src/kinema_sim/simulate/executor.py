"""Execution of a policy's steps as the system itself executes them: it evicts, and the scheduler finds a place.

New nodes are ordered at once. A node that is to go is tainted, its pods are evicted as their budgets allow, and it is
given back when it is empty. Where new nodes replace others, these wait until the new ones are Ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec

from kinema_core.events import Amounts, FrozenMap, Node, Taint
from kinema_core.model.cluster import Cluster
from kinema_core.model.foreign import beside_its_autoscaler
from kinema_core.model.mobility import MobilityOptions
from kinema_core.model.vocabulary import DELETION_CANDIDATE, SCALE_DOWN_DISABLED
from kinema_observer.logic.kubernetes import decode_object
from kinema_optimizer.policies.policy import Policy, Tick
from kinema_optimizer.policies.proposal import Proposal, Step
from kinema_sim.api.errors import ApiError
from kinema_sim.api.subresources import evict
from kinema_sim.cloud.machines import NOT_READY_TAINT, node_object
from kinema_sim.cloud.provider import CloudError
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.engine.kinds import NODE
from kinema_sim.engine.objects import Obj, controller_ref, is_finished, is_terminating, name_of, namespace_of
from kinema_sim.simulate.view import View, now_of, offers_on_sale

RETRY_MS: Final = 10_000
"""Time after which an eviction that a budget refused is tried again."""
POLL_MS: Final = 1_000
_TAINTS: Final = {"karpenter": "karpenter.sh/disrupted"}
_DRAINING: Final = "ToBeDeletedByClusterAutoscaler"
_MOST_SHUNNED: Final = 10
"""Nodes that get or lose the taint in one loop (`--max-bulk-soft-taint-count`)."""
_ONE_BY_ONE: Final = frozenset({"cluster-threshold", "cluster-threshold-plain", "promethee"})
"""Policies that look again only when the last removal is over."""


@dataclass
class Tally:
    """What a policy has done."""

    evictions: int = 0
    booted: int = 0
    deleted: int = 0
    refused: int = 0
    """Orders that the cloud refused."""
    ticks: int = 0
    resized: int = 0
    """Pods that got other requests."""


@dataclass
class Neighbor:
    """One policy in charge of a simulated cluster, with its own clock."""

    sim: SimCluster
    policy: Policy
    view: View
    options: MobilityOptions = field(default_factory=MobilityOptions)
    tally: Tally = field(default_factory=Tally)
    draining: dict[str, None] = field(default_factory=dict)
    """Nodes that are being emptied, to be given back."""
    _since: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    _seen: int = -1
    _due: datetime | None = None
    _ordered: int = 0

    @property
    def _draining_taint(self) -> str:
        return _TAINTS.get(self.policy.name, _DRAINING)

    def start(self) -> None:
        """Look from now on, at the policy's interval."""
        self.sim.loop.every(round(self.policy.period_seconds * 1000), self._look, priority=900)

    def _look(self) -> None:
        """Ask the policy, unless nothing has changed and no time of its own is up: it would say the same again."""
        cluster = self.view.refresh()
        now = now_of(self.sim)
        if self.view.changes == self._seen and (self._due is None or now < self._due):
            return
        self._seen = self.view.changes
        coming = self._coming(cluster)
        tick = Tick(
            beside_its_autoscaler(_with_nodes(cluster, coming), delegated=True),
            offers_on_sale(self.sim, cluster),
            now,
            self._since,
            self._usage(),
            self.options,
            coming=frozenset(coming),
        )
        outcome = self.policy.tick(tick)
        self.tally.ticks += 1
        self._since, self._due = outcome.since, outcome.due
        self._apply(outcome.proposal)
        if outcome.shunned is not None:
            self._shun(cluster, frozenset(outcome.shunned))

    def _usage(self) -> Mapping[str, Amounts]:
        return (
            {
                f"{space}/{name}": FrozenMap({"cpu": used.cpu_nano // 1_000_000, "memory": used.memory_bytes})
                for (space, name), used in self.sim.load.usage().items()
            }
            if self.policy.name in {"trimaran", "metric-descheduler"}
            else {}
        )

    def _coming(self, cluster: Cluster) -> Mapping[str, Node]:
        """Return machines that are on their way as Ready nodes, so that none is bought twice."""
        nodes = {}
        for machine in self.sim.cloud.machines.values():
            live = cluster.node(machine.name)
            if machine.state == "deleting" or (live is not None and live.ready):
                continue
            raw = self.sim.store.get(NODE, "", machine.name) or {
                **node_object(machine.name, machine.offer, labels=machine.labels, taints=[], now=self.sim.loop.now),
            }
            raw = {**raw, "metadata": {**raw["metadata"], "uid": f"coming-{machine.name}"}}
            coming = decode_object("Node", msgspec.json.encode(raw))
            assert isinstance(coming, Node)
            nodes[machine.name] = _ready(coming)
        return nodes

    # --- acting

    def _apply(self, proposal: Proposal) -> None:
        """Execute the steps, but for orders for pods that a removal before them leaves without a place.

        A plan has to place them; the system orders when they wait, and fewer do where others have left by then.
        """
        offers = proposal.bought
        removes = False
        for step in proposal.steps:
            if removes and step.bought and not step.removed:
                continue
            removes = removes or bool(step.removed)
            new = [name for planned in step.bought if planned in offers and (name := self._boot(offers[planned]))]
            if step.bought and step.removed and not new:
                continue  # the replacement cannot be had
            self._remove(step, new)
            for node in step.emptied:
                self._evict_from(node)

    def _boot(self, offer: str) -> str:
        """Order a machine; returns its name, empty where the cloud refuses."""
        name = ""
        while not name or name in self.sim.cloud.machines:  # those of a recording may be called so
            self._ordered += 1
            name = f"{self.policy.name}-{self._ordered:04d}"
        sold = self.sim.cloud.offers[offer.partition("#")[0]]
        try:
            self.sim.cloud.boot(name, sold, f"boot-{name}", labels={}, taints=[])
        except CloudError:
            self.tally.refused += 1
            return ""
        self.tally.booted += 1
        return name

    def _remove(self, step: Step, new: list[str]) -> None:
        names = [name for name in step.removed if name not in self.draining and name in self.sim.cloud.machines]
        if not names or (self.policy.name in _ONE_BY_ONE and self.draining):
            return
        for name in names:
            self.draining[name] = None
            self._taint(name, self._draining_taint, "NoSchedule")
        self._when_ready(new, names)

    def _when_ready(self, new: list[str], names: list[str]) -> None:
        """Drain nodes once their replacements are Ready; where one of these never comes, they stay."""
        cluster = self.view.refresh()
        if any(name not in self.sim.cloud.machines for name in new):
            for name in names:
                self.draining.pop(name, None)
                self._taint(name, self._draining_taint, None)
            return
        if all((node := cluster.node(name)) is not None and node.ready for name in new):
            for name in names:
                self._drain(name)
            return
        self.sim.loop.after(POLL_MS, lambda: self._when_ready(new, names), priority=901)

    def _drain(self, name: str) -> None:
        if name not in self.sim.cloud.machines:  # lost in the meantime
            self.draining.pop(name, None)
            return
        left = self._evict_from(name)
        if left:
            self.sim.loop.after(POLL_MS if left == "going" else RETRY_MS, lambda: self._drain(name), priority=901)
            return
        self.draining.pop(name, None)
        self.sim.cloud.delete(name, f"delete-{name}")
        self.tally.deleted += 1

    def _evict_from(self, name: str) -> str:
        """Evict every pod of a node that is no daemon; returns `refused`, `going`, or nothing where it is empty."""
        state = ""
        for pod in self.sim.store.pods_on(name):
            if is_finished(pod) or _is_daemon(pod):
                continue
            state = state or "going"
            if is_terminating(pod):
                continue
            try:
                evict(self.sim.api, namespace_of(pod), name_of(pod), body={})
                self.tally.evictions += 1
            except ApiError as error:
                state = "refused" if error.code in (429, 500) else state
        return state

    def _shun(self, cluster: Cluster, names: frozenset[str]) -> None:
        """Have the scheduler take these nodes last and no others; at first where it may take one again."""
        marked = {node.name for node in cluster.nodes if any(taint.key == DELETION_CANDIDATE for taint in node.taints)}
        live = {node.name for node in cluster.nodes if node.name not in self.draining}
        changes = [*sorted(marked & live - names), *sorted(names & live - marked)]
        for name in changes[:_MOST_SHUNNED]:
            self._taint(name, DELETION_CANDIDATE, "PreferNoSchedule" if name in names else None)

    def _taint(self, name: str, key: str, effect: str | None) -> None:
        """Give a node a taint, or take it off."""

        def change(draft: Obj) -> None:
            taints = [taint for taint in draft["spec"].get("taints") or () if taint["key"] != key]
            draft["spec"]["taints"] = taints if effect is None else [*taints, {"key": key, "effect": effect}]

        self.sim.store.edit(NODE, ("", name), change)


def _with_nodes(cluster: Cluster, nodes: Mapping[str, Node]) -> Cluster:
    if not nodes:
        return cluster
    merged = {**cluster.objects, "Node": {**cluster.objects.get("Node", {}), **nodes}}
    return replace(cluster, objects=MappingProxyType(merged))


def _is_daemon(pod: Obj) -> bool:
    owner = controller_ref(pod)
    return owner is not None and owner["kind"] == "DaemonSet"


def _ready(node: Node) -> Node:
    """Return a node that is coming as it will be, not to be removed before it is there."""
    kept: tuple[Taint, ...] = tuple(taint for taint in node.taints if taint.key != NOT_READY_TAINT["key"])
    marks = FrozenMap({**node.annotations, SCALE_DOWN_DISABLED: "true"})
    return msgspec.structs.replace(
        node, ready=True, taints=kept, annotations=marks, created=node.created or datetime(2026, 1, 1, tzinfo=UTC)
    )
