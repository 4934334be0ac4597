"""A restless corner of a cluster holds itself only."""

from __future__ import annotations

from benchmarks.restless import rows
from benchmarks.starts import deployments_after_peak

from kinema_optimizer.solvers.stopping import WorkStop


def test_a_cluster_with_a_few_restless_workloads_saves_what_the_calm_one_does() -> None:
    """Some always crash, roll out or scale: at least 90% of the saving remains, where rest of all would leave none."""
    start = deployments_after_peak(150, seed=3)
    calm, restless, whole = rows(start, fraction=0.02, minutes=12, stop=lambda: WorkStop(5), seed=3)
    assert calm.saving > 0
    assert restless.saving >= 0.9 * calm.saving
    assert (whole.iterations, whole.saving) == (0, 0)
