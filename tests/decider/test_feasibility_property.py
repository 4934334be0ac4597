"""The decider never accepts what cannot be carried out."""

from __future__ import annotations

import random

import hypothesis
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decider.cases import Court, event
from tests.support.builders import NOW, deployed, fragmented, node, offers, pod
from tests.support.plans import plan_for

from kinema_core.events import Node, Plan, PlanAccepted, Pod
from kinema_core.model.catalog import node_prices
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_core.model.daemons import is_resident
from kinema_core.model.resources import add, fits, total
from kinema_decider.logic.adapt import adapt


@st.composite
def changed_clusters(draw: st.DrawFn) -> Cluster:
    """The fragmented cluster after anything may have happened to its pods and nodes."""
    objects = list(all_objects(fragmented()))
    rng = random.Random(draw(st.integers(min_value=0, max_value=2**32)))
    for _ in range(draw(st.integers(min_value=0, max_value=3))):
        objects = _change(objects, draw(st.integers(min_value=0, max_value=5)), rng)
    return from_objects(objects, 2)


def _change(objects: list, what: int, rng: random.Random) -> list:  # type: ignore[type-arg]  # objects of any kind
    nodes = [item for item in objects if isinstance(item, Node)]
    pods = [item for item in objects if isinstance(item, Pod)]
    chosen, place = rng.choice(pods), rng.choice(nodes)
    match what:
        case 0:
            return [item for item in objects if item is not chosen]
        case 1:
            return [*objects, pod(f"new-{rng.randrange(1000)}", node=place.name, cpu=rng.randrange(1, 4000))]
        case 2:
            return [*objects, *deployed(f"d{rng.randrange(1000)}", [place.name, None], cpu=rng.randrange(1, 3000))]
        case 3:
            return [replace(item, ready=False) if item is place else item for item in objects]
        case 4:
            return [item for item in objects if item is not place]
        case _:
            return [*objects, node(f"x{rng.randrange(1000)}")]


def overfull(plan: Plan, now: Cluster) -> list[str]:
    """Nodes that the plan gives pods to and that could not hold them, counted anew from the objects alone.

    A node that is too full already, as no real scheduler would fill it, is only wrong to get more.
    """
    sold = {item.name: item.allocatable for item in offers()}
    found = []
    for item in plan.nodes:
        if not any(place.to == item.name and place.source != item.name for place in plan.placements):
            continue
        live = now.node(item.name)
        room = live.allocatable if live is not None else sold[item.offer]
        daemons = [p.requests for p in now.pods if p.node == item.name and is_resident(now, p)]
        here = total(place.requests for place in plan.placements if place.to == item.name)
        if not fits(add(here, total(daemons)), room):
            found.append(item.name)
    return found


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans for the fragmented cluster: some nodes go, their pods go anywhere, wise or not."""
    before = fragmented()
    delete = draw(st.sets(st.sampled_from(["n2", "n3", "n4", "n5", "n6"]), min_size=1, max_size=3))
    targets = sorted({"n1", "n2", "n3", "n4", "n5", "n6", "k1"} - delete) if draw(st.integers(0, 9)) else ["n1", "n2"]
    moving = [item.key for item in before.pods if item.namespace == "shop" and item.node in delete]
    to = {key: draw(st.sampled_from(targets)) for key in moving}
    boot = {"k1": "m2/a/on-demand"} if "k1" in to.values() else {}
    return plan_for(before, offers(), to=to, boot=boot, delete=sorted(delete), now=NOW)


@settings(max_examples=150, deadline=None)
@given(changed_clusters(), plans())
async def test_accepted_plans_fit_the_state_of_now(now: Cluster, plan: Plan) -> None:
    """Whatever was planned and whatever has happened since: an accepted plan overfills no node and strands no pod."""
    court = Court(max_drift_fraction=1.0, min_savings_fraction=0.0, restart_price_usd=0.0)
    asked = event(plan)
    body = await court.answer_to(asked, now, NOW)
    hypothesis.event("accepted" if isinstance(body, PlanAccepted) else body.rule)
    if not isinstance(body, PlanAccepted):
        return
    prices = node_prices(now, offers())
    adapted = adapt(plan, now, prices, {item.name: item.micro_usd_per_hour for item in offers()})
    assert overfull(adapted.plan, now) == []
    assert adapted.stranded == ()
    gone = {item.name for item in adapted.plan.nodes if item.action == "delete"}
    assert not any(place.to in gone for place in adapted.plan.placements)
