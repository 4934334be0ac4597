"""Readings of the metrics API."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs
from tests.observer.kube_json import JSON
from tests.observer.scripted_source import BEGIN, ScriptedSource, observer
from tests.support.builders import MIB, cluster, node, pod
from tests.support.manual_clock import ManualClock

from kinema_core.events import PodUsage, UsageSampled
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes.errors import NotFoundError
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.usage import Usage, sample, usage_of
from kinema_observer.sampling import UsageSampler
from kinema_observer.settings import Settings
from kinema_sim.memory_bus import MemoryBus

SAMPLED = datetime(2026, 3, 2, 11, 59, 45, tzinfo=UTC)


def reading(name: str, *containers: tuple[str, str], timestamp: str = "2026-03-02T11:59:30Z") -> JSON:
    """What the metrics API says of one pod."""
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "timestamp": timestamp,
        "window": "15.5s",
        "containers": [
            {"name": f"c{i}", "usage": {"cpu": cpu, "memory": memory}} for i, (cpu, memory) in enumerate(containers)
        ],
    }


def test_usage_is_summed_over_containers_and_rounded_up() -> None:
    """Nanocores become millicores; the newest timestamp and the longest window stand for the whole reading."""
    items = [
        reading("b", ("1500001n", "10Mi"), ("2m", "1Ki")),
        reading("a", ("0", "64Mi"), timestamp="2026-03-02T11:59:45Z"),
    ]
    found = usage_of(json.dumps({"items": items}).encode())
    assert found == Usage(SAMPLED, 15.5, (("shop/a", 0, 64 * MIB), ("shop/b", 4, 10 * MIB + 1024)), 0)


def test_a_pod_whose_figures_cannot_be_read_is_left_out_and_counted() -> None:
    """NaN, negative, missing timestamps: the other pods' readings hold."""
    items = [
        reading("a", ("1m", "1Mi")),
        reading("b", ("NaN", "1Mi")),
        reading("c", ("-1", "1Mi")),
        {"metadata": {}},
        3,
    ]
    found = usage_of(json.dumps({"items": items}).encode())
    assert found is not None
    assert ([key for key, _, _ in found.pods], found.unreadable) == (["shop/a"], 4)
    assert usage_of(b'{"items": null}') is None


def test_an_answer_that_is_no_list_is_an_error() -> None:
    """A proxy's error page, for one."""
    with pytest.raises(UnreadableListError):
        usage_of(b"<html>")


def test_a_sample_names_the_pods_that_the_state_knows_with_their_uids() -> None:
    """The metrics API has no uids: a pod that the state does not know yet is left out."""
    known = cluster(pod("a", node="n1"))
    found = sample(Usage(SAMPLED, 15.0, (("shop/a", 5, MIB), ("shop/new", 9, MIB)), 0), known)
    assert found.pods == (PodUsage(pod="shop/a", uid="uid-pod-shop-a", cpu=5, memory=MIB),)
    assert found.sampled == SAMPLED


class Readings:
    """A usage source that gives what is set."""

    def __init__(self) -> None:
        self.now: Usage | None = None
        self.down = False

    async def read(self) -> Usage | None:
        """The present reading."""
        if self.down:
            raise NotFoundError("/apis/metrics.k8s.io/v1beta1/pods", "not served", status=404)
        return self.now


async def test_each_reading_is_published_once() -> None:
    """The metrics server repeats itself until it has scraped again; without state or readings nothing is said."""
    bus, source, time, readings = (
        MemoryBus(),
        ScriptedSource([node("n1"), pod("a", node="n1")]),
        ManualClock(BEGIN),
        Readings(),
    )
    observing = observer(bus, source, time)
    settings = Settings(runtime=RuntimeSettings(cluster="c1"))
    sampler = UsageSampler(bus=bus, source=readings, clock=time, observer=observing, settings=settings)
    readings.now = Usage(SAMPLED, 15.0, (("shop/a", 5, MIB),), 0)
    await sampler.sample()
    assert bus.events("STATE") == ()
    await observing.tick()
    await sampler.sample()
    await sampler.sample()
    (event,) = (event for event in bus.events("STATE") if isinstance(event.body, UsageSampled))
    assert event.id == "c1/observer/usage-2026-03-02T11:59:45+00:00"
    assert event.state == 1


async def test_without_a_metrics_api_the_rest_goes_on() -> None:
    """One log line when it goes away, one when it comes back."""
    bus, readings = MemoryBus(), Readings()
    observing = observer(bus, ScriptedSource([node("n1")]), ManualClock(BEGIN))
    settings = Settings(runtime=RuntimeSettings(cluster="c1"))
    sampler = UsageSampler(bus=bus, source=readings, clock=ManualClock(BEGIN), observer=observing, settings=settings)
    readings.down = True
    with capture_logs() as logs:
        for down in (True, True, False, False):
            readings.down = down
            await sampler.sample()
    assert [line["event"] for line in logs] == ["usage cannot be sampled", "usage is sampled again"]
