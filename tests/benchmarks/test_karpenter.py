"""What the real Karpenter is told of the machines on sale: it has to buy the very nodes that Kinema knows."""

from __future__ import annotations

from benchmarks.beside_karpenter import seen_of
from benchmarks.karpenter import OVERHEAD, instance_types
from benchmarks.starts import e2_offers
from benchmarks.witness import Verdict

from kinema_core.model.quantity import parse_amount


def test_a_new_node_has_for_pods_what_the_offer_has() -> None:
    """Karpenter's provider takes its overhead off, and leaves what the offer has."""
    offers = e2_offers()
    told = {one["name"]: one for one in instance_types(offers)}
    assert told.keys() == {offer.machine_type for offer in offers}
    for offer in offers:
        resources = told[offer.machine_type]["resources"]
        left = {key: parse_amount(key, text) - OVERHEAD.get(key, 0) for key, text in resources.items()}
        assert left == dict(offer.allocatable)


def test_each_type_is_sold_at_its_price_in_each_zone() -> None:
    """A type has an offering per zone, as it has an offer per zone."""
    offers = e2_offers()
    sold = {
        (one["name"], offering["Requirements"][1]["values"][0]): offering["Price"]
        for one in instance_types(offers)
        for offering in one["offerings"]
    }
    assert sold == {(offer.machine_type, offer.zone): offer.micro_usd_per_hour / 1e6 for offer in offers}


def test_what_was_seen_is_priced_by_the_nodes_that_are_left() -> None:
    """A node that is gone costs nothing any more, one that was bought and is there was not bought in vain."""

    def node(name: str, machine: str) -> dict[str, object]:
        return {"metadata": {"name": name, "labels": {"node.kubernetes.io/instance-type": machine}}}

    nodes = [node("a", "e2-standard-4")]
    verdict = Verdict({kind: {"items": nodes if kind == "Node" else []} for kind in ("Pod", "Deployment", "Node")})
    verdict.take(1.0, "Node", "ADDED", node("b", "e2-standard-2"))
    verdict.take(2.0, "Node", "DELETED", node("a", "e2-standard-4"))
    seen = seen_of(verdict, "the real one")
    assert seen.seconds == 2.0
    assert (seen.cost, seen.nodes, seen.bought, seen.bought_in_vain) == (0.09, 1, 1, 0)
    assert seen.machines == {"e2-standard-2": 1}
