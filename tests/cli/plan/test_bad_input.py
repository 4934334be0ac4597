"""`kinema plan` on what people get wrong: one clear line or a named object each, never a traceback or a silent drop."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.bench import Bench, controllers, node, owner, pod, spread, text


def planned(bench: Bench, items: list[dict[str, Any]]) -> dict[str, Any]:
    """The plan for these objects, as JSON; every pod of theirs is in one of its lists exactly once."""
    bench.snapshot.write_bytes(text(items))
    result = bench.run("-o", "json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    pods = [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in items if item["kind"] == "Pod"]
    quarantined = [item["object"].partition(" ")[2] for item in found["quarantined"]]
    told = [item["pod"] for item in (*found["placements"], *found["unplaced"])]
    assert sorted(told + [key for key in quarantined if key in pods]) == sorted(pods)
    return found


def place(found: dict[str, Any], key: str) -> str:
    """The node of a pod by the plan."""
    return str(next(item["to"] for item in found["placements"] if item["pod"] == key))


def sell(bench: Bench, *rows: str, column: str = "") -> None:
    """Write a catalog with the machine m4 and these rows, with one column more where it is named."""
    head = f"machine_type,vcpus,memory_gib,usd_per_hour{column and ','}{column}"
    bench.catalog.write_text("\n".join((head, f"m4,4,16,0.17{column and ','}", *rows, "")))


def one_line(said: str) -> str:
    """What was said, which must be one line."""
    assert len(said.strip().splitlines()) == 1
    return said


def reasons(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Unplaced pods with code and reason."""
    return {item["pod"]: (item["code"], item["reason"]) for item in found["unplaced"]}


@pytest.mark.parametrize("price", ["0", "-0.1", "free", "nan", "inf", "1e-9", ""])
def test_price_that_is_none_is_named_with_line_and_column(bench: Bench, price: str) -> None:
    """Nothing is free, and nothing pays for being used."""
    sell(bench, f"m2,2,8,{price}")
    said = one_line(bench.fails())
    assert "line 3" in said
    assert "usd_per_hour" in said


@pytest.mark.parametrize(("column", "amount"), [("usd_per_hour", "999999999999"), ("watts", "100000.1")])
def test_amount_that_no_machine_has_is_named_with_line_and_column(bench: Bench, column: str, amount: str) -> None:
    """Sums of such would not be exact: a plan ended in its own checker's words."""
    given = {"usd_per_hour": "0.17", "watts": "20", column: amount}
    bench.catalog.write_text(f"machine_type,vcpus,memory_gib,{','.join(given)}\nm4,4,16,{','.join(given.values())}\n")
    said = one_line(bench.fails())
    assert f"catalog line 2, column {column}: '{amount}': no machine " in said
    assert "more than 100,000" in said


@pytest.mark.parametrize(("column", "amount", "has"), [("cpu_m", 4001, 4000), ("memory_bytes", 17 * 2**30, 16 * 2**30)])
def test_machine_that_has_more_for_pods_than_it_has_is_named(bench: Bench, column: str, amount: int, has: int) -> None:
    """Such a row would win over what live nodes of the type report; one that leaves all to pods may be right."""
    head = f"machine_type,vcpus,memory_gib,usd_per_hour,allocatable_{column}\nm2,2,8,0.09,\nm4,4,16,0.17"
    bench.catalog.write_text(f"{head},{amount}\n")
    said = bench.fails()
    assert f"catalog line 3, column allocatable_{column}: '{amount}': more than the machine has by its " in said
    bench.catalog.write_text(f"{head},{has}\n")
    assert bench.run().exit_code == 0


@pytest.mark.parametrize("price", ["-0.1", "free", "nan", "999999999999"])
def test_annotated_price_that_is_none_is_named_with_its_node(bench: Bench, price: str) -> None:
    """A node's own price may be 0, as it is paid for already, and nothing below."""
    odd = node("odd")
    odd["metadata"]["annotations"] = {"kinema.io/usd-per-hour": price}
    bench.snapshot.write_bytes(text([*spread(), odd]))
    result = bench.run()
    assert result.exit_code == 0, result.output
    assert f"missing price: annotation kinema.io/usd-per-hour is '{price}'" in result.stdout
    assert "(1 node: odd); no plan deletes them" in result.stdout


def test_node_that_is_paid_for_already_costs_nothing(bench: Bench) -> None:
    """A price of 0 on a live node is a commitment: it is kept and filled."""
    paid = node("paid")
    paid["metadata"]["annotations"] = {"kinema.io/usd-per-hour": "0"}
    found = planned(bench, [*spread(), paid])
    assert found["cost"]["after"] == 0.0
    assert {item["to"] for item in found["placements"]} == {"paid"}


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (node("n1", "m2"), "Node are named n1"),
        (pod("web-1", "n1", cpu="2"), "Pod are named shop/web-1"),
        (controllers(9)[0], "Workload are named Deployment/shop/web"),
    ],
)
def test_two_unlike_objects_of_one_name_are_an_error(bench: Bench, other: dict[str, Any], name: str) -> None:
    """Neither of the two is dropped in silence: the snapshot is no state of any cluster."""
    bench.snapshot.write_bytes(text([*spread(), other]))
    said = one_line(bench.fails())
    assert name in said


def test_object_that_is_listed_twice_counts_once(bench: Bench) -> None:
    """`kubectl get all,pods` lists pods twice: nothing is lost by reading one of them."""
    bench.snapshot.write_bytes(text([*spread(), *spread()]))
    assert len(json.loads(bench.run("-o", "json").stdout)["placements"]) == 3


def test_two_catalog_rows_of_one_machine_are_refused(bench: Bench) -> None:
    """Which of two prices a node of this type costs cannot be known: both lines are named."""
    sell(bench, "m2,2,8,0.09", "m2,2,8,0.08")
    assert "lines 3 and 4 both sell m2" in bench.fails()


def test_two_catalog_rows_of_one_name_are_two_offers(bench: Bench) -> None:
    """Where a limited number is sold for less: the cheaper is bought, and the name tells which row it is."""
    sell(bench, "m2,2,8,0.09,", "m2,2,8,0.08,1", column="available")
    found = planned(bench, spread())
    assert [item["offer"] for item in found["nodes"] if item["action"] == "boot"] == ["m2/a/on-demand#2"]


def test_negative_replicas_are_named_with_what_to_do(bench: Bench) -> None:
    """Object, field and remedy are told, and nothing of its namespace moves."""
    broken = controllers(3)
    broken[0]["spec"] = {**broken[0]["spec"], "replicas": -3}
    found = planned(bench, [node("n0"), node("n1"), *broken, *(pod(f"web-{n}", f"n{n}") for n in range(2))])
    [one] = found["quarantined"]
    assert (one["object"], one["path"]) == ("Deployment shop/web", "spec.replicas")
    assert one["reason"] == "is -3: a number of pods is 0 or more"
    assert found["moves"] == 0


def test_column_that_is_there_twice_is_named(bench: Bench) -> None:
    """Two prices of one machine in one row cannot both hold."""
    bench.catalog.write_text("machine_type,vcpus,memory_gib,usd_per_hour,usd_per_hour\nm4,4,16,0.17,0.2\n")
    assert "has twice the column 'usd_per_hour'" in bench.fails()


def test_pod_that_nothing_holds_names_resource_and_nearest_offer(bench: Bench) -> None:
    """Which resource is lacking, how much of it, and where it is lacking least."""
    code, reason = reasons(planned(bench, [*spread(), pod("huge", None, cpu="64")]))["shop/huge"]
    assert code == "resource-cpu"
    assert "nearest: m4/a/on-demand lacks cpu: 64 requested, 3920m there" in reason


def test_resource_that_nobody_has_is_named(bench: Bench) -> None:
    """A pending pod that asks for an unknown device has no place; what runs with one stays."""
    waiting, running = pod("waiting", None), pod("running", "n0")
    for one in (waiting, running):
        one["spec"]["containers"][0]["resources"]["requests"]["example.com/warp"] = "1"
    found = planned(bench, [*spread(), waiting, running])
    assert reasons(found)["shop/waiting"][0] == "resource-example.com/warp"
    assert "example.com/warp: 1 requested, 0 there" in reasons(found)["shop/waiting"][1]
    assert place(found, "shop/running") == "n0"


def test_no_node_is_an_error_that_says_how_to_take_a_snapshot(bench: Bench) -> None:
    """A file without nodes is no cluster to plan for."""
    bench.snapshot.write_bytes(text([pod("web-0", None), *controllers(1)]))
    said = bench.fails()
    assert "no node" in said
    assert "kubectl get nodes" in said


def test_one_node_is_enough(bench: Bench) -> None:
    """The only node may be replaced by a smaller one; it never just vanishes."""
    found = planned(bench, [node("n0"), *controllers(1), pod("web-0", "n0")])
    assert found["cost"]["after"] == 0.09
    assert len([item for item in found["nodes"] if item["action"] != "delete"]) == 1


def test_one_empty_node_may_go(bench: Bench) -> None:
    """A cluster without pods costs nothing."""
    assert planned(bench, [node("n0")])["cost"]["after"] == 0.0


@pytest.mark.parametrize("lacking", ["cpu", "memory"])
def test_node_that_does_not_say_what_it_holds_is_named(bench: Bench, lacking: str) -> None:
    """It would stand for an empty machine, and so would all new ones of its type; its pods stay where they are."""
    items = spread()
    del items[0]["status"]["allocatable"][lacking]
    found = planned(bench, items)
    (one,) = found["quarantined"]
    assert (one["object"], one["path"]) == ("Node n0", f"status.allocatable.{lacking}")
    assert one["reason"].startswith("is missing: take it again")
    assert place(found, "shop/web-0") == "n0"


def test_two_objects_of_a_uid_are_told(bench: Bench) -> None:
    """The plan goes by names; that the file is no state of a cluster is said."""
    items = spread()
    items[-1]["metadata"]["uid"] = items[-2]["metadata"]["uid"]
    bench.snapshot.write_bytes(text(items))
    result = bench.run("-o", "json")
    assert result.exit_code == 0
    assert "the same uid: Pod shop/web-1 and shop/web-2; " in result.stderr
    bench.snapshot.write_bytes(text(spread()))
    assert "uid" not in bench.run("-o", "json").stderr


@pytest.mark.parametrize("allocatable", [{}, {"cpu": "0", "memory": "0", "pods": "0"}, None])
def test_node_without_capacity_takes_nothing(bench: Bench, allocatable: dict[str, str] | None) -> None:
    """A node that reports nothing, or none, is no place for pods, and those that it has find another."""
    broken = node("broken")
    broken["status"] = {"conditions": broken["status"]["conditions"]}
    if allocatable is not None:
        broken["status"]["allocatable"] = allocatable
    found = planned(bench, [*spread(), broken, pod("web-9", "broken")])
    told = {item["object"] for item in found["quarantined"]}
    kept = {item["name"] for item in found["nodes"] if item["action"] == "keep"}
    arrivals = {item["to"] for item in found["placements"] if item["from"] != item["to"]}
    assert "broken" not in arrivals
    assert "Node broken" in told or "broken" not in kept


@pytest.mark.parametrize(
    "amount", ["9223372036854775808", "1e30", "-1", "NaN", "1_000", "0x10", "٣", "1" * 10_000, "1e-9999"]
)
def test_quantity_out_of_range_is_quarantined_with_its_path(bench: Bench, amount: str) -> None:
    """The pod is named with the field and what may stand there; its node stays as it is."""
    odd = pod("odd", "n1", cpu=amount)
    bench.snapshot.write_bytes(text([*spread(), odd]))
    result = bench.run("-o", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    if amount == "1e-9999":  # tiny, and rounded up as the API server does
        assert found["quarantined"] == []
        return
    (item,) = found["quarantined"]
    assert item["object"] == "Pod shop/odd"
    assert "cpu" in item["path"]
    assert len(item["reason"]) < 400
    assert next(one["action"] for one in found["nodes"] if one["name"] == "n1") == "keep"


def test_rules_that_contradict_each_other_are_told(bench: Bench) -> None:
    """A pending pod whose selector and affinity exclude each other has no place, by rule; a running one stays."""
    where = "topology.kubernetes.io/zone"
    term = {"matchExpressions": [{"key": where, "operator": "In", "values": ["b"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    waiting, running = pod("waiting", None), pod("running", "n0")
    for one in (waiting, running):
        one["spec"] |= {"nodeSelector": {where: "a"}, "affinity": affinity}
    found = planned(bench, [*spread(), waiting, running])
    assert reasons(found)["shop/waiting"][0] == "rule"
    assert place(found, "shop/running") == "n0"


def test_pods_that_need_and_refuse_each_other_stay_where_they_are(bench: Bench) -> None:
    """Affinity and anti-affinity towards the same pods: whatever is broken now does not get worse."""
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    both = {
        kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]} for kind in ("podAffinity", "podAntiAffinity")
    }
    items = spread()
    for one in items:
        if one["kind"] == "Pod":
            one["spec"]["affinity"] = both
    found = planned(bench, items)
    places = [item["to"] for item in found["placements"]]
    assert len(set(places)) == len(places)


def test_object_of_ten_megabytes_is_read_or_named(bench: Bench) -> None:
    """An enormous annotation neither ends the command nor gets into the plan."""
    large = pod("large", "n0")
    large["metadata"]["annotations"] = {"note": "x" * 10_000_000}
    found = planned(bench, [*spread(), large])
    assert len(json.dumps(found)) < 100_000


def test_object_nested_without_end_is_one_line(bench: Bench) -> None:
    """A hostile depth is refused like any damaged file, or its object is named."""
    bench.snapshot.write_bytes(
        b'{"apiVersion":"v1","kind":"List","items":[' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"]}"
    )
    said = one_line(bench.fails())
    assert str(bench.snapshot) in said


@pytest.mark.parametrize("pair", [("loop-a", "loop-b"), ("loop-a", "loop-a")])
def test_owners_that_own_each_other_end_nowhere(bench: Bench, pair: tuple[str, str]) -> None:
    """Controllers in a circle are read once each; their pods are in the plan."""
    first, second = pair
    sets = []
    for name, above in {first: second, second: first}.items():
        one = controllers(2)[1]
        one["metadata"] |= {"name": name, "uid": f"uid-{name}", "ownerReferences": owner("ReplicaSet", above)}
        sets.append(one)
    items = [node("n0"), node("n1"), *sets, pod("p-0", "n0", of=first), pod("p-1", "n1", of=first)]
    found = planned(bench, items)
    assert {item["pod"] for item in found["placements"]} == {"shop/p-0", "shop/p-1"}


def test_pod_that_owns_itself_is_in_the_plan(bench: Bench) -> None:
    """An owner that Kinema does not know holds its pod in place, with the reason."""
    odd = pod("self", "n1")
    odd["metadata"]["ownerReferences"] = owner("Pod", "self")
    found = planned(bench, [*spread(), odd])
    assert [item["pod"] for item in found["held"]] == ["shop/self"]


def test_volume_of_a_kind_that_nobody_knows_holds_its_pod(bench: Bench) -> None:
    """Nobody can tell where a volume of a later Kubernetes can be had: the pod stays, and the field is named."""
    odd = pod("odd", "n1")
    odd["spec"]["volumes"] = [{"name": "fast", "rackDisk": {"rack": "7"}}]
    (held,) = planned(bench, [*spread(), odd])["held"]
    assert (held["pod"], held["code"]) == ("shop/odd", "unmodeled-field")
    assert "spec.volumes.rackDisk" in held["reason"]


@pytest.mark.parametrize("spec", [None, {"containers": None}, {"containers": []}])
def test_pod_that_says_nothing_is_named_once(bench: Bench, spec: object) -> None:
    """A hand-written pod without spec or containers is quarantined, with the path to what is missing."""
    (item,) = planned(bench, [*spread(), {**pod("odd", "n1"), "spec": spec}])["quarantined"]
    assert item["object"] == "Pod shop/odd"
    assert item["path"] == ("spec" if spec is None else "spec.containers")


def test_pod_on_a_node_that_is_not_there_is_told(bench: Bench) -> None:
    """A pod whose node is missing from the file, as one of many, is listed and stays."""
    found = planned(bench, [*spread(), *(node(f"m{index}") for index in range(8)), pod("ghost", "gone")])
    assert next(item["code"] for item in found["held"] if item["pod"] == "shop/ghost") == "unknown-node"


def test_pod_that_requests_more_than_can_be_counted_is_named(bench: Bench) -> None:
    """Each quantity can be read, their sum is none."""
    large = pod("large", "n1")
    part = {"resources": {"requests": {"memory": "5Ei"}}}
    large["spec"]["containers"] = [{"name": name, **part} for name in ("a", "b")]
    (item,) = planned(bench, [*spread(), large])["quarantined"]
    assert (item["object"], item["path"]) == ("Pod shop/large", "spec.containers")
    assert "of memory together" in item["reason"]


def test_machine_of_more_memory_than_can_be_counted_is_named_with_its_line(bench: Bench) -> None:
    """As every cell of a catalog that cannot be."""
    sell(bench, "big,64,999999999999,1")
    assert "catalog line 3, column memory_gib" in bench.fails()


def test_preferences_weigh_what_kubernetes_admits(bench: Bench) -> None:
    """1 to 100: no wish in a hand-written file is worth more than a machine."""
    items = spread()
    for one in items:
        if one["kind"] == "Pod":
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
            wish = {"weight": 10**12, "podAffinityTerm": term}
            one["spec"]["affinity"] = {
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]},
            }
    assert {(one["weight"], one["pods"]) for one in planned(bench, items)["violated_preferences"]} == {(100, 3)}


def test_items_that_are_alike_and_no_objects_are_no_two_of_a_name(bench: Bench) -> None:
    """Each is reported, and none keeps anything."""
    items = [*spread(), {}, {}]
    bench.snapshot.write_bytes(text(items))
    found = json.loads(bench.run("-o", "json").stdout)
    assert found["moves"] > 0
    assert found["quarantined"]


@pytest.mark.parametrize("lost", ["v1 Pod", "apps/v1 StatefulSet", "policy/v1 PodDisruptionBudget", "v1 Namespace"])
def test_object_of_no_namespace_that_can_be_read_freezes_all_that_it_might(bench: Bench, lost: str) -> None:
    """Its metadata are a number: it may be anybody's. Nothing moves; what is empty may go, unless it is a pod's."""
    group, _, kind = lost.partition(" ")
    odd = {"apiVersion": group, "kind": kind, "metadata": 7}
    bench.snapshot.write_bytes(text([*spread(), odd]))
    found = json.loads(bench.run("-o", "json").stdout)
    assert (found["moves"], len(found["quarantined"])) == (0, 1)
    bench.snapshot.write_bytes(text([*spread(), node("idle"), odd]))
    found = json.loads(bench.run("-o", "json").stdout)
    deleted = [step["node"] for step in found["steps"] if step["action"] == "delete"]
    assert deleted == ([] if kind == "Pod" else ["idle"])


def test_file_in_another_encoding_deletes_no_node(bench: Bench) -> None:
    """In Latin-1 no name can be told, nor the node of a pod: each may run anywhere."""
    named = json.dumps(json.loads(text(spread())), ensure_ascii=False).replace("web", "wéb")
    bench.snapshot.write_bytes(named.encode("latin-1"))
    found = json.loads(bench.run("-o", "json").stdout)
    assert found["cost"]["after"] == found["cost"]["before"]
    assert len(found["quarantined"]) == 5
    assert {item["reason"].partition(" (")[0] for item in found["quarantined"]} == {"is no UTF-8"}


def test_namesakes_of_another_api_group_are_told_apart(bench: Bench) -> None:
    """A Deployment of a group that is gone, or somebody's own Job, is not told as needed by nobody."""
    old = {**controllers(1)[0], "apiVersion": "extensions/v1beta1"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    bench.snapshot.write_bytes(text([*spread(), old, service]))
    said = bench.run("-o", "json").stderr
    assert "planning needs none of them: 1 Service\n" in said
    assert "not the one of Kubernetes for this kind: 1 Deployment\n" in said
