"""Readings of the metrics API."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs
from tests.observer.kube_json import JSON
from tests.observer.scripted_source import BEGIN, ScriptedSource, observer
from tests.support.builders import MIB, cluster, deployed, node, pod
from tests.support.manual_clock import ManualClock

from kinema_core.events import PodUsage, UsageCompacted, UsageResampled, UsageSampled
from kinema_core.model.cluster import Cluster
from kinema_core.model.usage import BLOCK_STEPS, amount_of, codes_of, compacted, end_of, step_start
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes.errors import NotFoundError
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.usage import Usage, UsageStep, sample, usage_of
from kinema_observer.sampling import MeteredUsage, UsageSampler
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


def web() -> Cluster:
    """Two pods of a Deployment, and one without a controller."""
    return cluster(node("n1", cpu=4000), deployed("web", ["n1", "n1"]), pod("bare", node="n1"))


def at(seconds: float, cpu: int = 100, memory: int = 10, pods: tuple[str, ...] = ("web-0", "web-1")) -> Usage:
    """A reading of these pods so many seconds after the begin of a step."""
    return Usage(
        BEGIN + timedelta(seconds=seconds), 15.0, tuple((f"shop/{name}", cpu, memory * MIB) for name in pods), 0
    )


def rows(body: UsageResampled) -> dict[str, tuple[int, int, int]]:
    """Pods, millicores and MiB of each workload."""
    codes, count = codes_of(body), len(body.workloads)
    found = [int.from_bytes(codes[2 * place : 2 * place + 2], "little") for place in range(3 * count)]
    return {
        key: (found[n], amount_of(found[count + n]), amount_of(found[2 * count + n]) // 1024)
        for n, key in enumerate(body.workloads)
    }


def test_a_step_has_the_mean_cpu_and_the_largest_memory() -> None:
    """CPU is a pod's mean over the step, of all pods but one in twenty; pods without a controller are left out."""
    step = UsageStep.around(BEGIN, timedelta(minutes=5))
    step.add(at(0, 100, 10), web())
    step.add(at(15, 300, 30, pods=("web-0", "bare")), web())
    step.add(at(30, 200, 20), web())
    body = step.closed("metrics.k8s.io")
    assert body is not None
    assert (body.start, body.step_seconds, body.dropped) == (BEGIN, 300.0, 0)
    assert rows(body) == {"Deployment/shop/web": (2, 200, 30)}


def test_what_a_pod_computes_while_it_starts_does_not_count() -> None:
    """CPU of the first two minutes is left out, memory is not; where every pod only starts there is no sample."""
    starting = cluster(node("n1"), deployed("web", ["n1", "n1"], started=BEGIN - timedelta(seconds=60)))
    step = UsageStep.around(BEGIN, timedelta(minutes=5))
    step.add(at(0, 3000, 50), starting)
    assert step.closed("metrics.k8s.io") is None
    step.add(at(60, 100, 20), starting)
    body = step.closed("metrics.k8s.io")
    assert body is not None
    assert rows(body) == {"Deployment/shop/web": (2, 100, 50)}


def test_a_sample_above_twice_its_node_is_dropped_and_counted() -> None:
    """A pod cannot use more than its node has; twice of it happens between two readings."""
    step = UsageStep.around(BEGIN, timedelta(minutes=5))
    step.add(at(0, 8001, 10, pods=("web-0",)), web())
    step.add(at(0, 8000, 10, pods=("web-1",)), web())
    body = step.closed("metrics.k8s.io")
    assert body is not None
    assert body.dropped == 1
    assert rows(body) == {"Deployment/shop/web": (1, 8000, 10)}


async def sampling(bus: MemoryBus, readings: Readings, *objects: object, **more: float) -> UsageSampler:
    """A sampler whose observer has published these objects."""
    clock = ManualClock(BEGIN)
    observing = observer(bus, ScriptedSource([*objects]), clock)  # type: ignore[list-item]  # objects of any kind
    await observing.tick()
    settings = Settings(runtime=RuntimeSettings(cluster="c1"), **more)  # type: ignore[arg-type]  # seconds
    return UsageSampler(
        bus=bus,
        source=MeteredUsage(readings, settings.usage_step_seconds),
        clock=clock,
        observer=observing,
        settings=settings,
    )


def deployment() -> list[object]:
    """The objects of `web`."""
    return [node("n1"), *deployed("web", ["n1", "n1"])]


async def test_a_step_is_published_when_the_next_one_begins() -> None:
    """One event for a step and one reading of every pod, however often it was read; none before the state is known."""
    bus, readings = MemoryBus(), Readings()
    observing = observer(bus, ScriptedSource([*deployment()]), ManualClock(BEGIN))  # type: ignore[list-item]
    settings = Settings(runtime=RuntimeSettings(cluster="c1"))
    sampler = UsageSampler(
        bus=bus,
        source=MeteredUsage(readings, settings.usage_step_seconds),
        clock=ManualClock(BEGIN),
        observer=observing,
        settings=settings,
    )
    readings.now = at(0)
    await sampler.sample()
    assert bus.events("STATE") == ()
    await observing.tick()
    for seconds in (0, 0, 15, 285):
        readings.now = at(seconds)
        await sampler.sample()
    assert bus.events("USAGE") == ()
    assert observing.usage_until is None
    readings.now = at(300)
    await sampler.sample()
    (event,) = bus.events("USAGE")
    assert event.id == "c1/observer/usage-step-2026-03-02T12:00:00+00:00-300"
    assert observing.usage_until == BEGIN + timedelta(seconds=300)
    readings_ = [event for event in bus.events("STATE") if isinstance(event.body, UsageSampled)]
    assert [event.id[-25:] for event in readings_] == ["2026-03-02T12:00:00+00:00", "2026-03-02T12:05:00+00:00"]
    assert readings_[0].state == 1


async def test_a_row_of_steps_gets_a_checkpoint_before_the_next_row() -> None:
    """The checkpoint holds every step of its row, also those that another process published before this one."""
    bus, readings = MemoryBus(), Readings()
    first = await sampling(bus, readings, *deployment(), usage_seconds=10.0, usage_step_seconds=10.0)
    begin = (step_start(BEGIN, 10, BLOCK_STEPS) - BEGIN).total_seconds()
    for number in range(150):
        readings.now = at(begin + 10 * number)
        await first.sample()
    second = await sampling(bus, readings, *deployment(), usage_seconds=10.0, usage_step_seconds=10.0)
    for number in range(150, BLOCK_STEPS + 3):
        readings.now = at(begin + 10 * number)
        await second.sample()
    bodies = [event.body for event in bus.events("USAGE")]
    (place,) = (n for n, body in enumerate(bodies) if isinstance(body, UsageCompacted))
    checkpoint = bodies[place]
    assert isinstance(checkpoint, UsageCompacted)
    # The step in which the other process took over is lost.
    assert place == BLOCK_STEPS - 1
    inside = [body for body in bodies[:place] if isinstance(body, UsageResampled)]
    assert codes_of(checkpoint) == codes_of(compacted(inside, start=step_start(BEGIN, 10, BLOCK_STEPS)))
    assert end_of(checkpoint) <= BEGIN + timedelta(seconds=begin + 10 * BLOCK_STEPS)


async def test_steps_wait_for_a_broker_that_is_away() -> None:
    """What was read while the broker was away is published when it is back, in order, once."""
    bus, readings = MemoryBus(), Readings()
    sampler = await sampling(bus, readings, *deployment())
    for seconds in (0, 300, 600):
        bus.cut(reachable=seconds == 0)
        readings.now = at(seconds)
        await sampler.sample()
    assert bus.events("USAGE") == () or not bus.connected()
    bus.cut(reachable=True)
    await sampler.sample()
    starts = [event.body.start for event in bus.events("USAGE") if isinstance(event.body, UsageResampled)]
    assert starts == [BEGIN, BEGIN + timedelta(seconds=300)]


async def test_without_a_metrics_api_the_rest_goes_on() -> None:
    """One log line when it goes away, one when it comes back."""
    bus, readings = MemoryBus(), Readings()
    observing = observer(bus, ScriptedSource([node("n1")]), ManualClock(BEGIN))
    settings = Settings(runtime=RuntimeSettings(cluster="c1"))
    sampler = UsageSampler(
        bus=bus,
        source=MeteredUsage(readings, settings.usage_step_seconds),
        clock=ManualClock(BEGIN),
        observer=observing,
        settings=settings,
    )
    await observing.tick()
    readings.down = True
    with capture_logs() as logs:
        for down in (True, True, False, False):
            readings.down = down
            await sampler.sample()
    assert [line["event"] for line in logs] == ["usage cannot be sampled", "usage is sampled again"]
