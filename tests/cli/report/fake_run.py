"""A made-up run with the proportions of the demo: a dozen nodes left by a traffic peak, four at the end."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

from tests.support.builders import NOW

from kinema_cli.report.audit import ReadyPoint, audit
from kinema_cli.report.data import (
    EventRow,
    Headline,
    Life,
    Machine,
    NodeBox,
    PodBox,
    Replicas,
    ReportData,
    Rule,
    Sample,
    Sums,
)

GIB = 1024**3
APPS = {
    "boutique/adservice": (200, 180, 1),
    "boutique/cartservice": (200, 64, 2),
    "boutique/checkoutservice": (100, 64, 2),
    "boutique/currencyservice": (100, 64, 2),
    "boutique/emailservice": (100, 64, 1),
    "boutique/frontend": (100, 64, 4),
    "boutique/paymentservice": (100, 64, 2),
    "boutique/productcatalogservice": (100, 64, 3),
    "boutique/recommendationservice": (100, 220, 2),
    "boutique/shippingservice": (100, 64, 2),
    "teastore/auth": (250, 512, 2),
    "teastore/db": (250, 512, 1),
    "teastore/image": (250, 768, 2),
    "teastore/persistence": (250, 768, 2),
    "teastore/recommender": (250, 512, 1),
    "teastore/webui": (400, 768, 3),
}
PODS = tuple(
    PodBox(pod=f"{app}-{index}", app=app.partition("/")[2], cpu=cpu, memory=memory * 1024**2)
    for app, (cpu, memory, count) in APPS.items()
    for index in range(count)
)
SYSTEM = PodBox(pod="kube-system/kube-proxy", app="kube-proxy", cpu=100, memory=128 * 1024**2, fate="system")
ZONE = "europe-west3-a"
BEGIN, END = 40.0, 250.0
TYPES = (["e2-standard-4"] * 5 + ["e2-standard-2"] * 6, ["e2-standard-4"] * 2 + ["e2-standard-2"])
CPU = {"e2-standard-4": 3920, "e2-standard-2": 1930}
MEMORY = {"e2-standard-4": int(12.9 * GIB), "e2-standard-2": int(5.9 * GIB)}
PRICE = {"e2-standard-4": 0.17, "e2-standard-2": 0.09}


def boxes() -> tuple[tuple[NodeBox, ...], tuple[NodeBox, ...]]:
    """Nodes before and after: pods dealt out in turn first, packed afterwards; the first old node is kept."""
    before = [
        NodeBox(
            f"pool-{i}",
            kind,
            "europe-west3-a",
            PRICE[kind],
            "keep" if i == 0 else "delete",
            CPU[kind],
            MEMORY[kind],
            (),
        )
        for i, kind in enumerate(TYPES[0])
    ]
    after = [before[0]] + [
        NodeBox(f"kinema-7-{i}", kind, ZONE, PRICE[kind], "boot", CPU[kind], MEMORY[kind], ())
        for i, kind in enumerate(TYPES[1])
    ]
    spread: list[list[PodBox]] = [[SYSTEM] for _ in before]
    for index, pod in enumerate(PODS):
        spread[index % len(before)].append(pod if index % len(before) == 0 else replace(pod, fate="move"))
    packed: list[list[PodBox]] = [list(spread[0])] + [[SYSTEM] for _ in after[1:]]
    for pod in (pod for index, pod in enumerate(PODS) if index % len(before)):
        room = [box.cpu - sum(p.cpu for p in pods) for box, pods in zip(after, packed, strict=True)]
        packed[room.index(max(room))].append(replace(pod, fate="move"))
    return (
        tuple(replace(box, pods=tuple(pods)) for box, pods in zip(before, spread, strict=True)),
        tuple(replace(box, pods=tuple(pods)) for box, pods in zip(after, packed, strict=True)),
    )


def sample(at: float) -> Sample:
    """The cluster at a moment: new nodes from 60 s on, old ones leave one by one from 130 s on."""
    gone = min(10, max(0, int((at - 130) / 12)))
    old = TYPES[0][: 11 - gone]
    new = TYPES[1] if at >= 60 else []
    machines = [*old, *new]
    workloads = {}
    for index, (app, (_, _, count)) in enumerate(APPS.items()):
        surging = 75 + index * 7 <= at < 92 + index * 7
        evicted = app == "teastore/db" and 75 + index * 7 <= at < 92 + index * 7
        kind = "StatefulSet" if app == "teastore/db" else "Deployment"
        ready = count - 1 if evicted else count + surging * (index % 3 + 1)
        workloads[f"{kind}/{app}"] = Replicas(desired=count, ready=ready)
    requested = sum(pod.cpu for pod in PODS)
    return Sample(
        time=NOW + timedelta(seconds=at),
        at=at,
        nodes=tuple(map(Machine, machines)),
        usd_per_hour=sum(PRICE[kind] for kind in machines),
        requested=Sums(requested, sum(pod.memory for pod in PODS)),
        allocatable=Sums(sum(CPU[kind] for kind in machines), sum(MEMORY[kind] for kind in machines)),
        used=Sums(
            int(requested * (0.2 + 0.05 * math.sin(at / 20))),
            int(8 * GIB + GIB * math.sin(at / 30)),
        ),
        workloads=workloads,
    )


def fake_run() -> ReportData:
    """The whole report's data."""
    before, after = boxes()
    samples = tuple(sample(float(at)) for at in range(0, 320, 2))
    names = sorted(samples[0].workloads)
    series = {n: [ReadyPoint(s.at, s.workloads[n].desired, s.workloads[n].ready) for s in samples] for n in names}
    moved = [pod for box in before for pod in box.pods if pod.fate == "move"]
    spans = []
    for index, pod in enumerate(moved):
        lane = "StatefulSet" if pod.app == "db" else "Deployment"
        workload = f"{lane}/{pod.pod.rpartition('-')[0]}"
        at = 75 + list(APPS).index(pod.pod.rpartition("-")[0]) * 7 + index % 3
        old = f"pool-{index % 10 + 1}"
        spans.append(Life(pod.pod, workload, old, -1, -1, at + 12.0, at + 17.0, "old"))
        spans.append(Life(f"{pod.pod}-new", workload, f"kinema-7-{index % 3}", at, at + 11.0, role="new"))
    nodes = [Life(f"kinema-7-{i}", kind, "", 45, 60 + i, role="new") for i, kind in enumerate(TYPES[1])]
    nodes += [Life(b.name, b.machine_type, "", -1, -1, gone=142.0 + 12 * i) for i, b in enumerate(before[1:])]
    cost = sum(box.usd_per_hour for box in before), sum(box.usd_per_hour for box in after)
    return ReportData(
        title="Kinema: demo",
        subtitle="Cluster demo, recorded from 2026-11-21 12:00:00 UTC for 5 min 18 s of cluster time",
        headline=Headline(
            len(before), len(after), *cost, 0.60, 0.0, "optimal", len(moved), 0, {"surge": len(moved) - 1, "evict": 1}
        ),
        before=before,
        after=after,
        samples=samples,
        node_lives=tuple(nodes),
        pod_lives=tuple(spans),
        audit=audit(series, dict.fromkeys(names, "surge") | {"StatefulSet/teastore/db": "evict"}, start=BEGIN, end=END),
        window=(BEGIN, END),
        events=(
            EventRow(
                2,
                "observer",
                "iteration-skipped",
                "cluster not stable: HPA boutique/frontend above its target",
                refusal=True,
            ),
            EventRow(34, "observer", "iteration-started", "reschedule at state 7: stable for 30 s"),
            EventRow(35, "predictor", "forecast-made", "forecasts for 14 workloads, 2 refused", refusal=True),
            EventRow(38, "optimizer", "plan-proposed", "1.39 → 0.60 USD/h, 31 moves, gap 0.0 %"),
            EventRow(40, "decider", "plan-accepted", "saves 57 %, drift 0.0 %"),
            EventRow(250, "rescheduler", "execution-completed", "31 moves, 3 nodes booted, 10 deleted"),
        ),
        rules=(
            Rule("bare-pod", "boutique/debug has no controller", pods=1, nodes=1, alone=1, usd_alone=0.1, saves=0.05),
        ),
        facts=(("method", "class-aggregated model, HiGHS"), ("solve", "0.8 s, seed 0"), ("plan", "demo-7/optimizer/0")),
    )
