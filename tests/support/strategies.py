"""Hypothesis strategies: quantities, and clusters with their histories."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st
from tests.support.builders import budget, deployment, node, pod, replica_set, unreadable

from kinema_core.events import ClusterObject, Node, Pod
from kinema_core.model.cluster import Cluster, from_objects

SCALES: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


@st.composite
def quantities(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A quantity's text and its exact value, up to about 8 Ei."""
    whole = draw(st.integers(0, 7))
    digits = draw(st.text("0123456789", max_size=6))
    number = f"{whole}.{digits}" if digits else str(whole)
    suffix = draw(st.sampled_from(sorted(SCALES)))
    if draw(st.booleans()):
        exponent = draw(st.integers(-9, 15))
        return f"{number}{draw(st.sampled_from('eE'))}{exponent}", Fraction(number) * Fraction(10) ** exponent
    return number + suffix, Fraction(number) * SCALES[suffix]


def nodes() -> st.SearchStrategy[Node]:
    """Nodes of a handful of names, so that histories touch the same ones again."""
    return st.builds(
        node,
        st.sampled_from(["n1", "n2", "n3", "n4"]),
        cpu=st.sampled_from([2000, 4000]),
        ready=st.booleans(),
        unschedulable=st.booleans(),
    )


def pods() -> st.SearchStrategy[Pod]:
    """Pods of a handful of names, pending or on one of the nodes."""
    return st.builds(
        pod,
        st.sampled_from([f"web-{index}" for index in range(6)]),
        node=st.sampled_from([None, "n1", "n2", "n3"]),
        namespace=st.sampled_from(["shop", "bank"]),
        cpu=st.integers(1, 500),
    )


def objects() -> st.SearchStrategy[ClusterObject]:
    """Objects of several kinds."""
    names = st.sampled_from(["web", "cart"])
    return st.one_of(
        nodes(),
        pods(),
        st.builds(deployment, names, replicas=st.integers(0, 3)),
        st.builds(replica_set, names, replicas=st.integers(0, 3)),
        st.builds(budget, names, min_available=st.sampled_from(["1", "50%"])),
        st.builds(unreadable, st.sampled_from(["Pod shop/odd-0", "Node n9"])),
    )


def clusters(version: int = 1) -> st.SearchStrategy[Cluster]:
    """Clusters of up to twenty objects."""
    return st.lists(objects(), max_size=20).map(lambda items: from_objects(items, version))


def histories() -> st.SearchStrategy[list[Cluster]]:
    """Between one and six clusters, each the successor of the one before, at versions from 1 on."""
    states = st.lists(st.lists(objects(), max_size=12), min_size=1, max_size=6)
    return states.map(lambda items: [from_objects(each, index) for index, each in enumerate(items, start=1)])
