"""Selectors, node affinity, taints and ports match as in kube-scheduler."""

from __future__ import annotations

import pytest
from tests.support.builders import labels, selector, taint, toleration

from kinema_core.events import (
    HostPort,
    NodeTerm,
    PlacementRules,
    Requirement,
    Selector,
    Toleration,
)
from kinema_core.model.match import (
    node_admits,
    node_term_matches,
    parse_taint,
    ports_clash,
    requirement_matches,
    selector_matches,
    taint_text,
    tolerates,
)

HERE = labels({"zone": "a", "cores": "8", "odd": "eight", "empty": ""})


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (Requirement(key="zone", operator="In", values=("a", "b")), True),
        (Requirement(key="zone", operator="In", values=("b",)), False),
        (Requirement(key="zone", operator="In"), False),
        (Requirement(key="none", operator="In", values=("a",)), False),
        (Requirement(key="empty", operator="In", values=("",)), True),
        (Requirement(key="zone", operator="NotIn", values=("a",)), False),
        (Requirement(key="zone", operator="NotIn", values=("b",)), True),
        (Requirement(key="none", operator="NotIn", values=("a",)), True),
        (Requirement(key="zone", operator="Exists"), True),
        (Requirement(key="empty", operator="Exists"), True),
        (Requirement(key="none", operator="Exists"), False),
        (Requirement(key="zone", operator="DoesNotExist"), False),
        (Requirement(key="none", operator="DoesNotExist"), True),
        (Requirement(key="cores", operator="Gt", values=("7",)), True),
        (Requirement(key="cores", operator="Gt", values=("8",)), False),
        (Requirement(key="cores", operator="Gt", values=("10",)), False),
        (Requirement(key="cores", operator="Lt", values=("10",)), True),
        (Requirement(key="cores", operator="Lt", values=("8",)), False),
        (Requirement(key="cores", operator="Gt", values=("-1",)), True),
        (Requirement(key="odd", operator="Gt", values=("1",)), False),
        (Requirement(key="cores", operator="Gt", values=("one",)), False),
        (Requirement(key="cores", operator="Gt"), False),
        (Requirement(key="none", operator="Lt", values=("1",)), False),
    ],
)
def test_each_operator_of_an_expression(requirement: Requirement, expected: bool) -> None:
    """Operators compare as in Kubernetes: numbers as numbers, and a missing key meets only the negative ones."""
    assert requirement_matches(requirement, HERE) is expected


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    """None and empty are opposites."""
    assert not selector_matches(None, HERE)
    assert selector_matches(Selector(), HERE)
    assert selector_matches(Selector(), labels())


def test_a_selector_needs_all_of_its_parts() -> None:
    """Equalities and expressions are all required."""
    both = Selector(labels=labels({"zone": "a"}), expressions=(Requirement(key="odd", operator="Exists"),))
    assert selector_matches(both, HERE)
    assert not selector_matches(both, labels({"zone": "a"}))
    assert not selector_matches(both, labels({"odd": "x"}))
    assert not selector_matches(selector(zone="b"), HERE)


@pytest.mark.parametrize(
    ("given", "text", "expected"),
    [
        (toleration("dedicated", "web"), "dedicated=web:NoSchedule", True),
        (toleration("dedicated", "web"), "dedicated=db:NoSchedule", False),
        (toleration("dedicated", "web"), "other=web:NoSchedule", False),
        (toleration("dedicated"), "dedicated=db:NoSchedule", True),
        (toleration("dedicated", "web", "NoExecute"), "dedicated=web:NoSchedule", False),
        (toleration("dedicated", "web", "NoSchedule"), "dedicated=web:NoSchedule", True),
        (toleration("dedicated", ""), "dedicated:NoSchedule", True),
        (toleration(), "anything=at-all:NoExecute", True),
        (toleration(effect="NoSchedule"), "anything:NoExecute", False),
        (toleration("", "x"), "anything=x:NoExecute", False),
        (Toleration(key="sla", operator="Gt", value="90"), "sla=95:NoSchedule", True),
        (Toleration(key="sla", operator="Gt", value="90"), "sla=90:NoSchedule", False),
        (Toleration(key="sla", operator="Lt", value="90"), "sla=80:NoSchedule", True),
        (Toleration(key="sla", operator="Lt", value="90"), "sla=high:NoSchedule", False),
    ],
)
def test_each_form_of_toleration(given: Toleration, text: str, expected: bool) -> None:
    """An empty key tolerates everything only with Exists, an empty effect means every effect."""
    assert tolerates((given,), taint(text)) is expected


def test_node_terms_need_all_parts_and_rules_any_term() -> None:
    """Expressions and fields of a term are all required, one term suffices, an empty one is met by none."""
    named = NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=("n1",)),))
    zoned = NodeTerm(expressions=(Requirement(key="zone", operator="In", values=("a",)),))
    both = NodeTerm(expressions=zoned.expressions, fields=named.fields)
    assert node_term_matches(both, name="n1", labels=HERE)
    assert not node_term_matches(both, name="n2", labels=HERE)
    assert not node_term_matches(both, name="n1", labels=labels())
    assert not node_term_matches(NodeTerm(), name="n1", labels=HERE)
    either = PlacementRules(node_terms=(named, zoned))
    assert node_admits(either, name="n2", labels=HERE, taints=()) is None
    assert node_admits(either, name="n2", labels=labels(), taints=()) == "required node affinity"


def test_what_keeps_a_pod_from_a_node_is_named() -> None:
    """The first rule that forbids is told; soft taints and preferences forbid nothing."""
    rules = PlacementRules(node_selector=labels({"zone": "a"}), tolerations=(toleration("gpu"),))
    assert node_admits(rules, name="n1", labels=HERE, taints=()) is None
    assert node_admits(rules, name="n1", labels=labels(), taints=()) == "node selector zone=a"
    assert node_admits(rules, name="n1", labels=HERE, taints=(taint("gpu=true:NoSchedule"),)) is None
    assert node_admits(rules, name="n1", labels=HERE, taints=(taint("soft:PreferNoSchedule"),)) is None
    assert node_admits(rules, name="n1", labels=HERE, taints=(taint("db=x:NoExecute"),)) == "taint db=x:NoExecute"


def test_an_affinity_without_terms_admits_nowhere() -> None:
    """No rule and a rule without alternatives are different things."""
    assert node_admits(PlacementRules(node_terms=()), name="n1", labels=HERE, taints=()) is not None
    assert node_admits(PlacementRules(node_terms=None), name="n1", labels=HERE, taints=()) is None


@pytest.mark.parametrize("text", ["key=value:NoSchedule", "key:NoExecute", "a.b/c=d:PreferNoSchedule"])
def test_a_taint_is_written_as_it_is_read(text: str) -> None:
    """Reading and writing a taint undo each other."""
    assert taint_text(parse_taint(text)) == text


@pytest.mark.parametrize("text", ["", "key", "key=value", "key:Never", ":NoSchedule", "=v:NoSchedule"])
def test_a_taint_that_cannot_be_read_is_refused(text: str) -> None:
    """A taint without key or with an unknown effect is an error that says how to write one."""
    with pytest.raises(ValueError, match="write key=value:effect"):
        parse_taint(text)


@pytest.mark.parametrize(
    ("mine", "other", "clash"),
    [
        (HostPort(port=80), HostPort(port=80), True),
        (HostPort(port=80), HostPort(port=81), False),
        (HostPort(port=80), HostPort(port=80, protocol="UDP"), False),
        (HostPort(port=80, host_ip="10.0.0.1"), HostPort(port=80, host_ip="10.0.0.2"), False),
        (HostPort(port=80, host_ip="10.0.0.1"), HostPort(port=80, host_ip="10.0.0.1"), True),
        (HostPort(port=80, host_ip="10.0.0.1"), HostPort(port=80), True),
    ],
)
def test_host_ports_clash_on_the_same_address(mine: HostPort, other: HostPort, clash: bool) -> None:
    """Port and protocol must differ, or both addresses be given and differ."""
    assert (ports_clash((mine,), (other,)) is not None) is clash
