"""Simulated policies: what each does to the same cluster, and that a run can be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinema_optimizer.policies.policy import Outcome, Tick
from kinema_optimizer.policies.proposal import Step, proposal
from kinema_optimizer.settings import PolicyName
from kinema_sim.simulate.course import Sample, figures
from kinema_sim.simulate.run import Result, run
from kinema_sim.simulate.scenario import read_scenario

IDLE = """
name: idle
duration: 30m
cloud: {types: [e2-standard-2, e2-standard-4]}
nodes:
  - {type: e2-standard-4, zone: europe-west3-a, count: 2}
  - {type: e2-standard-4, zone: europe-west3-b, count: 2}
workloads:
  - {name: web, cpu: 300m, memory: 256Mi, replicas: 4}
  - {name: api, cpu: 200m, memory: 256Mi, replicas: 2, max_unavailable: 1}
phases: [{name: late, start: 20m, end: 30m}]
"""


def simulated(tmp_path: Path, text: str, policy: PolicyName, seed: int = 0) -> Result:
    """The result of a policy on a scenario."""
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    return run(read_scenario(file), policy, seed=seed)[0]


def test_none_changes_nothing(tmp_path: Path) -> None:
    """The same nodes for the whole time, and their price."""
    found = simulated(tmp_path, IDLE, "none")
    assert {sample.nodes for sample in found.samples} == {4}
    assert (found.evictions, found.booted, found.deleted) == (0, 0, 0)
    assert found.whole.usd == pytest.approx(found.whole.mean_usd_per_hour / 2, abs=1e-5)


@pytest.mark.parametrize("policy", ["cluster-autoscaler", "optimize-utilization", "karpenter", "cluster-threshold"])
def test_a_policy_that_consolidates_gives_nodes_back(tmp_path: Path, policy: PolicyName) -> None:
    """It evicts, and the scheduler finds places: every pod is Ready in the end, on fewer or cheaper nodes."""
    found = simulated(tmp_path, IDLE, policy)
    last = found.samples[-1]
    assert found.phases["late"].mean_usd_per_hour < found.samples[0].usd_per_hour
    assert found.evictions > 0
    assert found.deleted > 0
    assert (last.pending, last.missing, last.floor) == (0, 0, 1.0)


def test_the_timers_are_those_of_the_system(tmp_path: Path) -> None:
    """The Cluster Autoscaler removes nothing in its first ten minutes, the packing profile something in its second."""
    slow = simulated(tmp_path, IDLE, "cluster-autoscaler")
    quick = simulated(tmp_path, IDLE, "optimize-utilization")
    first = {one.policy: next(s.at for s in one.samples if s.nodes < 4) for one in (slow, quick)}
    assert 600 <= first["cluster-autoscaler"] <= 660
    assert 60 <= first["optimize-utilization"] <= 120


def test_pods_of_a_drained_node_do_not_go_to_the_next_one(tmp_path: Path) -> None:
    """The scheduler likes empty nodes best: only for the soft taint of unneeded ones does each pod move once."""
    text = """
name: shunned
duration: 20m
nodes:
  - {type: e2-standard-8, name: large}
  - {type: e2-standard-2, name: a}
  - {type: e2-standard-2, name: b}
  - {type: e2-standard-2, name: c}
workloads:
  - {name: base, cpu: 4500m, memory: 1Gi, places: {large: 1}}
  - {name: web, cpu: 200m, memory: 256Mi, replicas: 3, places: {a: 1, b: 1, c: 1}}
"""
    found = simulated(tmp_path, text, "cluster-autoscaler")
    assert (found.evictions, found.samples[-1].nodes) == (3, 1)


@pytest.mark.parametrize("policy", ["cluster-autoscaler", "karpenter", "cluster-threshold", "promethee", "trimaran"])
def test_pods_without_room_get_nodes(tmp_path: Path, policy: PolicyName) -> None:
    """More replicas than the nodes hold: machines are ordered once, not again while they boot."""
    text = IDLE.replace("replicas: 4}", "replicas: [[0s, 4], [2m, 60]]}").replace("duration: 30m", "duration: 12m")
    found = simulated(tmp_path, text.replace("start: 20m, end: 30m", "start: 8m, end: 12m"), policy)
    last = found.samples[-1]
    assert found.booted > 0
    if policy != "promethee":  # one node a minute
        assert last.pending == 0
        assert last.requested_cpu > 0.5 * last.allocatable_cpu


def test_a_budget_makes_a_drain_wait(tmp_path: Path) -> None:
    """Two pods of a workload on one node, of which one may be away: they leave one after the other."""
    text = IDLE.replace("count: 2}", "count: 1}").replace("replicas: 2, max", "replicas: 6, max")
    found = simulated(tmp_path, text, "optimize-utilization")
    assert found.evictions > 0
    assert min(sample.floor for sample in found.samples if sample.at > 60) >= 0.5


@dataclass(frozen=True)
class _Once:
    """Buys a node in its first look, after it has removed one or not."""

    removes: tuple[str, ...]
    name: str = "once"
    period_seconds: float = 600.0

    def tick(self, tick: Tick) -> Outcome:
        """Return both steps at first, then nothing."""
        world = tick.world()
        if len(tick.cluster.nodes) < 4 or any(node.name.startswith("once") for node in tick.cluster.nodes):
            return Outcome(proposal(world, (), name=self.name))
        bought = world.sites[world.buy(0, "new")].name
        removal = (Step("drain", removed=self.removes),) if self.removes else ()
        return Outcome(proposal(world, (*removal, Step("provision", bought=(bought,))), name=self.name))


@pytest.mark.parametrize(("removes", "booted"), [((), 1), (("node-001",), 0)])
def test_nodes_for_pods_of_a_removal_are_ordered_when_they_wait(
    tmp_path: Path, removes: tuple[str, ...], booted: int
) -> None:
    """A plan has to place pods that a removal leaves over; the system sees later whether any is."""
    file = tmp_path / "scenario.yaml"
    file.write_text(IDLE)
    found = run(read_scenario(file), "karpenter", rules=_Once(removes))[0]
    assert (found.booted, found.deleted) == (booted, len(removes))


def test_kinema_runs_as_its_services_do(tmp_path: Path) -> None:
    """Cheaper than the Cluster Autoscaler in the end, and no workload below its replicas on the way."""
    found = simulated(tmp_path, IDLE, "kinema")
    other = simulated(tmp_path, IDLE, "cluster-autoscaler")
    assert found.phases["late"].mean_usd_per_hour < other.phases["late"].mean_usd_per_hour
    assert found.evictions > 0
    assert found.disruptions == 0
    assert min(sample.floor for sample in found.samples if sample.at > 60) == 1.0


@pytest.mark.parametrize("policy", ["kinema", "karpenter"])
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, policy: PolicyName) -> None:
    """Every sample; another seed has other boot times."""
    text = IDLE.replace("replicas: 4}", "replicas: [[0s, 4], [2m, 40], [6m, 4]]}")
    text = text.replace("duration: 30m", "duration: 12m").replace("start: 20m, end: 30m", "start: 8m, end: 12m")
    one, two, other = (msgspec.json.encode(simulated(tmp_path, text, policy, seed)) for seed in (3, 3, 4))
    assert one == two
    assert one != other


def test_the_thesis_is_judged_by_its_own_rules(tmp_path: Path) -> None:
    """Its plan puts the replicas of every workload on one node, which Kinema's redundancy would refuse."""
    text = IDLE.replace("duration: 30m", "duration: 8m").replace("start: 20m, end: 30m", "start: 6m, end: 8m")
    found = simulated(tmp_path, text, "thesis")
    assert found.samples[-1].nodes == 1
    assert not found.notes


def test_pods_of_a_trace_leave_when_they_have_run(tmp_path: Path) -> None:
    """Their time counts from when they run: the second waits for a node first."""
    text = """
name: trace
duration: 20m
cloud: {zones: [dc], machines: [{type: big, vcpus: 8, memory: 32Gi, watts: 100, reserved: false}], available: {big: 1}}
nodes: [{type: big, zone: dc, control_plane: true}]
arrivals:
  - {at: 0s, lasts: 2m, cpu: "6"}
  - {at: 1m, lasts: 5m, cpu: "6"}
"""
    found = simulated(tmp_path, text, "promethee")
    pods = [(sample.at, sample.pods, sample.nodes) for sample in found.samples]
    assert max(count for _, count, _ in pods) == 2
    assert pods[-1][1:] == (0, 1)
    assert (found.booted, found.deleted) == (1, 1)


def test_a_zone_that_fails_takes_its_nodes_and_sells_nothing(tmp_path: Path) -> None:
    """Its pods run elsewhere as far as there is room; new nodes come in the other zones."""
    text = IDLE + "faults: [{kind: zone-down, zone: europe-west3-b, at: 5m, lasts: 20m}]\n"
    found = simulated(tmp_path, text.replace("replicas: 4}", "replicas: 40}"), "cluster-autoscaler")
    down = [dict(sample.zones) for sample in found.samples if 301 <= sample.at < 1500]
    assert all("europe-west3-b" not in zones for zones in down)
    assert found.samples[-1].pending == 0


def test_users_are_served_by_what_their_nodes_have(tmp_path: Path) -> None:
    """Throughput follows the users; the same users on one small node get less, as its pods share its CPU."""
    load = """
name: load
duration: 10m
cloud: {{types: [e2-highcpu-2, e2-standard-16]}}
nodes: [{{type: {machine}, count: 1}}]
applications:
  - name: teastore
    users: [[0s, 0], [2m, 1500], [10m, 1500]]
    min_replicas: 1
    max_replicas: 1
    fixed_replicas: 1
    requests: 40
phases: [{{name: plateau, start: 5m, end: 10m}}]
"""
    small = simulated(tmp_path, load.format(machine="e2-highcpu-2"), "none").phases["plateau"]
    large = simulated(tmp_path, load.format(machine="e2-standard-16"), "none").phases["plateau"]
    assert large.mean_rps > 10
    assert small.mean_rps < 0.95 * large.mean_rps


def test_figures_weigh_samples_by_their_time() -> None:
    """Half an hour of 1 USD and a quarter of 3; the last sample holds until the end."""
    base: dict[str, Any] = {**dict.fromkeys(Sample.__struct_fields__, 0), "zones": (), "floor": 1.0}
    samples = [
        Sample(**{**base, "at": 0.0, "usd_per_hour": 1.0, "nodes": 1}),
        Sample(**{**base, "at": 1800.0, "usd_per_hour": 3.0, "nodes": 3, "pending": 2, "floor": 0.5}),
    ]
    found = figures(samples, 0.0, 2700.0)
    assert (found.usd, found.min_usd_per_hour, found.max_nodes) == (1.25, 1.0, 3)
    assert found.mean_nodes == pytest.approx(5 / 3, abs=1e-4)
    assert (found.pending_pod_seconds, found.floor) == (1800.0, 0.5)
    assert figures(samples, 1800.0, 2700.0).mean_nodes == 3.0


def test_the_floor_of_pods_that_never_all_come_up_is_what_they_reach() -> None:
    """Half of them have no node: the rise to that half is left out, the half and what falls later are not."""
    base: dict[str, Any] = {**dict.fromkeys(Sample.__struct_fields__, 0), "zones": ()}
    rising = [Sample(**{**base, "at": at, "floor": floor}) for at, floor in ((0.0, 0.0), (4.0, 0.25), (5.0, 0.5))]
    assert figures(rising, 0.0, 60.0).floor == 0.5
    fallen = [*rising, Sample(**{**base, "at": 30.0, "floor": 0.25}), Sample(**{**base, "at": 40.0, "floor": 1.0})]
    assert [figures(fallen, *part).floor for part in ((0.0, 60.0), (0.0, 20.0), (40.0, 60.0))] == [0.25, 0.5, 1.0]
    assert figures(rising, 0.0, 2.0).floor == 0.0, "a phase that ends before: nothing else is known of it"


def test_what_comes_at_the_border_of_phases_counts_in_the_later() -> None:
    """Once, whatever is counted; and in the last phase where it comes at the very end."""
    base: dict[str, Any] = {**dict.fromkeys(Sample.__struct_fields__, 0), "zones": (), "floor": 1.0}
    counted = ("killed", "evictions", "disruptions", "resized")
    samples = [
        Sample(**{**base, "at": at, **dict.fromkeys(counted, count)})
        for at, count in ((0.0, 1), (60.0, 3), (70.0, 4), (120.0, 9))
    ]
    for name in counted:
        assert [getattr(figures(samples, *part), name) for part in ((0, 60), (60, 120), (0, 120))] == [1, 8, 9]
