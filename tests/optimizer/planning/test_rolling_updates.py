"""Plans that restart whole workloads: new requests by forecasts, rolling updates."""

from __future__ import annotations

import msgspec
import pytest
from tests.optimizer.planned import replanned
from tests.optimizer.planning.test_plans import actions, forecast, placement, plan
from tests.support.builders import (
    NOW,
    cluster,
    deployed,
    node,
    offer,
    offers,
    pod,
)

from kinema_core.model.checker.check import check_plan


def test_a_forecast_resizes_every_pod_of_its_workload() -> None:
    """All pods of the workload are placed anew with their new requests, by a rolling update."""
    state = cluster(node("n1"), deployed("web", ["n1"] * 3, cpu=1200), deployed("api", ["n1"], cpu=100))
    found = plan(state, forecasts=(forecast("web", cpu=1200, after=600),))
    assert [one.workload for one in found.resizes] == ["Deployment/shop/web"]
    assert {one.strategy for one in found.placements if one.pod.startswith("shop/web")} == {"rolling"}
    assert {one.requests["cpu"] for one in found.placements if one.pod.startswith("shop/web")} == {600}
    assert found.cost.after == 0.085
    assert check_plan(found, state, offers(), NOW, ordered=True) == ()


def test_old_copies_keep_their_room_until_the_new_ones_are_there() -> None:
    """A node that stays takes new copies only beside the old ones: the plan never counts on their leaving."""
    state = cluster(node("n1"), pod("bare", node="n1", cpu=500), deployed("web", ["n1"] * 3, cpu=1000))
    found = plan(state, forecasts=(forecast("web", cpu=1000, after=1100),))
    assert actions(found)["n1"] == "keep"
    assert check_plan(found, state, offers(), NOW, ordered=True) == ()
    assert {one.to for one in found.placements if one.pod.startswith("shop/web")} != {"n1"}


@pytest.mark.parametrize("annotations", [{"kinema.io/do-not-move": "true"}, {"kinema.io/strategy": "none"}])
def test_a_forecast_for_pods_that_may_not_restart_is_left_out(annotations: dict[str, str]) -> None:
    """A rolling update would restart them."""
    state = cluster(node("n1"), deployed("web", ["n1"] * 2, cpu=1000, annotations=annotations))
    assert plan(state, forecasts=(forecast("web", cpu=1000, after=900),)).resizes == ()


def test_a_forecast_for_a_deployment_that_recreates_its_pods_is_left_out() -> None:
    """Its update would end all of them before the first new one is there."""
    top, *rest = deployed("web", ["n1"] * 2, cpu=1000)
    state = cluster(node("n1"), msgspec.structs.replace(top, max_surge="0", max_unavailable="100%"), *rest)
    assert plan(state, forecasts=(forecast("web", cpu=1000, after=900),)).resizes == ()


@pytest.mark.parametrize(
    ("surge", "choice", "where", "resized"),
    [
        ("0", None, "n1", False),
        ("0", "evict", "n1", False),
        ("0", "evict", None, False),
        ("0%", "evict", "n1", False),
        ("0", "surge", "n1", True),
        ("1", "evict", "n1", True),
    ],
)
def test_a_forecast_for_an_only_copy_is_left_out(
    surge: str, choice: str | None, where: str | None, resized: bool
) -> None:
    """A rolling update of ours runs a second copy, which the owner of one without surge has to allow."""
    annotations = {"kinema.io/strategy": choice} if choice else {}
    top, *rest = deployed("web", [where], cpu=1000, annotations=annotations)
    only = msgspec.structs.replace(top, max_surge=surge, max_unavailable="1")
    found = plan(cluster(node("n1"), only, *rest), forecasts=(forecast("web", cpu=1000, after=900),))
    assert [one.workload for one in found.resizes] == (["Deployment/shop/web"] if resized else [])


def test_a_forecast_that_nothing_holds_is_left_out() -> None:
    """Pods are not made larger than any machine; the other forecasts stay."""
    state = cluster(node("n1"), deployed("web", ["n1"], cpu=1000), deployed("api", ["n1"], cpu=1000))
    found = plan(state, forecasts=(forecast("web", cpu=1000, after=9000), forecast("api", cpu=1000, after=500)))
    assert [one.workload for one in found.resizes] == ["Deployment/shop/api"]


def test_forecasts_are_dropped_where_machines_run_out() -> None:
    """Where the larger pods find no place, running pods are not given up: nothing is resized."""
    state = cluster(node("n1"), deployed("web", ["n1"] * 3, cpu=1300))
    found = plan(state, (offer("m4", available=1),), forecasts=(forecast("web", cpu=1300, after=1500),))
    assert found.resizes == ()
    assert found.status == "nothing-better"


def test_forecasts_that_lower_requests_stay_where_machines_run_out() -> None:
    """A workload whose larger pods find no place costs no other workload its lower requests, which save a node."""
    web, api = deployed("web", ["n1"] * 3, cpu=1300), deployed("api", ["n3"], cpu=1400)
    nodes = node("n1"), node("n2"), node("n3", cpu=1500)
    state = cluster(*nodes, web, api, pod("bare", node="n2", cpu=2700))
    forecasts = (forecast("web", cpu=1300, after=1500), forecast("api", cpu=1400, after=1200))
    found = plan(state, (offer("m4", available=1),), forecasts=forecasts)
    assert [one.workload for one in found.resizes] == ["Deployment/shop/api"]


def test_a_pending_pod_gets_the_place_that_a_smaller_replacement_vacates() -> None:
    """With nothing on sale it waits on the node until the old copies have gone."""
    web = deployed("web", ["n1"] * 3, cpu=1000)
    late = deployed("late", [None], cpu=3500)
    state = cluster(node("n1", price="0.1"), pod("bare", node="n1", cpu=300), web, late)
    on_sale = (offer("m2", cpu=2900, price=50_000, available=1),)
    found = plan(state, on_sale, forecasts=(forecast("web", cpu=1000, after=900),))
    assert found.unplaced == ()
    assert placement(found, "shop/late-0").to == "n1"
    assert {one.to for one in found.placements if one.strategy == "rolling"} == {"kinema-1-1"}


def test_a_rolling_update_moves_the_whole_workload_or_nobody() -> None:
    """When one of its nodes goes, the pods on the others restart too."""
    rolling = {"kinema.io/strategy": "rolling"}
    state = cluster(
        node("n1"), node("n2"), pod("bare", node="n1"), deployed("web", ["n1", "n2"], annotations=rolling, cpu=300)
    )
    found = plan(state)
    assert actions(found) == {"n1": "keep", "n2": "delete"}
    assert [one.strategy for one in found.placements if one.pod.startswith("shop/web")] == ["rolling", "rolling"]
    assert (found.moves, found.restarts) == (1, 1)


ROLLING = {"kinema.io/strategy": "rolling"}


def test_a_node_is_emptied_by_moves_between_nodes_that_stay_beside_a_rolling_update() -> None:
    """Its pod has room once another one has left the node, which goes to one that stays as well."""
    sold = offer("m1", cpu=1000, price=50_000)
    state = cluster(
        [node(f"n{n}", machine="m1", cpu=1000) for n in (1, 2, 3)],
        pod("first", node="n1", cpu=600),
        pod("second", node="n2", cpu=100),
        deployed("small", ["n2"], cpu=300),
        deployed("web", ["n3"], cpu=700, annotations=ROLLING),
    )
    found = plan(state, (sold,))
    assert actions(found) == {"n1": "keep", "n2": "keep", "n3": "delete"}
    assert {one.pod: one.to for one in found.placements if one.to != one.source} == {
        "shop/small-0": "n1",
        "shop/web-0": "n2",
    }
    assert replanned(found, state, (sold,)) == found


def test_a_rolling_update_that_needs_its_own_room_empties_no_node() -> None:
    """Both pods fit on one node, but not beside the copy that is there until a new one is Ready."""
    state = cluster(
        [node(f"n{n}", machine="m1", cpu=1000) for n in (1, 2)],
        deployed("web", ["n1", "n2"], cpu=500, annotations=ROLLING),
    )
    found = plan(state, (offer("m1", cpu=1000, price=50_000, available=0),))
    assert set(actions(found).values()) == {"keep"}
    assert (found.moves, found.restarts) == (0, 0)
