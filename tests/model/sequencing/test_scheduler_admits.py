"""Orders played through move by move, each new copy before a filter written from kube-scheduler's, not from ours."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW, cluster, deployed, node, offer, offers, selector, stateful
from tests.support.plans import plan_for

from kinema_core.events import ClusterObject, Labels, PlacementRules, Plan, Pod, PodTerm, Selector, Spread
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.sequencing.waves import Transition, order_transition, with_steps

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SOLD = (*offers(), offer("m2", cpu=2000, memory=8 * 1024, price=85_000, zone="b"))


@dataclass
class Scheduler:
    """Which nodes are there, and which copies of which pods are where; nobody else is asked than who comes."""

    nodes: dict[str, Labels]
    copies: list[tuple[Pod, str]] = field(default_factory=list)

    def refusal(self, pod: Pod, to: str) -> str | None:
        """Why the new copy is not let in at this moment."""
        for term in pod.rules.anti_affinity:
            if any(self._matches(term.selector, pod, other) for other in self._in_domain(term.topology_key, to)):
                return f"anti-affinity of {pod.key}"
        for other, node_name in self.copies:
            for term in other.rules.anti_affinity:
                place = self.nodes[node_name].get(term.topology_key)
                met = place is not None and self.nodes[to].get(term.topology_key) == place
                if met and self._matches(term.selector, other, pod):
                    return f"anti-affinity of {other.key} on {node_name}"
        for term in pod.rules.affinity:
            near = any(self._matches(term.selector, pod, other) for other in self._in_domain(term.topology_key, to))
            first = not any(self._matches(term.selector, pod, other) for other, _ in self.copies)
            if not near and not (first and self._matches(term.selector, pod, pod)):
                return f"affinity of {pod.key}"
        return next((reason for spread in pod.rules.spread if (reason := self._skewed(pod, spread, to))), None)

    def _skewed(self, pod: Pod, spread: Spread, to: str) -> str | None:
        key = spread.topology_key
        count = Counter({labels[key]: 0 for labels in self.nodes.values() if key in labels})
        for other, node_name in self.copies:
            place = self.nodes[node_name].get(key)
            if place is not None and self._matches(spread.selector, pod, other):
                count[place] += 1
        least = 0 if len(count) < spread.min_domains else min(count.values())
        place = self.nodes[to].get(key)
        if place is None:
            return f"{to} has no {key}"
        skew = count[place] + self._matches(spread.selector, pod, pod) - least
        return f"skew {skew} of {pod.key} in {dict(count)}" if skew > spread.max_skew else None

    def _in_domain(self, key: str, to: str) -> Iterator[Pod]:
        place = self.nodes[to].get(key)
        return (pod for pod, name in self.copies if place is not None and self.nodes[name].get(key) == place)

    def _matches(self, wanted: Selector | None, holder: Pod, pod: Pod) -> bool:
        assert wanted is not None
        same = holder.namespace == pod.namespace
        return same and all(pod.labels.get(key) == value for key, value in wanted.labels.items())


def refusals(plan: Plan, on: Cluster, transition: Transition, rng: random.Random) -> list[str]:
    """Carry the steps out, within each wave in some order, and tell of every copy that is not let in."""
    sold = {item.name: item for item in SOLD}
    rented = {item.name: sold[item.offer] for item in (*plan.nodes, *transition.temporary) if item.action == "boot"}
    strategies = {item.pod: item.strategy for item in plan.placements}
    world = Scheduler({item.name: item.labels for item in on.nodes})
    where: dict[str, str | None] = {pod.key: pod.node for pod in on.pods}
    world.copies = [(pod, pod.node) for pod in on.pods if pod.node is not None]
    found: list[str] = []
    for wave in range(transition.waves):
        tasks: list[list[tuple[str, str, str]]] = []
        for step in (step for step in transition.steps if step.wave == wave):
            evicts = strategies.get(step.pod) == "evict"
            come, go = ("come", step.pod, step.node), ("go", step.pod, where.get(step.pod) or "")
            acts = {"boot": [("boot", "", step.node)], "delete": [("delete", "", step.node)]}
            acts["move"] = [come] if where.get(step.pod) is None else [go, come] if evicts else [come, go]
            tasks.append(acts[step.action])
            where[step.pod] = step.node
        for act, key, name in shuffled_tasks(tasks, rng):
            if act == "boot":
                world.nodes[name] = new_node_labels(rented[name], name)
            elif act == "delete":
                assert all(there != name for _, there in world.copies)
                del world.nodes[name]
            elif act == "go":
                world.copies.remove((on.pods_by_key[key], name))
            else:
                reason = world.refusal(on.pods_by_key[key], name)
                found += [] if reason is None else [f"wave {wave}: {key} to {name}: {reason}"]
                world.copies.append((on.pods_by_key[key], name))
    return found


def shuffled_tasks(tasks: list[list[tuple[str, str, str]]], rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """All acts, each task's in its own order and the tasks interleaved somehow."""
    left = [list(acts) for acts in tasks]
    while left:
        acts = rng.choice(left)
        yield acts.pop(0)
        left = [acts for acts in left if acts]


def ruled(rng: random.Random) -> Cluster:
    """Up to seven nodes in up to three zones, and a few workloads with rules."""
    nodes = [node(f"n{n}", cpu=4000, zone=rng.choice("aab"), price="0.1") for n in range(rng.randrange(2, 8))]
    made: list[ClusterObject] = []
    names = [f"w{n}" for n in range(rng.randrange(1, 4))]
    for name in names:
        places: list[str | None] = [rng.choice(nodes).name for _ in range(rng.randrange(1, 7))]
        if rng.randrange(3):  # evenly, as a spread wants it
            places = [nodes[n % len(nodes)].name for n in range(len(places))]
        key, other = rng.choice([ZONE, HOST, HOST]), selector(app=rng.choice(names))
        even = Spread(
            topology_key=key,
            max_skew=rng.choice([1, 1, 2]),
            when_unsatisfiable="DoNotSchedule",
            selector=selector(app=name),
            min_domains=rng.choice([1, 1, 2, 3]),
        )
        rules = rng.choice(
            [
                PlacementRules(spread=(even,)),
                PlacementRules(spread=(even,)),
                PlacementRules(anti_affinity=(PodTerm(topology_key=key, selector=other),)),
                PlacementRules(affinity=(PodTerm(topology_key=key, selector=other),)),
                PlacementRules(),
            ]
        )
        made += rng.choice([deployed, deployed, stateful])(name, places, cpu=100, rules=rules)
    return cluster(nodes, made)


def changed(rng: random.Random, on: Cluster) -> Plan:
    """Some pods and nodes go, others come."""
    gone = {item.name for item in on.nodes if rng.randrange(4) == 0}
    boot = {f"new-{n}": rng.choice(["m2/a/on-demand", "m2/b/on-demand"]) for n in range(rng.randrange(0, 3))}
    stays = sorted({item.name for item in on.nodes} - gone | boot.keys())
    share = rng.random()
    to = {pod.key: rng.choice(stays) for pod in on.pods if stays and (pod.node in gone or rng.random() < share / 2)}
    used = {name: machine for name, machine in boot.items() if name in to.values()}
    return plan_for(on, SOLD, to=to, boot=used, delete=sorted(gone))


_ASIDE = {"single-replica", "held-moved", "boot-empty"}


def admissible(rng: random.Random) -> tuple[Cluster, Plan] | None:
    """A plan that breaks no rule between pods, before and after; None where none was found soon."""
    for _ in range(200):
        on = ruled(rng)
        plan = changed(rng, on)
        wrong = {item.code for item in check_plan(plan, on, SOLD, NOW)}
        if plan.moves and not {code for code in wrong if code.endswith("-broken") or code == "wave-overfull"}:
            return on, plan
    return None


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_kube_scheduler_lets_every_copy_in(seed: int) -> None:
    """Whatever order is found, each new copy is admitted at the moment when it comes, however a wave's moves run."""
    rng = random.Random(seed)
    found = admissible(rng)
    hypothesis.assume(found is not None)
    assert found is not None
    on, plan = found
    transition = order_transition(plan, on, SOLD, now=NOW)
    hypothesis.event(f"stuck {bool(transition.stuck)}, stops {_stops(transition)}, waves {transition.waves}")
    codes = {item.code for item in check_plan(with_steps(plan, transition), on, SOLD, NOW)}
    assert not {code for code in codes if code.startswith("wave-")}
    for _ in range(4):
        assert refusals(plan, on, transition, rng) == []


def _stops(transition: Transition) -> bool:
    moves = [step.pod for step in transition.steps if step.action == "move"]
    return len(moves) > len(set(moves))
