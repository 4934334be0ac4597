"""A plan's steps, read as journeys of pods and lives of nodes; steps that make no sense are violations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kinema_core.events import Amounts, PlanNode, PlanStep, Pod
from kinema_core.model.checker.nodes import check_boot
from kinema_core.model.checker.view import PlannedPod, PlanView, Site, Violation, boot_site
from kinema_core.model.ending import ending_refuses
from kinema_core.model.match import node_admits
from kinema_core.model.mobility import spot_allowed
from kinema_core.model.resources import excess
from kinema_core.model.volumes import with_attachments


class Leg(NamedTuple):
    """One move of one pod within a wave."""

    pod: Pod
    key: str
    workload: str
    source: str | None
    to: str
    evicted: bool
    rolled: bool
    leaves: Amounts
    """What the old copy gives back; a pod that runs on, what it requests less."""
    takes: Amounts
    """What the new copy needs; a pod that runs on, what it requests more."""


@dataclass
class Itinerary:
    """Steps by wave, pod and node."""

    sites: Mapping[str, Site]
    """Nodes that may take pods: those of the plan and temporary ones."""
    legs: dict[int, list[Leg]] = field(default_factory=dict)
    booted: dict[str, int] = field(default_factory=dict)
    """Wave by node."""
    deleted: dict[str, int] = field(default_factory=dict)

    @property
    def waves(self) -> list[int]:
        """Return the waves in which pods move, in order."""
        return sorted(self.legs)


def read(view: PlanView) -> tuple[Itinerary, list[Violation]]:
    """Return the steps of a plan, and what is wrong with them as such. Doubtful ones are left out."""
    found: list[Violation] = []
    rented = {node.name: site for node in view.plan.temporary if (site := _rented(view, node)) is not None}
    itinerary = Itinerary({**rented, **view.sites})
    found += _temporary(view)
    order = [step.wave for step in view.plan.steps]
    if order != sorted(order) or (order and order[0] < 0):
        found.append(Violation("step-order", "steps", "waves run from 0 up"))
    found += _lives(view, itinerary)
    found += _journeys(view, itinerary)
    return itinerary, found


# --- nodes


def _rented(view: PlanView, node: PlanNode) -> Site | None:
    offer = view.offers.get(node.offer)
    return None if offer is None else boot_site(view.cluster, offer, node.name)


def _temporary(view: PlanView) -> Iterator[Violation]:
    """Each temporary node has a name of its own and is what its offer says, at its price."""
    names = {node.name for node in view.plan.nodes}
    for node in view.plan.temporary:
        if node.name in names:
            yield Violation("node-duplicate", node.name, "a temporary node has the name of another node")
        names.add(node.name)
        yield from check_boot(view, node)
        if node.action != "boot":
            yield Violation("node-description", node.name, f"a temporary node is booted, not {node.action}")


def _lives(view: PlanView, itinerary: Itinerary) -> Iterator[Violation]:
    """Every node to boot is booted and every node to delete is deleted, once; temporary nodes both."""
    rented = {node.name for node in view.plan.temporary}
    due = {
        "boot": rented | {node.name for node in view.plan.nodes if node.action == "boot"},
        "delete": rented | {node.name for node in view.plan.nodes if node.action == "delete"},
    }
    books = {"boot": itinerary.booted, "delete": itinerary.deleted}
    for step in view.plan.steps:
        if step.action == "move":
            continue
        if step.node not in due[step.action] or step.pod:
            yield Violation("step-unknown", step.node, f"wave {step.wave}: the plan has no such node to {step.action}")
        elif step.node in books[step.action]:
            yield Violation("step-duplicate", step.node, f"wave {step.wave}: a second {step.action}")
        else:
            books[step.action][step.node] = step.wave
    for action, names in due.items():
        for name in sorted(names - books[action].keys()):
            yield Violation("step-missing", name, f"no step has it {action}ed".replace("deleteed", "deleted"))


# --- pods


def _journeys(view: PlanView, itinerary: Itinerary) -> Iterator[Violation]:
    """Check that every pod with a new copy gets to its place, over stops that take it, and no other pod moves."""
    journeys: dict[str, list[PlanStep]] = {}
    for step in view.plan.steps:
        if step.action == "move":
            journeys.setdefault(step.pod, []).append(step)
    strategies = {item.pod: item.strategy for item in view.plan.placements}
    for seat in view.arriving:
        steps = journeys.pop(seat.key, [])
        if not steps or steps[-1].node != seat.to:
            last = f"the last step brings it to {steps[-1].node}" if steps else "no step brings it"
            yield Violation("step-missing", seat.key, f"{last}, its place is {seat.to}")
        source = seat.pod.node
        for number, step in enumerate(steps):
            yield from _wrong(view, itinerary, seat, steps, number)
            if step.node in itinerary.sites:
                evicted = strategies.get(seat.key) == "evict"
                itinerary.legs.setdefault(step.wave, []).append(_leg(view, seat, source, step.node, evicted=evicted))
                source = step.node
    for key in sorted(journeys):
        yield Violation("step-unknown", key, "the plan moves no such pod")


def _leg(view: PlanView, seat: PlannedPod, source: str | None, to: str, *, evicted: bool) -> Leg:
    pod, leaves, takes = seat.pod, seat.pod.requests if source == seat.pod.node else seat.requests, seat.requests
    if seat.workload in view.running_on:
        leaves, takes = excess(leaves, takes), excess(takes, leaves)
    elif source != to:  # else old and new copy share what is attached
        leaves, takes = with_attachments(view.cluster, pod, leaves), with_attachments(view.cluster, pod, takes)
    return Leg(
        pod=pod,
        key=seat.key,
        workload=view.cluster.workload_key_of(pod),
        source=source,
        to=to,
        evicted=evicted,
        rolled=seat.rolled,
        leaves=leaves,
        takes=takes,
    )


def _wrong(
    view: PlanView, itinerary: Itinerary, seat: PlannedPod, steps: list[PlanStep], number: int
) -> Iterator[Violation]:
    step, where = steps[number], seat.pod.node if number == 0 else steps[number - 1].node
    if number and step.wave <= steps[number - 1].wave:
        yield Violation("step-duplicate", seat.key, f"wave {step.wave}: it moves twice")
    if step.node == where and not (seat.rolled and number == 0):
        yield Violation("step-duplicate", seat.key, f"wave {step.wave}: it is on {step.node} already")
    if number and (seat.rolled or seat.pod.node is None):
        yield Violation("step-duplicate", seat.key, "a pod that is pending or rolled makes no stop")
    site = itinerary.sites.get(step.node)
    if site is None:
        yield Violation("step-unknown", seat.key, f"wave {step.wave}: no node {step.node} takes pods")
    elif step is not steps[-1]:
        yield from _stop(view, seat, site)


def _stop(view: PlanView, seat: PlannedPod, site: Site) -> Iterator[Violation]:
    """Check that a stop has to admit the pod like its last place."""
    if site.live and site.name not in view.mobility.open_nodes:
        yield Violation("node-closed", seat.key, f"it cannot stop on node {site.name}, which takes no pods")
    reason = node_admits(seat.pod.rules, name=site.name, labels=site.labels, taints=site.taints)
    reason = reason or ending_refuses(view.cluster, seat.pod, site.labels)
    if reason is not None:
        yield Violation("not-admitted", seat.key, f"it cannot stop on node {site.name}: {reason}")
    allowed = spot_allowed(view.cluster, seat.pod, taint_keys=site.spot_keys, options=view.options)
    if site.spot and not allowed:
        yield Violation("spot-not-allowed", seat.key, f"it cannot stop on spot capacity such as node {site.name}")
