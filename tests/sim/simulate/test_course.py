"""Samples of a simulation: what is kept up change by change is what a count of everything would find."""

from __future__ import annotations

from pathlib import Path

from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import DEPLOYMENT, NODE, POD, REPLICA_SET
from kinema_sim.engine.objects import is_finished, is_ready, is_terminating, node_of, uid_of
from kinema_sim.scheduler.books import amounts, pod_requests
from kinema_sim.simulate.build import build
from kinema_sim.simulate.course import Recorder, Sample
from kinema_sim.simulate.scenario import load_scenario

RESTLESS = """
name: restless
duration: 10m
cloud: {types: [e2-standard-2, e2-standard-4]}
nodes:
  - {type: e2-standard-4, zone: europe-west3-a, count: 2}
  - {type: e2-standard-4, zone: europe-west3-b, count: 1}
workloads:
  - {name: web, cpu: 300m, memory: 256Mi, replicas: [[0s, 4], [1m, 40], [4m, 2]]}
  - {name: api, cpu: 200m, memory: 256Mi, replicas: [[0s, 3], [2m, 0], [3m, 5]]}
arrivals: [{at: 30s, lasts: 3m, cpu: 500m, memory: 256Mi}]
faults: [{kind: zone-down, zone: europe-west3-b, at: 5m, lasts: 1m}]
"""


def counted(sim: Cluster, at: float, seen: Sample) -> Sample:
    """The sample that a count of all objects gives; what has no load is taken over."""
    short = []
    for deployment in sim.store.each(DEPLOYMENT):
        sets = sim.store.owned(REPLICA_SET, uid_of(deployment))
        pods = [pod for one in sets for pod in sim.store.owned(POD, uid_of(one))]
        serving = sum(is_ready(pod) and not is_terminating(pod) and not is_finished(pod) for pod in pods)
        if deployment["spec"]["replicas"]:
            short.append((serving, deployment["spec"]["replicas"]))
    nodes = sim.store.each(NODE)
    names = {node["metadata"]["name"] for node in nodes}
    bound = [pod_requests(pod) for pod in sim.store.each(POD) if node_of(pod) in names and not is_finished(pod)]
    room = [amounts(node["status"]["allocatable"]) for node in nodes]
    machines = [machine.offer for machine in sim.cloud.machines.values()]
    zones = sorted({offer.zone for offer in machines})
    return Sample(
        at=at,
        nodes=len(machines),
        ready_nodes=sum(not node["spec"].get("taints") for node in nodes),
        usd_per_hour=sum(offer.usd_micro for offer in machines) / 10**6,
        watts=sum(offer.watts for offer in machines),
        pods=sim.store.count(POD),
        pending=sum(not node_of(pod) for pod in sim.store.each(POD)),
        missing=sum(max(0, wanted - ready) for ready, wanted in short),
        floor=round(min((min(1.0, ready / wanted) for ready, wanted in short), default=1.0), 4),
        requested_cpu=sum(one["cpu"] for one in bound),
        requested_memory=sum(one["memory"] for one in bound),
        allocatable_cpu=sum(one["cpu"] for one in room),
        allocatable_memory=sum(one["memory"] for one in room),
        used_cpu=seen.used_cpu,
        used_memory=seen.used_memory,
        rps=seen.rps,
        disruptions=seen.disruptions,
        users=seen.users,
        zones=tuple((zone, sum(offer.zone == zone for offer in machines)) for zone in zones),
    )


def test_samples_are_what_a_count_of_everything_finds() -> None:
    """Every two seconds, while replicas change, a pod arrives and leaves, and a zone is lost."""
    sim = build(load_scenario("r.yaml", {"r.yaml": RESTLESS.encode()}.__getitem__, Path("r.yaml")), 0)
    recorder = Recorder(sim)
    shapes = set()
    for second in range(0, 600, 2):
        sim.loop.run_until(recorder.start + 1000 * second)
        found = recorder._sample()
        assert found == counted(sim, float(second), found)
        shapes.add((found.nodes, found.missing > 0, found.floor > 0))
    assert len(shapes) > 3, "the scenario shows too little"
