"""Price tables that ship with Kinema: which machines they sell to a cluster, and at what price."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.support.builders import GIB, cluster, node

from kinema_core.events import Node
from kinema_core.model.catalog import node_prices, offers_from
from kinema_core.model.catalog_file import catalog_text, parse_catalog
from kinema_core.model.price_table import family, parse_table, region_of, table_catalog
from kinema_core.prices import price_tables

TEXT = """machine_type,vcpus,memory_gib,arch,gpus,max_pods,r1,r2
#priced,,,,,,2026-01-02,2026-03-04
#source,,,,,,list one,list two
m5.large,2,8,amd64,,29,0.1,0.2
m5.xlarge,4,16,amd64,,58,0.2,0.4
m5.metal,96,384,amd64,,110,4.8,9.6
m6g.large,2,8,arm64,,29,0.08,
c5.large,2,4,amd64,,29,0.07,0.14
g5.xlarge,4,16,amd64,1,58,1,2
"""
TABLE = parse_table("ec2", TEXT)


def live(name: str, machine_type: str, region: str = "r1", **labels: str) -> Node:
    """A node as its cloud labels it."""
    usual = {
        "node.kubernetes.io/instance-type": machine_type,
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": f"{region}a",
    }
    return node(name, labels={**usual, **labels})


@pytest.mark.parametrize(
    ("machine_type", "expected"),
    [
        ("e2-standard-4", "e2"),
        ("e2-medium", "e2-medium"),
        ("m5.2xlarge", "m5"),
        ("Standard_D4s_v3", "Standard_D*s_v3"),
        ("Standard_D16s_v3", "Standard_D*s_v3"),
        ("Standard_B2ms", "Standard_B*ms"),
    ],
)
def test_family_is_the_type_without_its_size(machine_type: str, expected: str) -> None:
    """Types of one family differ in size; a shared core is no smaller machine of the family."""
    assert family(machine_type) == expected


def test_families_of_the_cluster_are_offered() -> None:
    """All virtual machines of the live families, at the prices of the region, in each of its live zones; no others."""
    other_zone = live("n2", "m5.large", **{"topology.kubernetes.io/zone": "r1b"})
    found = table_catalog(cluster(live("n1", "m5.large"), other_zone), [TABLE])
    assert [(row.machine_type, row.zone, row.micro_usd_per_hour) for row in found.rows] == [
        ("m5.large", "r1a", 100_000),
        ("m5.large", "r1b", 100_000),
        ("m5.xlarge", "r1a", 200_000),
        ("m5.xlarge", "r1b", 200_000),
    ]
    assert len({row.line for row in found.rows}) == 4
    assert found.source == "ec2 r1 of 2026-01-02 from list one"


def test_other_families_are_offered_when_asked_for() -> None:
    """Patterns add machine types, but none of an architecture that no node of the cluster has."""
    found = table_catalog(cluster(live("n1", "c5.large")), [TABLE], more=["m*"])
    assert [row.machine_type for row in found.rows] == ["c5.large", "m5.large", "m5.xlarge"]
    arm = live("n2", "m6g.large", **{"kubernetes.io/arch": "arm64"})
    found = table_catalog(cluster(live("n1", "c5.large"), arm), [TABLE])
    assert {row.machine_type: row.labels.get("kubernetes.io/arch") for row in found.rows} == {
        "c5.large": None,
        "m6g.large": "arm64",
    }


def test_live_server_has_a_price() -> None:
    """A type that the cluster has is priced although its kind is not offered by itself."""
    state = cluster(live("n1", "m5.metal"))
    offers = offers_from(table_catalog(state, [TABLE]).rows, state)
    assert node_prices(state, offers) == {"n1": 4_800_000}


def test_each_region_has_its_prices_and_dates() -> None:
    """Nodes of two regions are priced by their own; the oldest date is the catalog's."""
    state = cluster(live("n1", "m5.large"), live("n2", "m5.large", "r2"))
    found = table_catalog(state, [TABLE])
    assert node_prices(state, offers_from(found.rows, state)) == {"n1": 100_000, "n2": 200_000}
    assert found.priced is not None
    assert f"{found.priced:%Y-%m-%d}" == "2026-01-02"


def test_new_types_have_what_the_cloud_leaves_to_pods() -> None:
    """EKS keeps memory for each pod; of a live type its nodes decide."""
    rows = {row.machine_type: row for row in table_catalog(cluster(live("n1", "m5.large")), [TABLE]).rows}
    assert rows["m5.large"].allocatable_memory is None
    xlarge = rows["m5.xlarge"]
    assert xlarge.max_pods == 58
    assert xlarge.allocatable_memory == int(16 * GIB * Fraction(925, 1000)) - (255 + 11 * 58 + 100) * 2**20


def test_unknown_machines_have_no_row() -> None:
    """A type or a region that no table has sells nothing: its nodes are then named as lacking a price."""
    assert table_catalog(cluster(live("n1", "x9.large"), live("n2", "m5.large", "mars")), [TABLE]).rows == ()


@pytest.mark.parametrize(
    ("zone", "expected"), [("europe-west3-a", "europe-west3"), ("eu-central-1a", "eu-central-1"), ("moon-1a", "-")]
)
def test_zone_names_the_region_where_no_label_does(zone: str, expected: str) -> None:
    """GCE puts a dash before a zone's letter, EC2 does not."""
    without = node("n1", labels={"topology.kubernetes.io/zone": zone})
    assert region_of(without, ["europe-west3", "eu-central-1"]) == expected


def test_catalog_is_written_as_it_reads() -> None:
    """What `kinema prices` prints reads as the same rows, GPUs and architecture included."""
    arm = live("n2", "m6g.large", **{"kubernetes.io/arch": "arm64"})
    found = table_catalog(cluster(live("n1", "g5.xlarge"), arm, live("n3", "m5.large")), [TABLE])
    read = parse_catalog(catalog_text(found.rows, found.priced, found.source))
    assert [(row.line - 2) for row in read] == [row.line for row in found.rows]
    written = {row.machine_type: (row.extended, row.labels, row.max_pods, row.memory) for row in found.rows}
    assert {row.machine_type: (row.extended, row.labels, row.max_pods, row.memory) for row in read} == written


@pytest.mark.parametrize(
    ("cloud", "machine_type", "region", "usd"),
    [
        ("gce", "e2-standard-2", "us-central1", "0.067011"),
        ("gce", "n2-standard-4", "europe-west1", "0.213668"),
        ("ec2", "m5.large", "us-east-1", "0.096"),
        ("ec2", "m5.large", "eu-central-1", "0.115"),
        ("azure", "Standard_D4s_v3", "eastus", "0.192"),
    ],
)
def test_shipped_tables_have_list_prices(cloud: str, machine_type: str, region: str, usd: str) -> None:
    """Spot checks against the clouds' published prices; every region has a date and a source."""
    table = next(one for one in price_tables() if one.cloud == cloud)
    assert table.machines[machine_type].prices[region] == round(Fraction(usd) * 10**6)
    regions = {region for machine in table.machines.values() for region in machine.prices}
    assert regions == set(table.priced) == set(table.sources)
