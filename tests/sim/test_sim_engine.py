"""The deterministic core: time, store, selectors, quantities."""

import pytest
from tests.sim.builders import a_pod, a_store

from kinema_sim.engine.clock import EPOCH_MS, Loop, parse_stamp, stamp
from kinema_sim.engine.kinds import CONFIG_MAP, DEPLOYMENT, NODE, POD
from kinema_sim.engine.objects import Obj
from kinema_sim.engine.selectors import match_node_term, matches, parse_fields, parse_labels
from kinema_sim.engine.store import Change


def test_events_run_by_time_then_priority_then_order_of_arrival() -> None:
    """Ties in time are broken by priority, and ties in that by the order in which the events were asked for."""
    loop, seen = Loop(0), list[str]()
    loop.at(20, lambda: seen.append("late"))
    loop.at(10, lambda: seen.append("second"), priority=1)
    loop.at(10, lambda: seen.append("first"))
    loop.at(10, lambda: seen.append("third"), priority=1)
    loop.run_until(20)
    assert seen == ["first", "second", "third", "late"]
    assert loop.now_ms == 20


def test_an_instant_that_never_ends_is_an_error() -> None:
    """Two actions that call each other without a delay stop the run with an error instead of hanging."""
    loop = Loop(0)

    def again() -> None:
        loop.after(0, again)

    loop.after(0, again)
    with pytest.raises(RuntimeError, match="stands still"):
        loop.run_until(1)


def test_periodic_actions_fall_on_multiples_of_their_period() -> None:
    """A periodic action runs at once and then on the multiples of its period."""
    loop, times = Loop(7), list[int]()
    loop.every(10, lambda: times.append(loop.now_ms))
    loop.run_until(30)
    assert times == [7, 10, 20, 30]


def test_stamps_read_back() -> None:
    """A time written for Kubernetes reads back to the second."""
    assert stamp(EPOCH_MS + 1999) == "2026-01-05T08:00:01Z"
    assert parse_stamp("2026-01-05T08:00:01Z") == EPOCH_MS + 1000


def test_uids_depend_on_the_object_and_not_on_what_else_was_created() -> None:
    """The same object gets the same uid whatever was created before it, and another uid in its next life."""
    one, two = a_store(), a_store()
    two.create(POD, a_pod("other"))
    first = one.create(POD, a_pod("p"))
    assert first["metadata"]["uid"] == two.create(POD, a_pod("p"))["metadata"]["uid"]
    one.remove(POD, ("shop", "p"))
    assert one.create(POD, a_pod("p"))["metadata"]["uid"] != first["metadata"]["uid"]
    assert a_store(seed=1).create(POD, a_pod("p"))["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_write_without_a_difference_makes_no_version() -> None:
    """Writing an equal object leaves its version and tells nobody."""
    store, seen = a_store(), list[Change]()
    made = store.create(POD, a_pod("p"))
    store.subscribe(seen.append)
    assert store.edit(POD, ("shop", "p"), lambda draft: None) is made
    assert seen == []


def test_the_generation_moves_with_the_spec_only() -> None:
    """A change of labels leaves the generation, a change of the spec raises it by one."""
    store = a_store()
    store.create(DEPLOYMENT, {"metadata": {"name": "d", "namespace": "shop"}, "spec": {"replicas": 1}})
    labeled = store.edit(DEPLOYMENT, ("shop", "d"), lambda draft: draft["metadata"].update(labels={"a": "b"}))
    assert labeled is not None
    assert labeled["metadata"]["generation"] == 1
    scaled = store.edit(DEPLOYMENT, ("shop", "d"), lambda draft: draft["spec"].update(replicas=2))
    assert scaled is not None
    assert scaled["metadata"]["generation"] == 2


def test_a_changed_status_leaves_what_was_there_before() -> None:
    """The old value keeps its status and version, and shares the spec, which did not change; the generation stays."""
    store = a_store()
    deployment = {"metadata": {"name": "d", "namespace": "shop"}, "spec": {"replicas": 1}, "status": {"ready": [1]}}
    before = store.create(DEPLOYMENT, deployment)
    version = before["metadata"]["resourceVersion"]
    after = store.edit_status(DEPLOYMENT, ("shop", "d"), lambda draft: draft["status"]["ready"].append(2))
    assert after is not None
    assert after["status"] == {"ready": [1, 2]}
    assert after["metadata"]["generation"] == 1
    assert int(after["metadata"]["resourceVersion"]) > int(version)
    assert after["spec"] is before["spec"]
    assert before["status"] == {"ready": [1]}
    assert before["metadata"]["resourceVersion"] == version
    assert store.edit_status(DEPLOYMENT, ("shop", "d"), lambda draft: None) is after
    assert store.edit_status(DEPLOYMENT, ("shop", "gone"), lambda draft: None) is None


def test_history_is_bounded() -> None:
    """Changes since a version are there while the window holds them, and known to be forgotten afterwards."""
    store = a_store(window=3)
    start = store.version
    for number in range(3):
        store.create(CONFIG_MAP, {"metadata": {"name": f"c{number}", "namespace": "shop"}})
    found = store.changes_since(CONFIG_MAP, start)
    assert found is not None
    assert [change.new["metadata"]["name"] for change in found] == ["c0", "c1", "c2"]
    store.create(CONFIG_MAP, {"metadata": {"name": "c3", "namespace": "shop"}})
    assert store.changes_since(CONFIG_MAP, start) is None
    assert len(store.changes_since(CONFIG_MAP, start + 1) or ()) == 3


def test_indexes_follow_changes() -> None:
    """Pods are found by node and by owner exactly as long as they are there."""
    store = a_store()
    owner = {"kind": "ReplicaSet", "name": "r", "uid": "u1", "controller": True}
    draft = a_pod("p")
    draft["metadata"]["ownerReferences"] = [owner]
    store.create(POD, draft)
    store.edit(POD, ("shop", "p"), lambda pod: pod["spec"].update(nodeName="n1"))
    assert [pod["metadata"]["name"] for pod in store.pods_on("n1")] == ["p"]
    assert [pod["metadata"]["name"] for pod in store.owned(POD, "u1")] == ["p"]
    store.remove(POD, ("shop", "p"))
    assert store.pods_on("n1") == []
    assert store.owned(POD, "u1") == []
    assert store.pods_in("shop") == []


def _pod(**labels: str) -> Obj:
    return a_pod("p", labels=labels, node="n1")


@pytest.mark.parametrize(
    ("selector", "hit"),
    [
        ("app=web", True),
        ("app==web,tier!=back", True),
        ("app!=web", False),
        ("app in (api, web)", True),
        ("app notin (api,web)", False),
        ("app=web,app=api", False),
        ("app=web,app in (web)", True),
        ("app", True),
        ("!app", False),
        ("!tier", True),
        ("", True),
    ],
)
def test_label_selectors_of_queries(selector: str, hit: bool) -> None:
    """Equality, set and existence terms read as in kubectl."""
    assert parse_labels(selector)(_pod(app="web")) is hit


@pytest.mark.parametrize(
    ("selector", "hit"),
    [("spec.nodeName=n1", True), ("metadata.name!=p", False), ("status.phase=Pending,spec.nodeName=n2", False)],
)
def test_field_selectors_of_queries(selector: str, hit: bool) -> None:
    """The supported fields can be compared, several at once."""
    assert parse_fields(selector)(_pod()) is hit


def test_an_unknown_field_is_refused() -> None:
    """A field that the server has no index for is an error and not an empty answer."""
    with pytest.raises(ValueError, match="not supported"):
        parse_fields("spec.hostname=x")


def test_label_selector_objects() -> None:
    """An absent selector selects nothing, an empty one everything, and all parts must hold."""
    labels = {"app": "web", "tier": "front"}
    assert not matches(None, labels)
    assert matches({}, labels)
    both = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}
    assert matches(both, labels)
    assert not matches({"matchLabels": {"app": "web", "zone": "a"}}, labels)


@pytest.mark.parametrize(
    ("expression", "hit"),
    [
        ({"key": "size", "operator": "Gt", "values": ["3"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["4"]}, False),
        ({"key": "size", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "DoesNotExist"}, True),
        ({"key": "gpu", "operator": "Gt", "values": ["1"]}, False),
    ],
)
def test_node_terms(expression: Obj, hit: bool) -> None:
    """Node terms compare numbers, and a node without the label fails a comparison."""
    store = a_store()
    node = store.create(NODE, {"metadata": {"name": "n", "labels": {"size": "4"}}})
    assert match_node_term({"matchExpressions": [expression]}, node) is hit
    assert not match_node_term({}, node)
