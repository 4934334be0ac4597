"""Decoding and folding a snapshot of 150,000 pods on 5,000 nodes, then deltas of 20 changes."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

from benchmarks.machine import peak_rss_mib
from benchmarks.synthetic import cluster_objects, touched
from kinema_core.events import ClusterDelta, ClusterSnapshot, Event, Pod, decode, encode
from kinema_core.model.cluster import Cluster, evolve

NODES: Final = 5_000
PODS: Final = 150_000
DELTAS: Final = 50


def measure() -> dict[str, object]:
    """Seconds for decode and fold, peak memory; run in a process of its own so that the peak is this task's."""
    snapshot = _encoded_snapshot()
    baseline = peak_rss_mib()
    began = time.perf_counter()
    body = decode(snapshot).body
    decoded = time.perf_counter()
    assert isinstance(body, ClusterSnapshot)
    cluster = evolve(Cluster(), body)
    folded = time.perf_counter()
    pods = [item for item in body.objects if isinstance(item, Pod)][:20]
    per_delta = []
    for number in range(DELTAS):
        changed = tuple(touched(pod, number) for pod in pods)
        start = time.perf_counter()
        cluster = evolve(cluster, ClusterDelta(version=cluster.version + 1, upserts=changed))
        per_delta.append(time.perf_counter() - start)
    return {
        "pods": PODS,
        "nodes": NODES,
        "snapshot_mb": round(len(snapshot) / 1e6, 1),
        "decode_seconds": round(decoded - began, 3),
        "fold_seconds": round(folded - decoded, 3),
        "snapshot_to_state_seconds": round(folded - began, 3),
        "delta_of_20_ms_median": round(sorted(per_delta)[DELTAS // 2] * 1000, 2),
        "rss_before_mib": round(baseline),
        "peak_rss_mib": round(peak_rss_mib()),
    }


def _encoded_snapshot() -> bytes:
    body = ClusterSnapshot(version=1, objects=cluster_objects(nodes=NODES, pods=PODS))
    return encode(
        Event(
            id="bench/observer/snapshot-1",
            type=body.TYPE,
            cluster="bench",
            time=datetime(2026, 1, 1, tzinfo=UTC),
            cause="",
            iteration="",
            traceparent="00-0-0-01",
            body=body,
        )
    )
