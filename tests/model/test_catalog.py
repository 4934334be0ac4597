"""Catalogs: cells and their errors, offers, formulas and prices."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import GIB, MIB, cluster, node, offer

from kinema_core.events import Node, Offer
from kinema_core.model.catalog import (
    CatalogError,
    PriceError,
    gke_allocatable,
    machine_of,
    new_node_labels,
    node_prices,
    offers_from,
    parse_catalog,
    unpriced_nodes,
)
from kinema_core.model.cluster import Cluster

HEADER = "machine_type,vcpus,memory_gib,usd_per_hour"


def offers(text: str, state: Cluster | None = None) -> dict[str, Offer]:
    """Offers of a catalog by name."""
    return {each.name: each for each in offers_from(parse_catalog(text), state or cluster(node("n1")))}


def table(columns: str, *rows: str) -> str:
    """A catalog with these columns besides the required ones; each row describes an m4."""
    return "\n".join([f"{HEADER},{columns}", *(f"m4,4,16,0.17,{row}" for row in rows)])


# --- reading


def test_the_least_catalog() -> None:
    """Four columns suffice; amounts and prices are exact."""
    [row] = parse_catalog(f"{HEADER}\nm4,0.25,1.5,0.0475125\n")
    assert (row.machine_type, row.vcpus, row.memory) == ("m4", Fraction(1, 4), 3 * GIB // 2)
    assert row.micro_usd_per_hour == 47_513
    assert (row.zone, row.capacity_type, row.available, row.max_pods) == (None, "on-demand", None, None)


def test_every_column_is_read() -> None:
    """Zone, capacity type, devices, labels, taints, written allocatable, limits and watts."""
    [row] = parse_catalog(
        table(
            "zone,capacity_type,gpus,gpu_resource,labels,taints,allocatable_cpu_m,allocatable_memory_bytes,max_pods,"
            "watts,available,extended",
            "a,spot,2,amd.com/gpu,team=x; pool=y,gpu=yes:NoSchedule;soft:PreferNoSchedule,3900,15000000000,64,"
            "120.5,3,example.com/nic=4;hugepages-2Mi=1Gi",
        )
    )
    assert (row.zone, row.capacity_type, row.available, row.max_pods, row.watts) == ("a", "spot", 3, 64, 120.5)
    assert row.labels == {"team": "x", "pool": "y"}
    assert row.taints == ("gpu=yes:NoSchedule", "soft:PreferNoSchedule")
    assert (row.allocatable_cpu, row.allocatable_memory) == (3900, 15_000_000_000)
    assert row.extended == {"amd.com/gpu": 2, "example.com/nic": 4, "hugepages-2Mi": GIB}


def test_remarks_are_passed_over() -> None:
    """Where prices come from may stand in the file."""
    assert parse_catalog(f"# from the provider, May\n{HEADER}\n# small ones\nm4,4,16,0.17")[0].machine_type == "m4"


def test_columns_in_any_order_with_blanks_and_a_byte_order_mark() -> None:
    """Spreadsheets add a mark, spaces and blank lines: none of them matters."""
    text = "\ufeffusd_per_hour, vcpus ,machine_type,memory_gib\r\n\r\n 0.17 ,4, m4 ,16\r\n , , , \r\n"
    assert parse_catalog(text)[0] == parse_catalog(f"{HEADER}\n\nm4,4,16,0.17")[0]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["empty", "machine_type"]),
        ("\n\n", ["empty"]),
        ("machine_type,vcpus\n", ["lacks the column", "memory_gib", "usd_per_hour"]),
        ("# of May\nmachine_type;vcpus\n", ["separated by semicolons", "line 2", "commas"]),
        (HEADER.replace(",", "\t"), ["separated by tabs", "line 1", "commas", "usd_per_hour"]),
        (f"{HEADER},capacity-type\n", ["unknown column", "capacity-type", "capacity_type"]),
        (f"{HEADER},zone,zone\n", ["twice", "zone"]),
        (f"{HEADER}\nm4,4,16\n", ["line 2", "3 cells"]),
        (f"{HEADER}\nm4,4,16,0.1,5\n", ["line 2", "5 cells"]),
        (f"{HEADER}\nm2,2,8,0.1\n\nm4,four,16,0.17\n", ["line 4", "vcpus", "'four'"]),
        (f"{HEADER}\nm4,,16,0.17\n", ["line 2", "vcpus", "empty"]),
        (f"{HEADER}\n,4,16,0.17\n", ["machine_type", "empty"]),
        (f"{HEADER}\nm 4,4,16,0.17\n", ["machine_type", "without spaces"]),
        (f"{HEADER}\nm4,0,16,0.17\n", ["vcpus", "above 0"]),
        (f"{HEADER}\nm4,4,-16,0.17\n", ["memory_gib", "'-16'"]),
        (f"{HEADER}\nm4,4,16,NaN\n", ["usd_per_hour", "'NaN'"]),
        (f"{HEADER}\nm4,4,16,0\n", ["usd_per_hour", "price of 0"]),
        (f"{HEADER}\nm4,4,16,-1\n", ["usd_per_hour"]),
        (f"{HEADER}\nm4,4,16,1e-2\n", ["usd_per_hour", "plain decimal"]),
        (f"{HEADER}\nm4,4,16,-0.1\n", ["usd_per_hour", "of 0 or more"]),
        (f"{HEADER}\nm4,4,16,$0.17\n", ["usd_per_hour"]),
        (f"{HEADER}\nm4,4,16,1_0\n", ["usd_per_hour"]),
        (table("capacity_type", "preemptible"), ["capacity_type", "on-demand or spot"]),
        (table("gpus", "1.5"), ["gpus", "whole number"]),
        (table("available", "-1"), ["available", "whole number"]),
        (table("max_pods", "99999999999999999999"), ["max_pods"]),
        (table("labels", "team"), ["labels", "name=value"]),
        (table("taints", "gpu=yes"), ["taints", "NoSchedule"]),
        (table("extended", "nic=lots"), ["extended", "lots"]),
        (table("extended", "cpu=4"), ["extended", "own column"]),
        (table("gpu_resource", "two gpus"), ["gpu_resource", "nvidia.com/gpu"]),
        (table("watts", "hot"), ["watts"]),
        (f'{HEADER}\n"m4,4,16,0.17\n\n', ["line 2", "close it"]),
        (f'{HEADER}\n"m"4,4,16,0.17\n', ["line 2", "twice"]),
        (f"{HEADER}\n{'m' * 200_000},4,16,0.17\n", ["line 2", "longer than any value"]),
        (f"{HEADER}\nm4,4,16,0.17\nm2,2,8,0.08\nm4,4,16,0.09\n", ["lines 2 and 4", "m4", "take one out"]),
    ],
)
def test_what_is_wrong_is_named_with_line_and_column(text: str, parts: list[str]) -> None:
    """A catalog error names where it is, what stands there and what should."""
    with pytest.raises(CatalogError) as caught:
        parse_catalog(text)
    for part in parts:
        assert part in str(caught.value)


def test_one_machine_may_be_sold_twice_where_that_means_something() -> None:
    """In pools with labels of their own, or a limited number of it at another price."""
    header = f"{HEADER},labels,available"
    rows = parse_catalog(f"{header}\nm4,4,16,0.17,,\nm4,4,16,0.15,team=a,\nm4,4,16,0.01,,3\n")
    assert [row.available for row in rows] == [None, None, 3]


# --- offers


def test_offers_are_named_by_type_zone_and_capacity() -> None:
    """Rows of one name are numbered in file order, also where one of them has no zone."""
    text = table("zone,capacity_type,labels", "a,,", "a,spot,", "b,,", ",,", "a,,team=a")
    state = cluster(node("n1", zone="a"), node("n2", zone="b"))
    assert list(offers(text, state)) == [
        "m4/a/on-demand",
        "m4/a/spot",
        "m4/b/on-demand",
        "m4/a/on-demand#2",
        "m4/b/on-demand#2",
        "m4/a/on-demand#3",
    ]


def test_a_row_without_zone_is_offered_in_every_live_zone() -> None:
    """Zones are those of the live nodes; without any the zone is unknown and no label tells one."""
    text = f"{HEADER}\nm4,4,16,0.17"
    state = cluster(node("n1", zone="b"), node("n2", zone="a"), node("n3", zone=None))
    assert list(offers(text, state)) == ["m4/a/on-demand", "m4/b/on-demand"]
    [unknown] = offers(text, cluster(node("n1", zone=None))).values()
    assert unknown.name == "m4/-/on-demand"
    assert "topology.kubernetes.io/zone" not in unknown.labels


def test_what_is_available_without_zone_counts_over_all_zones() -> None:
    """Offers that come from one limited row share one pool; a row for one zone needs none."""
    state = cluster(node("n1", zone="a"), node("n2", zone="b"))
    shared = offers(table("available", "3"), state)
    assert {each.available for each in shared.values()} == {3}
    assert len({each.pool for each in shared.values()} - {""}) == 1
    assert [each.pool for each in offers(table("zone,available", "a,3"), state).values()] == [""]
    assert {each.pool for each in offers(table("zone", ""), state).values()} == {""}


def test_labels_of_a_new_node() -> None:
    """Standard labels, then the row's over them, and the node's own name."""
    [each] = offers(table("zone,labels", "a,kubernetes.io/arch=arm64;team=x")).values()
    assert new_node_labels(each, "new-1") == {
        "kubernetes.io/hostname": "new-1",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "arm64",
        "node.kubernetes.io/instance-type": "m4",
        "topology.kubernetes.io/zone": "a",
        "kinema.io/capacity-type": "on-demand",
        "team": "x",
    }


def test_labels_that_all_nodes_of_a_type_have_are_assumed_on_new_ones() -> None:
    """Where two or more have them, no row of the type names the key, and no row denies it; places and marks aside."""
    tier = {"tier": "web", "kinema.io/x": "y"}
    state = cluster(
        node("n1", labels={**tier, "rack": "1"}),
        node("n2", labels=tier),
        node("n3", machine="m8", labels={"only": "1"}),
    )
    rows = f"{HEADER},labels\nm4,4,16,0.17,{{}}\nm8,8,32,0.3,"
    known = {each.machine_type: each for each in offers(rows.format(""), state).values()}
    assert (known["m4"].labels["tier"], known["m4"].assumed_labels) == ("web", ("tier",))
    assert known["m8"].assumed_labels == ()
    for text in ("tier-", "tier=db"):
        each = offers(rows.format(text), state)["m4/a/on-demand"]
        assert (each.labels.get("tier"), each.assumed_labels) == ({"tier=db": "db"}.get(text), ())
    each = offers(rows.format("beta.kubernetes.io/os-"), state)["m4/a/on-demand"]
    assert "beta.kubernetes.io/os" not in each.labels


def test_the_formula_counts_where_nothing_else_is_known() -> None:
    """A type without live nodes has what the formula leaves, and 110 pods."""
    [each] = offers(f"{HEADER}\ne2-standard-4,4,16,0.17").values()
    assert each.allocatable == {"cpu": 3920, "memory": 14_283_282_841, "pods": 110}
    assert each.capacity == {"cpu": 4000, "memory": 16 * GIB, "pods": 110}


def test_live_nodes_of_the_type_win_over_the_formula() -> None:
    """The smallest allocatable of the type's live nodes counts, whatever their zone; zeros teach nothing."""
    state = cluster(
        node("n1", cpu=3900, memory=14_000, pods=64, extra={"ephemeral-storage": 100, "nvidia.com/gpu": 1}),
        node("n2", cpu=3950, memory=13_000, zone="b", ready=False),
        node("n3", cpu=0, memory=0),
        node("n4", cpu=1, machine="m8"),
    )
    [each] = [each for each in offers(f"{HEADER}\nm4,4,16,0.17", state).values() if each.zone == "a"]
    assert each.allocatable == {"cpu": 3900, "memory": 13_000 * MIB, "pods": 64, "ephemeral-storage": 100}


def test_a_new_type_takes_the_fewest_volumes_of_any_live_node() -> None:
    """Nobody has seen what a driver says of it; of a type with live nodes what those say holds, also if they do not."""
    disks = "attachable-volumes-csi-disk.example.com"
    state = cluster(
        node("n1", extra={disks: 20}),
        node("n2", extra={disks: 15}),
        node("n3", machine="m8", extra={disks: 127, "ephemeral-storage": 5}),
        node("n4", machine="m6", extra={disks: 0}),
        node("n5", machine="m5"),
    )
    rows = [f"{each},4,16,0.17" for each in ("m4", "m8", "m16", "m5")]
    found = offers("\n".join((HEADER, *rows)), state).values()
    limits = {each.machine_type: each.allocatable.get(disks) for each in found}
    assert limits == {"m4": 15, "m8": 127, "m16": 15, "m5": None}
    assert all("ephemeral-storage" not in each.allocatable for each in found if each.machine_type == "m16")


def test_what_the_row_writes_wins_over_everything() -> None:
    """Written allocatable, pods and devices stand above live nodes and formula."""
    state = cluster(node("n1", cpu=3900, memory=14_000, extra={"nvidia.com/gpu": 8}))
    text = table("allocatable_cpu_m,allocatable_memory_bytes,max_pods,gpus", "3000,1000,10,1")
    [each] = offers(text, state).values()
    assert each.allocatable == {"cpu": 3000, "memory": 1000, "pods": 10, "nvidia.com/gpu": 1}


def test_shared_core_machines_keep_less_than_the_formula_says() -> None:
    """GKE keeps 1060 millicores on the small e2 types."""
    [each] = offers(f"{HEADER}\ne2-medium,2,4,0.03").values()
    assert each.allocatable["cpu"] == 940


@pytest.mark.parametrize(
    ("vcpus", "memory", "cpu_left", "memory_left"),
    [
        ("1", GIB, 940, GIB * 3 // 4 - 100 * MIB),
        ("2", 8 * GIB, 1930, 6_552_341_708),
        ("4", 16 * GIB, 3920, 14_283_282_841),
        ("8", 32 * GIB, 7910, 30_432_359_874),
        ("32", 128 * GIB, 31_850, 127_326_822_072),
        ("0.5", 600 * MIB, 470, 245 * MIB),
        ("0.001", MIB, 0, 0),
        ("96", 256 * GIB, 95_690, 262_016_996_474),
    ],
)
def test_the_providers_reserve(vcpus: str, memory: int, cpu_left: int, memory_left: int) -> None:
    """What GKE leaves to pods, as its documentation gives it, rounded down and never negative."""
    assert gke_allocatable(vcpus, memory) == (cpu_left, memory_left)
    assert gke_allocatable(Decimal(vcpus), memory) == (cpu_left, memory_left)


@given(st.integers(1, 400), st.integers(1, 2000), st.integers(1, 400), st.integers(1, 2000))
def test_a_bigger_machine_leaves_more(cores: int, memory: int, more: int, further: int) -> None:
    """The formula is monotone above 1 GiB, and always keeps something."""
    cpu, left = gke_allocatable(str(cores), memory * GIB)
    bigger, more_left = gke_allocatable(str(cores + more), (memory + further) * GIB)
    assert cpu < bigger
    assert left < more_left
    assert (cpu, left) < (cores * 1000, memory * GIB)


# --- live nodes


@pytest.mark.parametrize(
    ("given", "spot"),
    [
        ({}, False),
        ({"kinema.io/capacity-type": "spot"}, True),
        ({"karpenter.sh/capacity-type": "spot"}, True),
        ({"karpenter.sh/capacity-type": "on-demand"}, False),
        ({"cloud.google.com/gke-spot": "true"}, True),
        ({"cloud.google.com/gke-preemptible": "true"}, True),
        ({"cloud.google.com/gke-preemptible": "false"}, False),
        ({"eks.amazonaws.com/capacityType": "SPOT"}, True),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, False),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, True),
        ({"cluster.x-k8s.io/interruptible": ""}, True),
        ({"kinema.io/capacity-type": "on-demand", "cloud.google.com/gke-spot": "true"}, False),
    ],
)
def test_spot_nodes_are_known_by_anyones_label(given: dict[str, str], spot: bool) -> None:
    """Each provider's label counts, Kinema's own before them."""
    bare = Node(name="n", uid="u", labels=type(node("n").labels)(given))
    assert machine_of(bare) == ("-", "-", "spot" if spot else "on-demand")


def test_machine_and_zone_are_the_standard_labels() -> None:
    """The older labels count where the newer are missing."""
    old = {"beta.kubernetes.io/instance-type": "m4", "failure-domain.beta.kubernetes.io/zone": "z"}
    assert machine_of(node("n1", machine=None, zone=None, labels=old)) == ("m4", "z", "on-demand")
    assert machine_of(node("n1", labels=old)) == ("m4", "a", "on-demand")


def test_a_live_nodes_price() -> None:
    """The annotation, else the first offer of type, zone and capacity type, else the only price of the type."""
    state = cluster(
        node("annotated", price="0.123457"),
        node("free", price="0"),
        node("listed"),
        node("spot", spot=True),
        node("nowhere", zone=None, machine="m2"),
    )
    on_sale = [
        offer("m4", price=170_000),
        offer("m4", price=1, name="m4/a/on-demand#2"),
        offer("m4", spot=True, price=50_000),
        offer("m2", price=85_000),
        offer("m2", zone="b", price=85_000),
    ]
    assert node_prices(state, on_sale) == {
        "annotated": 123_457,
        "free": 0,
        "listed": 170_000,
        "spot": 50_000,
        "nowhere": 85_000,
    }


def test_all_nodes_without_a_price_are_named() -> None:
    """One error lists every node that is neither annotated nor on sale, or badly annotated."""
    strange = (node("n2", zone="c"), node("n3", price="cheap"), node("n4", spot=True))
    with pytest.raises(PriceError) as caught:
        node_prices(cluster(*strange), [offer("m4")])
    message = str(caught.value)
    assert message.startswith("3 of 3 nodes")
    for part in ("n2 (m4/c/on-demand)", "n3 (annotation", "'cheap'", "n4 (m4/a/spot)", "add the offers to the catalog"):
        assert part in message
    state = cluster(node("n1"), *strange)
    assert node_prices(state, [offer("m4")]) == {"n1": 170_000, "n2": 0, "n3": 0, "n4": 0}
    assert unpriced_nodes(state, [offer("m4")]).keys() == {"n2", "n3", "n4"}


def test_a_node_without_zone_has_no_price_where_zones_differ() -> None:
    """Which of two prices would be a guess."""
    on_sale = [offer("m4", price=1), offer("m4", zone="b", price=2)]
    with pytest.raises(PriceError, match="n1"):
        node_prices(cluster(node("n1", zone=None)), on_sale)
