"""VerticalPodAutoscalers of the real recommender, fed by `metrics.k8s.io`, and what the predictor makes of them."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.controlplane.access import Access
from tests.controlplane.build import BuildError, build_module, recommender
from tests.controlplane.nodes import QUICK, node, nodes_for_a_while
from tests.controlplane.plane import ControlPlane
from tests.controlplane.server import Server
from tests.observer.real_cluster import observing, ticking
from tests.observer.scripted_source import folded
from tests.support.builders import MIB
from tests.support.usage_steps import many
from tests.support.waiting import until

from kinema_cli.local.nats_server import free_port
from kinema_core.events import Recommendation
from kinema_kubernetes.rights import as_written
from kinema_observer.rights import RULES
from kinema_predictor.logic.forecast import CPU_FLOOR, Memory, Rules, forecasts
from kinema_predictor.logic.history import History, remember

pytestmark = [pytest.mark.cluster, pytest.mark.long]

NAMESPACE: Final = "vertical"
KEY: Final = f"Deployment/{NAMESPACE}/web"
USED: Final = {"cpu": 100, "memory": 400 * MIB}
"""Millicores and bytes of each pod, which KWOK reports for its annotations."""
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERTICALS: Final = f"/apis/autoscaling.k8s.io/v1/namespaces/{NAMESPACE}/verticalpodautoscalers"
TENTH: Final = Rules(max_change=Fraction(1, 10), mode="apply")


@pytest.fixture
def program() -> Path:
    """The folder of the recommender and its definitions: two minutes to build at first."""
    try:
        return build_module(recommender())
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture
def admin(control_plane: ControlPlane, program: Path) -> Iterator[Access]:
    """A cluster with the definitions, a node, and a Deployment that asks for ten times what it uses."""
    access = control_plane.admin
    definitions = [
        msgspec.yaml.decode(part) for part in (program / "vpa-crds.yaml").read_text().split("\n---\n") if part.strip()
    ]
    for each in definitions:
        access.request("POST", DEFINITIONS, each)
    try:
        with nodes_for_a_while(access, node("vertical-0")):
            access.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            access.request("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment())
            access.until(VERTICALS, lambda found: found.get("kind") == "VerticalPodAutoscalerList")
            access.request("POST", VERTICALS, vertical())
            try:
                yield access
            finally:
                access.remove_namespace(NAMESPACE)
    finally:
        for each in definitions:
            access.request("DELETE", f"{DEFINITIONS}/{each['metadata']['name']}")


def deployment() -> dict[str, Any]:
    """Two pods."""
    usage = {f"kwok.x-k8s.io/usage-{name}": text for name, text in (("cpu", "100m"), ("memory", "400Mi"))}
    container = {"name": "c", "image": "example/none:1", "resources": {"requests": {"cpu": "1", "memory": "4Gi"}}}
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": {**QUICK, **usage}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    selector = {"matchLabels": {"app": "web"}}
    return {"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": selector, "template": template}}


def vertical() -> dict[str, Any]:
    """One that only recommends."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {"targetRef": target, "updatePolicy": {"updateMode": "Off"}},
    }


@contextmanager
def recommending(program: Path, admin: Access, folder: Path) -> Iterator[None]:
    """The recommender runs within the block, and looks every two seconds."""
    address = f"127.0.0.1:{free_port()}"
    command = (
        str(program / "recommender"),
        f"--kubeconfig={admin.write_kubeconfig(folder / 'recommender.kubeconfig')}",
        f"--address={address}",
        "--recommender-interval=2s",
        "--leader-elect=false",
    )

    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5):
                return True
        except OSError:
            return False

    with Server("recommender", command, folder=folder, is_ready=is_ready):
        yield


def half_a_day(end: datetime) -> History:
    """Usage of twelve hours, too short for requests to fall by it."""
    history = History()
    for at in reversed(range(144)):
        one = many(at, {KEY: (USED["cpu"], USED["memory"] // MIB)}, now=end)
        history = remember(history, one, keep=timedelta(days=21))
    return history


async def test_the_real_recommenders_objects_stand_in_for_a_history_that_is_too_short(
    control_plane: ControlPlane, admin: Access, program: Path, tmp_path: Path
) -> None:
    """Its target for what the pods use is observed, and recommended by Kinema once the object is a day old."""
    access = admin.account("kinema", "observer", list(map(as_written, RULES)))
    with recommending(program, admin, tmp_path):
        async with observing(control_plane, access, tmp_path) as observed, ticking(observed):

            def complete() -> Recommendation | None:
                state = folded(observed.bus)
                if len(state.pods_by_workload.get(KEY, ())) < 2:
                    return None
                # Before it has seen usage, it recommends the least that it may.
                return next((one for one in state.recommendations if one.target.get("cpu", 0) >= USED["cpu"]), None)

            await until(lambda: complete() is not None, 240)
            state = folded(observed.bus)
    advice = complete()
    assert advice is not None
    assert advice.mode == "Off"
    for name, used in USED.items():
        # 15% above the usage, in buckets that grow by 5%.
        assert used <= advice.target[name] <= 1.3 * used
        assert advice.lower[name] <= advice.target[name] <= advice.upper[name]
    assert advice.created is not None
    early, late = (advice.created + timedelta(hours=hours) for hours in (23, 25))

    young = forecasts(state, half_a_day(early), early, TENTH, Memory())
    (judged,) = young.judged
    assert dict(judged.kept) == {"cpu": "young", "memory": "young"}
    assert judged.recommended == {"cpu": 1000, "memory": 4096 * MIB}

    made = forecasts(state, half_a_day(late), late, TENTH, Memory())
    (judged,) = made.judged
    assert judged.kept == {}
    floors = {"cpu": CPU_FLOOR, "memory": -(-USED["memory"] * 11 // 10)}
    assert judged.recommended == {name: max(advice.target[name], floor) for name, floor in floors.items()}
    (forecast,) = made.forecasts
    assert forecast.requests_after["cpu"] == 900, "by a tenth in one plan"
