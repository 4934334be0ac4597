"""Generated instances: the same every time, sound, and the same as a problem, as a cluster and as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.catalog import NoTraceError, scenes
from benchmarks.chart import Point, frontier_chart
from benchmarks.clusters import NOW
from benchmarks.frontier import run
from benchmarks.instances import Scene, large_scene, limit_scene, openb_scene
from benchmarks.kubectl import printed
from benchmarks.machine_types import family
from benchmarks.optimizer import one
from benchmarks.served import dlrm_like, dlrm_scene, dlrm_trace
from benchmarks.starts import boutique_after_peak, constraint_rich, deployments_after_peak
from benchmarks.traces import main as write_trace
from benchmarks.traces import write_catalog
from msgspec.structs import replace

from kinema_cli.snapshot.file import load_snapshot
from kinema_core.events import Pod
from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster, all_objects
from kinema_core.model.mobility import mobility
from kinema_optimizer.problem.instance import UNLIMITED, Instance, Solution, content, cost, flaws, moves

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
a,12000,16384,1,1000,
b,6000,12288,1,460,T4
c,6000,12288,1,460,T4|G2
d,4000,8192,0,,
e,4000,8192,0,,
f,120000,737280,8,1000,T4
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,393216,8,G2\nn1,104000,524288,2,T4\nn2,32000,262144,0,\n"


@pytest.fixture
def trace(tmp_path: Path) -> tuple[Path, Path]:
    """A trace of six pods and three nodes."""
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    pods.write_text(PODS)
    nodes.write_text(NODES)
    return pods, nodes


def _small() -> dict[str, Scene]:
    return {
        "large": large_scene(600, running=True),
        "limit": limit_scene(1500, deployments=60, nodes=60, running=True),
    }


def _as_it_is(problem: Instance) -> Solution:
    nothing = content([{} for _ in problem.nodes])
    return Solution(
        keep=np.ones(len(problem.nodes), dtype=np.bool_),
        changes=nothing,
        boots=np.zeros(0, dtype=np.int64),
        booted=content([]),
        unplaced=problem.pending,
    )


@pytest.mark.parametrize("name", ["large", "limit"])
def test_a_running_instance_is_a_sound_problem(name: str) -> None:
    """Keeping everything is a plan for it: all pods fit where they run, and nothing moves."""
    problem = _small()[name].problem()
    packing = _as_it_is(problem)
    assert flaws(problem, packing) == ()
    assert (problem.node_room >= 0).all()
    assert moves(problem, packing) == 0
    assert cost(problem, packing) == int(problem.node_price.sum())
    stays = problem.stays
    assert (stays.counts <= problem.cap[stays.classes]).all()
    assert problem.admits[problem.node_row[stays.node_of], stays.classes].all()


@pytest.mark.parametrize("name", ["large", "limit"])
def test_the_same_arguments_give_the_same_instance(name: str) -> None:
    """Generators are seeded: twice the same, and another seed gives another."""
    assert _small()[name] == _small()[name]
    assert large_scene(600, seed=1) != large_scene(600)


def test_an_instance_has_the_rules_that_it_promises() -> None:
    """The largest one selects families, keeps some to one per node, and binds some to a zone; sizes add up."""
    scene = limit_scene(20_000, deployments=400)
    assert sum(one.count for one in scene.classes) == 20_000
    assert len(scene.machines) == 255
    assert any(one.labels for one in scene.classes)
    assert any(one.cap == 1 for one in scene.classes)
    assert len({one.zone for one in scene.classes}) == 4
    problem = scene.problem()
    holds = problem.machine_room[:, None, :] >= problem.requests[None, :, :]
    possible = problem.admits[problem.machine_row] & holds.all(axis=2)
    assert possible.any(axis=0).all()


def test_n2_has_its_29_sizes() -> None:
    """Of the family that the trace's pods are put on without their GPUs."""
    assert len(family("n2")) == 29
    assert {one.amounts for one in family("n2") if one.name == "n2-highmem-128"} == {(128_000, 864 * 2**30)}


@pytest.mark.parametrize("name", ["large", "limit"])
def test_a_cluster_has_the_pods_and_nodes_of_its_problem(name: str) -> None:
    """As a cluster an instance has the same pods on the same nodes, and every pod may move."""
    scene = _small()[name]
    problem, (cluster, offers) = scene.problem(), scene.cluster()
    assert len(cluster.pods) == int(problem.total.sum())
    assert [node.name for node in cluster.nodes] == list(problem.nodes)
    assert len(offers) == len(problem.machines)
    per_node = [len(cluster.pods_by_node[node]) for node in problem.nodes]
    assert per_node == np.bincount(problem.stays.node_of, weights=problem.stays.counts).astype(int).tolist()
    assert not mobility(cluster, NOW).held


def test_the_trace_without_gpus_has_one_class_per_request(trace: tuple[Path, Path]) -> None:
    """CPU and memory as written, on n2 machines; nobody is left out."""
    problem = openb_scene(*trace).problem()
    assert problem.resources == ("cpu", "memory")
    assert sorted(zip(problem.requests[:, 0].tolist(), problem.pending.tolist(), strict=True)) == [
        (4000, 2),
        (6000, 2),
        (12000, 1),
        (120000, 1),
    ]


def test_the_trace_with_gpus_selects_models(trace: tuple[Path, Path]) -> None:
    """GPUs count in thousandths, a selector admits its models only, and who fits no machine is left out."""
    problem = openb_scene(*trace, gpu=True).problem()
    assert int(problem.pending.sum()) == 5
    gpus = problem.requests[:, 2].tolist()
    assert sorted(gpus) == [0, 460, 460, 1000]
    admitted = {
        machine.partition("-")[0]: problem.admits[row].tolist()
        for machine, row in zip(problem.machines, problem.machine_row.tolist(), strict=True)
    }
    only_t4 = [c for c in range(4) if admitted["T4"][c] and not admitted["G2"][c]]
    assert [gpus[c] for c in only_t4] == [460]


def served_trace(tmp_path: Path) -> Path:
    """A trace of a service with two CPU and three GPU instances at its end, and of one that no machine holds."""
    served = tmp_path / "served.csv"
    requests = [f"{name}_request" for name in ("cpu", "gpu", "rdma", "memory", "disk")]
    header = ("app_name", "role", *requests, "max_instance_per_node", "deletion_time")
    rows = [
        *[("app_0", "CN", 64, 0, 1, 320.0, 255.0, -1, "")] * 2,
        *[("app_0", "HN", 12, 1, 25, 120.0, 85.0, 2, "")] * 3,
        ("app_0", "HN", 12, 1, 25, 120.0, 85.0, 2, 1435760.0),
        ("app_1", "HN", 12, 9, 25, 120.0, 85.0, 2, ""),
    ]
    served.write_text("\n".join(",".join(map(str, row)) for row in (header, *rows)) + "\n")
    return served


def test_the_trace_of_recommendations_has_what_is_there_at_its_end(tmp_path: Path) -> None:
    """Instances of a kind are a class on nodes of their role, no more on one than the trace says."""
    tally = dlrm_trace(served_trace(tmp_path))
    assert sum(tally.values()) == 6
    scene = dlrm_scene(tally)
    assert [(one.labels, one.count, one.cap) for one in scene.classes] == [(("CN",), 2, UNLIMITED), (("HN",), 3, 2)]
    assert scene.classes[1].requests == (12_000, 120 * 2**30, 1000, 25, 85 * 2**30)
    problem = dlrm_scene(tally, running=True).problem()
    assert flaws(problem, _as_it_is(problem)) == ()
    assert int(problem.stays.counts.max()) <= 2


def test_services_that_are_drawn_are_as_many_as_in_the_trace() -> None:
    """Both roles have their number of instances, all of which some machine holds; a seed gives the same again."""
    tally = dlrm_like(3)
    assert tally == dlrm_like(3) != dlrm_like(4)
    count = {role: sum(n for kind, n in tally.items() if kind[1] == role) for role in ("CN", "HN")}
    assert count == {"CN": 5_556, "HN": 3_322}
    assert sum(one.count for one in dlrm_scene(tally).classes) == 8_878


def test_without_its_files_a_trace_is_told_to_be_missing(tmp_path: Path) -> None:
    """The text says what is not there."""
    with pytest.raises(NoTraceError, match="no --traces"):
        scenes(None)["openb-new"]()
    with pytest.raises(NoTraceError, match=r"pods-default\.csv"):
        scenes(tmp_path)["openb-running"]()


def test_a_benchmark_without_its_trace_is_skipped(tmp_path: Path) -> None:
    """It says why in its result, and the others are measured."""
    assert one("openb-running", None, 1.0) == {"skipped": "no --traces DIR given"}
    skipped = run("openb-running", tmp_path, seconds=1.0, shares=(0,), out=tmp_path)
    assert "not there" in str(skipped["skipped"])


@pytest.mark.parametrize("options", [[], ["--running"], ["--gpu", "--running"]])
def test_files_say_the_same_as_the_cluster(trace: tuple[Path, Path], tmp_path: Path, options: list[str]) -> None:
    """Snapshot and catalog, read as `kinema plan` reads them, give the pods, nodes and offers of the instance."""
    snapshot, catalog = tmp_path / "s.json.zst", tmp_path / "c.csv"
    files = ["--pods", str(trace[0]), "--nodes", str(trace[1]), "-o", str(snapshot), "--catalog", str(catalog)]
    write_trace(["openb", *files, *options])
    read = load_snapshot(snapshot).cluster
    cluster, offers = openb_scene(*trace, gpu="--gpu" in options, running="--running" in options).cluster()
    assert read.pods == cluster.pods
    assert not read.quarantined
    assert [node for node in read.nodes if not node.name.startswith("control-plane")] == list(cluster.nodes)
    assert offers_from(parse_catalog(catalog.read_text()), Cluster()) == offers
    assert {one.key for one in read.workloads} == {one.key for one in cluster.workloads}


def test_a_snapshot_as_long_as_kubectl_prints_it_says_the_same(tmp_path: Path) -> None:
    """What a kubelet adds changes nothing but the tolerations that admission gives every pod."""
    start = constraint_rich(600)
    snapshot, catalog = tmp_path / "s.json", tmp_path / "c.csv"
    snapshot.write_bytes(b"".join(printed(all_objects(start.cluster))))
    write_catalog(start.offers, catalog)
    read = load_snapshot(snapshot).cluster
    assert not read.quarantined
    assert snapshot.stat().st_size > 5_000 * len(read.pods)
    for kind in ("Node", "Workload", "DisruptionBudget", "Volume", "VolumeClaim"):
        assert list(read.objects[kind]) == list(start.cluster.objects[kind])
    assert read.objects["DisruptionBudget"] == start.cluster.objects["DisruptionBudget"]
    assert read.objects["Volume"] == start.cluster.objects["Volume"]
    for found, pod in zip(read.pods, start.cluster.pods, strict=True):
        rules = replace(found.rules, tolerations=found.rules.tolerations[: len(pod.rules.tolerations)])
        assert (found.key, found.node, found.requests, rules) == (pod.key, pod.node, pod.requests, pod.rules)
    assert offers_from(parse_catalog(catalog.read_text()), Cluster()) == start.offers


def test_the_converter_names_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace that is not there is one clear error."""
    with pytest.raises(SystemExit):
        write_trace(["openb", "--pods", str(tmp_path / "no.csv"), "-o", "s.json", "--catalog", "c.csv"])
    assert "no.csv does not exist" in capsys.readouterr().err


def test_after_a_peak_every_pod_runs_and_most_room_is_free() -> None:
    """Replicas are down to those that remain, and all nodes of the peak are still there."""
    for start in (boutique_after_peak(4), deployments_after_peak(60), deployments_after_peak(60, constrained=True)):
        running = {pod.node for pod in start.cluster.pods}
        assert None not in running
        asked = sum(pod.requests["cpu"] for pod in start.cluster.pods)
        have = sum(node.allocatable["cpu"] for node in start.cluster.nodes)
        assert asked < 0.5 * have
        for workload in start.cluster.workloads:
            pods = [pod for pod in start.cluster.pods if _top(start.cluster, pod) == workload.key]
            assert workload.type != "Deployment" or len(pods) == workload.replicas == workload.ready


def _top(cluster: Cluster, pod: Pod) -> str:
    workload = cluster.controller_of(pod)
    return "" if workload is None else workload.key


def test_the_rich_cluster_has_every_kind_of_rule() -> None:
    """A quarter of its workloads has rules between pods, volumes, taints or budgets, and all pods run."""
    start = constraint_rich(3000)
    pods = start.cluster.pods
    assert all(pod.node for pod in pods)
    for present in (
        any(pod.rules.affinity for pod in pods),
        any(pod.rules.anti_affinity for pod in pods),
        any(pod.rules.spread for pod in pods),
        any(pod.rules.claims for pod in pods),
        any(pod.rules.tolerations for pod in pods),
        bool(start.cluster.budgets),
    ):
        assert present


def test_a_chart_shows_every_point() -> None:
    """The frontier's points and the rivals' names are in the drawing."""
    curve = [Point(0, 10.0), Point(50, 6.0)]
    svg = frontier_chart("a title", curve, [Point(30, 8.0, "rival")], limit=[Point(0, 9.0), Point(100, 5.5)], pods=100)
    assert svg.count("<circle") == 3
    for expected in ("a title", "rival", "50 moves"):
        assert expected in svg
