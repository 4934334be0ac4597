"""The horizontal pod autoscaler and the metrics that it reads."""

import pytest
from tests.sim.builders import a_cluster, an_app, edit_spec, pods_of, with_deployment

from kinema_sim.api.errors import ApiError
from kinema_sim.api.metrics import MetricsApi
from kinema_sim.cluster import Cluster
from kinema_sim.controllers.hpa import desired_replicas
from kinema_sim.engine.kinds import DEPLOYMENT, HPA
from kinema_sim.engine.objects import Obj, key_of
from kinema_sim.load.meter import SCRAPE_MS, Meter, Usage
from kinema_sim.scenarios.objects import hpa

MILLI = 1_000_000


@pytest.mark.parametrize(
    ("usage", "expected"),
    [(240, 4), (264, 4), (265, 5), (216, 4), (215, 4), (120, 2), (1, 1), (480, 8)],
)
def test_the_formula(usage: int, expected: int) -> None:
    """Replicas are ceil(ready × usage / target), and a deviation of up to a tenth changes nothing."""
    assert desired_replicas(4, ready=4, usage=usage, target=60) == expected


def test_without_ready_pods_nothing_changes() -> None:
    """No ready pod means no figure, so the replicas stay."""
    assert desired_replicas(3, ready=0, usage=0, target=60) == 3


def _scaled_cluster(*, low: int = 1, high: int = 10, replicas: int = 2) -> tuple[Cluster, dict[str, int]]:
    """Give a cluster with an autoscaler at 60 % of 100m, and a box with the millicores that the pods use in all."""
    cluster, box = a_cluster(nodes=3), {"cpu_m": 60 * replicas}

    def source() -> dict[tuple[str, str], Usage]:
        pods = pods_of(cluster)
        return {key_of(pod): Usage(box["cpu_m"] * MILLI // len(pods), 1024) for pod in pods}

    cluster.meter = Meter(cluster.store, source)
    cluster.autoscaler._meter = cluster.meter  # the one place where a test drives usage by hand
    cluster.loop.every(SCRAPE_MS, cluster.meter.scrape)
    app = an_app(replicas=replicas)
    with_deployment(cluster, app, seconds=60)
    cluster.store.create(HPA, hpa(app, low=low, high=high))
    cluster.run_for(60)
    return cluster, box


def _replicas(cluster: Cluster) -> int:
    found = cluster.store.get(DEPLOYMENT, "shop", "web")
    assert found is not None
    return int(found["spec"]["replicas"])


def _status(cluster: Cluster) -> Obj:
    found = cluster.store.get(HPA, "shop", "web")
    assert found is not None
    return dict(found["status"])


def test_it_grows_with_the_load_and_shows_the_figures() -> None:
    """More use per pod than the target adds pods until the target is met, and the status tells the utilization."""
    cluster, box = _scaled_cluster()
    assert _replicas(cluster) == 2
    box["cpu_m"] = 300
    cluster.run_for(120)
    assert _replicas(cluster) == 5
    status = _status(cluster)
    assert (status["currentReplicas"], status["desiredReplicas"]) == (5, 5)
    assert status["currentMetrics"][0]["resource"]["current"] == {"averageUtilization": 60, "averageValue": "60m"}


def test_it_waits_before_it_shrinks() -> None:
    """Replicas fall only when the highest advice of the last five minutes has fallen."""
    cluster, box = _scaled_cluster(replicas=4)
    box["cpu_m"] = 60
    cluster.run_for(270)
    assert _replicas(cluster) == 4
    cluster.run_for(60)
    assert _replicas(cluster) == 1


def test_it_stays_within_its_bounds() -> None:
    """Neither the least nor the most replicas are passed."""
    cluster, box = _scaled_cluster(low=2, high=3)
    box["cpu_m"] = 900
    cluster.run_for(120)
    assert _replicas(cluster) == 3
    box["cpu_m"] = 1
    cluster.run_for(700)
    assert _replicas(cluster) == 2


def test_it_takes_a_surplus_back() -> None:
    """Pods added by somebody else beyond the advice of the last five minutes go at the next look."""
    cluster, _ = _scaled_cluster(replicas=4)
    edit_spec(cluster, replicas=6)
    cluster.run_for(60)
    assert _replicas(cluster) == 4


def test_metrics_look_like_the_metrics_servers() -> None:
    """CPU is in billionths with the suffix n, memory in Ki, and the time stands on a multiple of fifteen seconds."""
    cluster, _ = _scaled_cluster()
    api = MetricsApi(cluster.store, cluster.meter)
    listed = api.answer("/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods", labels="app=web")
    assert listed["kind"] == "PodMetricsList"
    entry = listed["items"][0]
    assert entry["containers"] == [{"name": "server", "usage": {"cpu": "60000000n", "memory": "1Ki"}}]
    assert entry["window"] == "15s"
    assert entry["timestamp"].endswith(("00Z", "15Z", "30Z", "45Z"))
    nodes = api.answer("/apis/metrics.k8s.io/v1beta1/nodes")
    assert [each["metadata"]["name"] for each in nodes["items"]] == ["n1", "n2", "n3"]
    with pytest.raises(ApiError, match="not found"):
        api.answer("/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/absent")


def test_a_new_pod_has_no_metrics_before_its_second_scrape() -> None:
    """A rate needs two points: a pod appears only once it was running in the scrape before."""
    cluster = a_cluster()
    with_deployment(cluster, an_app(replicas=2), seconds=60)
    edit_spec(cluster, replicas=3)
    cluster.run_for(15)
    assert len(cluster.meter.usage) == 2
    cluster.run_for(15)
    assert len(cluster.meter.usage) == 3
