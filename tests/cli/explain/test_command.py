"""`kinema explain` on snapshot files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.bench import Bench, controllers, node, pod, spread, text


def told(bench: Bench, name: str) -> dict[str, Any]:
    """The explanation as JSON."""
    result = bench.explain(name, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_node_whose_pods_fit_elsewhere_could_go(bench: Bench) -> None:
    """Its pods find free room, so that deleting it saves its whole price."""
    found = told(bench, "n0")
    assert (found["verdict"], found["saves_usd_per_hour"], found["saves_usd_per_month"]) == ("could-go", 0.17, 124.1)
    assert found["elsewhere"]["onto"] == [{"node": "n1", "pods": 1}]
    assert found["elsewhere"]["boots"] == []


def test_node_with_a_held_pod_names_the_pod_and_what_it_costs(bench: Bench) -> None:
    """The pod and its rule are told, and the saving is what its deletion would bring if the pod could move."""
    bench.snapshot.write_bytes(text([*spread(), pod("lonely", "n1", of=None)]))
    found = told(bench, "n1")
    assert found["verdict"] == "held-pods"
    assert found["held"] == [{"pod": "shop/lonely", "code": "bare-pod", "reason": "no controller would replace it"}]
    assert (found["movable"], found["elsewhere"]["pods"], found["saves_usd_per_hour"]) == (1, 2, 0.17)
    said = bench.explain("n1").stdout
    assert "shop/lonely" in said
    assert "$124/month, if the node and its pods were free" in said


def test_node_with_a_rule_of_its_own_names_the_rule(bench: Bench) -> None:
    """A node that may not be deleted by its own annotation says so, and still what that costs."""
    kept = node("n3")
    kept["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    bench.snapshot.write_bytes(text([*spread(), kept]))
    found = told(bench, "n3")
    assert found["verdict"] == "own-rule"
    assert "scale-down-disabled" in found["rule"]
    assert found["saves_usd_per_hour"] == 0.17
    assert "none of its pods needs another place" in bench.explain("n3").stdout


def test_node_out_of_scope_names_the_scope(bench: Bench) -> None:
    """With `--scope`, as `kinema plan` has it, a node without its labels stays for that reason, and others may go."""
    ours = ("--scope", "kubernetes.io/hostname=n0")
    found = json.loads(bench.explain("n1", *ours, "-o", "json").stdout)
    assert found["verdict"] == "own-rule"
    assert found["rule"] == "node n1 is out of scope: it has no labels kubernetes.io/hostname=n0"
    assert json.loads(bench.explain("n0", *ours, "-o", "json").stdout)["verdict"] == "could-go"
    assert "--scope a=b: no node has these labels" in bench.explain("n0", "--scope", "a=b").stderr


def test_node_without_a_price_says_that_it_is_missing(bench: Bench) -> None:
    """What its deletion would save is not known, and it stays: nothing is said to cost nothing."""
    odd = node("n3")
    odd["metadata"]["annotations"] = {"kinema.io/usd-per-hour": "a lot"}
    bench.snapshot.write_bytes(text([*spread(), odd]))
    found = told(bench, "n3")
    assert (found["verdict"], found["usd_per_hour"], found["saves_usd_per_hour"]) == ("own-rule", None, None)
    said = " ".join(bench.explain("n3").stdout.split())
    assert "unknown: its price is missing, which keeps it in any case" in said
    assert "$0.00/h" not in said


def test_what_is_neither_a_type_nor_a_namespace_names_the_types(bench: Bench) -> None:
    """The word before the slash is what is wrong."""
    result = bench.explain("foo/bar")
    assert result.exit_code == 3
    assert "'foo' in 'foo/bar' is neither a type (node, pod, plan, deploy, sts, daemonset" in result.stderr


def test_empty_node_is_told_to_be_needed_by_nobody(bench: Bench) -> None:
    """Of pods that find a place elsewhere nothing is said where there are none."""
    bench.snapshot.write_bytes(text([*spread(), node("n3")]))
    found = told(bench, "n3")
    assert (found["verdict"], found["reason"]) == ("could-go", "no pod needs it")


def test_node_whose_pods_cost_as_much_elsewhere_stays(bench: Bench) -> None:
    """Where only a machine of the same price holds its pods, nothing is saved, and the machine is named."""
    bench.snapshot.write_bytes(text([node("n0"), *controllers(1), pod("web-0", "n0", cpu="3")]))
    found = told(bench, "n0")
    assert (found["verdict"], found["saves_usd_per_hour"]) == ("as-dear", 0.0)
    assert found["elsewhere"]["boots"] == [{"offer": "m4/a/on-demand", "count": 1, "usd_per_hour": 0.17}]


def test_node_whose_pods_nothing_else_holds_stays(bench: Bench) -> None:
    """A pod that no other node and no machine on sale can take keeps its node, and the saving is not known."""
    bench.catalog.write_text("machine_type,vcpus,memory_gib,usd_per_hour,available\nm2,2,8,0.09,\nm4,4,16,0.17,0\n")
    bench.snapshot.write_bytes(text([node("n0"), *controllers(1), pod("web-0", "n0", cpu="3")]))
    found = told(bench, "n0")
    assert (found["verdict"], found["saves_usd_per_hour"], found["elsewhere"]["homeless"]) == ("no-place", None, 1)


def test_running_pod_tells_how_and_where_it_could_move(bench: Bench) -> None:
    """It names its strategy, nodes with room and the cheapest machine; its namespace may be left out."""
    found = told(bench, "web-1")
    assert (found["name"], found["verdict"], found["strategy"]) == ("shop/web-1", "movable", "surge")
    assert found["rooms"] == ["n0", "n2"]
    assert found["cheapest"] == {"offer": "m2/a/on-demand", "count": 1, "usd_per_hour": 0.09}


def test_held_pod_names_its_rule(bench: Bench) -> None:
    """A bare pod says that no controller would replace it."""
    bench.snapshot.write_bytes(text([*spread(), pod("lonely", "n1", of=None)]))
    found = told(bench, "shop/lonely")
    assert (found["verdict"], found["code"], found["node"]) == ("held", "bare-pod", "n1")


def test_pending_pod_without_a_place_names_resource_and_nearest_offer(bench: Bench) -> None:
    """What is lacking, and where it is lacking least."""
    bench.snapshot.write_bytes(text([*spread(), pod("huge", None, cpu="64")]))
    found = told(bench, "shop/huge")
    assert (found["verdict"], found["code"]) == ("no-place", "resource-cpu")
    assert "m4/a/on-demand lacks cpu: 64 requested, 3920m there" in found["reason"]


def test_pending_pod_without_a_place_names_the_rule(bench: Bench) -> None:
    """A node selector that nothing matches is told as the rule."""
    picky = pod("picky", None)
    picky["spec"]["nodeSelector"] = {"disk": "fast"}
    bench.snapshot.write_bytes(text([*spread(), picky]))
    found = told(bench, "shop/picky")
    assert (found["verdict"], found["code"]) == ("no-place", "rule")
    assert "disk" in found["reason"]


def test_pending_pod_that_can_be_placed_says_where(bench: Bench) -> None:
    """A pod that waits only for the scheduler is told apart from one without a place."""
    bench.snapshot.write_bytes(text([*spread(), pod("new", None)]))
    found = told(bench, "shop/new")
    assert (found["verdict"], found["rooms_in_all"]) == ("placeable", 3)


def test_pod_that_goes_with_its_node_says_so(bench: Bench) -> None:
    """A mirror of a static pod is no pod that anything keeps."""
    static = pod("proxy-n1", "n1", of=None)
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    bench.snapshot.write_bytes(text([*spread(), static]))
    assert told(bench, "shop/proxy-n1")["verdict"] == "with-node"


def test_object_that_could_not_be_read_is_explained_by_its_fault(bench: Bench) -> None:
    """A quarantined pod names the place in it that could not be read."""
    broken = pod("broken", "n2")
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    bench.snapshot.write_bytes(text([*spread(), broken]))
    found = told(bench, "shop/broken")
    assert found["object"] == "Pod shop/broken"
    assert "cpu" in found["path"]
    assert "could not be read" in bench.explain("shop/broken").stdout
    assert told(bench, "broken") == found  # the namespace may be left out


def test_finished_pod_is_told_to_be_finished(bench: Bench) -> None:
    """It is in the snapshot, so it is not unknown; its namespace may be left out."""
    done = pod("batch-0", "n2", of=None)
    done["status"]["phase"] = "Succeeded"
    bench.snapshot.write_bytes(text([*spread(), done]))
    for name in ("shop/batch-0", "batch-0"):
        result = bench.explain(name)
        assert result.exit_code == 3
        assert "pod shop/batch-0 has ended (Succeeded or Failed)" in result.stderr


@pytest.mark.parametrize(("name", "near"), [("web-7", "shop/web-"), ("n", "n0, n1, n2"), ("shop/web", "shop/web-0")])
def test_unknown_name_exits_3_with_near_ones(bench: Bench, name: str, near: str) -> None:
    """A typing error is answered in one line with what was probably meant."""
    result = bench.explain(name)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert near in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_name_of_several_pods_lists_them(bench: Bench) -> None:
    """A pod's name without a namespace has to be clear."""
    twin = pod("web-0", None)
    twin["metadata"]["namespace"] = "other"
    bench.snapshot.write_bytes(text([*spread(), twin]))
    result = bench.explain("web-0")
    assert result.exit_code == 3
    assert "other/web-0, shop/web-0" in result.stderr


def test_wrong_input_is_one_line(bench: Bench) -> None:
    """Explaining needs the same files as planning, and says the same when one is missing."""
    bench.catalog.unlink()
    result = bench.explain("n0")
    assert result.exit_code == 1
    assert str(bench.catalog) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("marked", [True, False])
def test_a_pod_that_waits_behind_a_plan_is_told_so(bench: Bench, *, marked: bool) -> None:
    """While nodes are marked for a plan no other one is carried out, whatever could be bought for the pod."""
    big = pod("big", None, cpu="3900m")
    nodes = [node(f"n{n}") for n in range(3)]
    if marked:
        nodes[0]["metadata"]["annotations"] = {"kinema.io/plan": "i7/optimizer/0"}
    running = [item for item in spread() if item["kind"] != "Node"]
    bench.snapshot.write_bytes(text([*nodes, *running, big]))
    found = told(bench, "shop/big")
    assert found["verdict"] == "placeable"
    assert ("plan i7/optimizer/0 is running, with 1 node marked for it" in found["caveat"]) is marked
    assert ("is running, with" in bench.explain("shop/big").stdout.replace("\n", " ")) is marked


def test_node_that_a_commitment_covers_says_so(bench: Bench) -> None:
    """Of two nodes one is paid for: it costs nothing, and its deletion saves nothing; the other has its price."""
    header, *rows = bench.catalog.read_text().splitlines()
    bench.catalog.write_text("\n".join([f"{header},committed", *(f"{row},1" for row in rows)]) + "\n")
    found = {name: told(bench, name) for name in ("n0", "n1")}
    assert sorted(one["committed"] for one in found.values()) == [False, True]
    for name, one in found.items():
        assert one["usd_per_hour"] == (0 if one["committed"] else 0.17)
        assert ("(committed)" in bench.explain(name).stdout) == one["committed"]
