"""The real Prometheus as a source of usage: its past, its agreement with the metrics API, and its failures."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from structlog.testing import capture_logs
from tests.observer.scripted_source import BEGIN, ScriptedSource, observer
from tests.support.builders import MIB, cluster, daemon_set, deployed, deployment, node, pod, stateful
from tests.support.certificates import authority
from tests.support.manual_clock import ManualClock
from tests.support.prometheus import Series, container, serving, write_past

from kinema_core.events import UsageCompacted, UsageResampled, UsageSampled, Workload
from kinema_core.model.cluster import Cluster
from kinema_core.model.usage import BLOCK_STEPS
from kinema_core.runtime.settings import RuntimeSettings
from kinema_observer.adapters.prometheus import Prometheus, PrometheusUsage
from kinema_observer.errors import PartialError, PrometheusError, TimedOutError, TooMuchError
from kinema_observer.logic.prometheus import Pods, queries, samples_of, steps_of
from kinema_observer.logic.usage import Usage
from kinema_observer.sampling import MeteredUsage, UsageSampler
from kinema_observer.settings import PrometheusSettings, Settings
from kinema_predictor.logic.forecast import Rules, forecasts
from kinema_predictor.logic.history import History, remember
from kinema_sim.memory_bus import MemoryBus

STEP: Final = timedelta(minutes=5)
DAYS: Final = 2
SCRAPES: Final = timedelta(seconds=60)
READINGS: Final = timedelta(seconds=15)
GONE: Final = "web-6d5f8c9b7-x7k2p"
"""A pod of the Deployment's last template, which ended a day ago."""
KEY: Final = "Deployment/shop/web"
OLD_END: Final = BEGIN - timedelta(days=1)


def web_cluster() -> Cluster:
    """The Deployment `web` with two pods."""
    return cluster(node("n1", cpu=4000, memory=8000), deployed("web", ["n1", "n1"], cpu=2000, memory=2000))


def cores(pod: str, at: datetime) -> float:
    """Return what a pod computes: a daily wave, and a quick one of its own."""
    day = 2 * math.pi * at.timestamp() / 86_400
    own = 0.03 * math.sin(at.timestamp() / (700 + len(pod)))
    return 0.3 + 0.2 * math.sin(day) + own


def memory(pod: str, at: datetime) -> float:
    """Return what a pod holds."""
    return (300 + 60 * math.sin(2 * math.pi * at.timestamp() / 86_400) + len(pod)) * MIB


def lives(pod: str, at: datetime) -> bool:
    """Return whether a pod is there: the old one until a day ago, the others all the time."""
    return pod != GONE or at < OLD_END


def times(every: timedelta) -> Iterator[datetime]:
    """All instants of the past at which something is measured."""
    at = BEGIN - timedelta(days=DAYS)
    while at <= BEGIN:
        yield at
        at += every


def scraped(pod: str, share: float = 1.0) -> Iterator[tuple[datetime, float, float]]:
    """What Prometheus scraped of one container that does a share of its pod's work."""
    used = 0.0
    for at in times(SCRAPES):
        used += share * cores(pod, at - SCRAPES / 2) * SCRAPES.total_seconds()
        if lives(pod, at):
            yield at, used, share * memory(pod, at)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of three pods, one with two containers, scraped twice; with the sums and pauses that cAdvisor adds."""
    folder = tmp_path_factory.mktemp("prometheus")
    series = [
        Series(container("web-0", prometheus="a"), scraped("web-0")),
        Series(container("web-0", prometheus="b"), scraped("web-0")),
        Series(container("web-1"), scraped("web-1", 0.75)),
        Series(container("web-1", "proxy"), scraped("web-1", 0.25)),
        Series(container(GONE), scraped(GONE)),
        Series({"namespace": "shop", "pod": "web-0", "container": "", "image": ""}, scraped("web-0", 2.0)),
        Series(container("web-0", "POD"), scraped("web-0", 0.01)),
        Series(container("alone"), scraped("alone")),
        Series({"container": "system", "image": ""}, scraped("node")),
    ]
    write_past(folder, series)
    return folder


@pytest.fixture(scope="module")
def url(past: Path) -> Iterator[str]:
    """Address of a server with that past."""
    with serving(past) as (address, _):
        yield address


@asynccontextmanager
async def asking(url: str, **settings: Any) -> AsyncIterator[Prometheus]:
    """A client of a server."""
    client = Prometheus(PrometheusSettings(url=url, **settings))
    try:
        yield client
    finally:
        await client.close()


async def everything(
    source: PrometheusUsage, state: Cluster, now: datetime = BEGIN, since: datetime | None = None
) -> list[UsageResampled]:
    """All steps that a source gives."""
    found: list[UsageResampled] = []
    has_more = True
    while has_more:
        collected = await source.collect(state, since, now)
        found += collected.steps
        has_more = collected.has_more
    return found


def source_of(client: Prometheus, *, days: float = DAYS, step: timedelta = STEP) -> PrometheusUsage:
    """A source that looks back so far."""
    return PrometheusUsage(client, step_seconds=step.total_seconds(), lookback_seconds=days * 86_400)


def history_of(steps: Sequence[UsageResampled]) -> History:
    """What the predictor knows after these steps."""
    history = History()
    for step in steps:
        history = remember(history, step, keep=timedelta(days=21))
    return history


class _Readings:
    """The metrics API, as the metrics server would have answered."""

    def __init__(self) -> None:
        self.at = BEGIN

    async def read(self) -> Usage:
        """Return usage of each pod in the fifteen seconds before."""
        return Usage(
            self.at,
            READINGS.total_seconds(),
            tuple(
                (f"shop/{pod}", math.ceil(1000 * cores(pod, self.at - READINGS / 2)), math.ceil(memory(pod, self.at)))
                for pod in ("web-0", "web-1", GONE)
                if lives(pod, self.at)
            ),
            0,
        )


async def metered(state: Cluster) -> list[UsageResampled]:
    """All steps of readings of the metrics API over the same past."""
    meter = _Readings()
    source = MeteredUsage(meter, STEP.total_seconds())
    found: list[UsageResampled] = []
    for at in times(READINGS):
        meter.at = at
        found += (await source.collect(state, None, at)).steps
    return found


def needs(state: Cluster, steps: Sequence[UsageResampled]) -> dict[str, int]:
    """Return what is recommended for the Deployment."""
    made = forecasts(state, history_of(steps), BEGIN, Rules(max_change=Fraction(1, 10)))
    (judged,) = (one for one in made.judged if one.workload == KEY)
    return dict(judged.recommended)


@pytest.mark.prometheus
async def test_both_sources_give_the_same_recommendation(url: str) -> None:
    """The same usage, scraped every minute or read every 15 s, leads to requests within 1% of each other."""
    state = web_cluster()
    async with asking(url) as client:
        scraped_steps = await everything(source_of(client), state)
    # The metrics API knew the old pod while it ran.
    top, set_, *pods = deployed("web", ["n1", "n1"], cpu=2000, memory=2000)
    assert isinstance(set_, Workload)
    old = pod(GONE, node="n1", owner=set_, cpu=2000, memory=2000)
    readings = await metered(cluster(node("n1", cpu=4000, memory=8000), top, set_, *pods, old))
    # The last step may lack a scrape that is still to be stored: it is not given yet.
    assert [step.start for step in scraped_steps] == [step.start for step in readings[:-1]]
    readings = readings[:-1]
    assert {step.workloads for step in scraped_steps} == {(KEY,)}
    ours, theirs = needs(state, scraped_steps), needs(state, readings)
    assert set(ours) == {"cpu", "memory"}
    for name, amount in ours.items():
        assert abs(amount - theirs[name]) <= 0.01 * theirs[name], (ours, theirs)
        assert amount < state.workload(KEY).template_requests[name]  # type: ignore[union-attr]  # it is there


@pytest.mark.prometheus
async def test_a_pod_that_is_gone_counts_for_its_workload(url: str) -> None:
    """While the pod of the old template ran there are three pods of the Deployment, afterwards two."""
    async with asking(url) as client:
        steps = await everything(source_of(client), web_cluster())
    pods = {step.start: step.table[0] for step in steps}
    assert pods[OLD_END - STEP] == 3
    assert pods[OLD_END + STEP] == 2
    assert pods[BEGIN - 2 * STEP] == 2


async def sampler_of(bus: MemoryBus, source: PrometheusUsage, clock: ManualClock) -> UsageSampler:
    """A sampler of a new process."""
    observing = observer(bus, ScriptedSource([node("n1"), *deployed("web", ["n1", "n1"])]), clock)
    await observing.tick()
    settings = Settings(runtime=RuntimeSettings(cluster="c1"))
    return UsageSampler(bus=bus, source=source, clock=clock, observer=observing, settings=settings)


def starts(bus: MemoryBus) -> list[datetime]:
    """Begins of all steps in the stream, also of those that a checkpoint holds."""
    found: list[datetime] = []
    for event in bus.events("USAGE"):
        if isinstance(event.body, UsageCompacted):
            found += [event.body.start + number * STEP for number in range(BLOCK_STEPS)]
        elif isinstance(event.body, UsageResampled):
            found.append(event.body.start)
    return found


@pytest.mark.prometheus
async def test_a_restart_sets_counters_back_and_no_usage(tmp_path: Path) -> None:
    """CPU seconds that begin at zero again are no usage below zero and none since 1970; at most a scrape is lost."""
    restarted = BEGIN - timedelta(hours=7, minutes=3)

    def counted() -> Iterator[tuple[datetime, float, float]]:
        before = 0.0
        for at, used, held in scraped("web-0"):
            if at == restarted:
                before = used
            yield at, used - before, held

    write_past(tmp_path, [Series(container("web-0"), counted())])
    with serving(tmp_path) as (address, _):
        async with asking(address) as client:
            steps = await everything(source_of(client), web_cluster())
    history = history_of(steps)
    used = history.matrix([KEY], "cpu", history.steps)[0]
    known = np.isfinite(used)
    assert known.sum() > DAYS * 280
    ends = [steps[0].start + STEP * (place + 1) for place in range(len(used))]
    minutes = [[at - SCRAPES * (back + 0.5) for back in range(round(STEP / SCRAPES))] for at in ends]
    there = 1000 * np.array([np.mean([cores("web-0", at) for at in one]) for one in minutes])
    share = used[known] / there[known]
    assert share.max() < 1.05
    assert share.min() > 1 - 1.5 * (SCRAPES / STEP)
    assert (share < 0.95).sum() <= 1


@pytest.mark.prometheus
async def test_a_new_installation_has_the_past_at_once(url: str) -> None:
    """One call publishes two days: a checkpoint for each whole row, steps for the last one; a restart none."""
    bus, clock = MemoryBus(), ManualClock(BEGIN)
    async with asking(url) as client:
        await (await sampler_of(bus, source_of(client), clock)).sample()
        kinds = [type(event.body) for event in bus.events("USAGE")]
        assert kinds.count(UsageCompacted) == 2
        assert kinds.index(UsageResampled) == 2
        known = starts(bus)
        assert known == sorted(set(known))
        assert known[-1] == BEGIN - 2 * STEP  # the last one may lack a scrape that is still to be stored
        (reading,) = (event.body for event in bus.events("STATE") if isinstance(event.body, UsageSampled))
        assert [pod.pod for pod in reading.pods] == ["shop/web-0", "shop/web-1"]
        before = bus.events("USAGE")
        await (await sampler_of(bus, source_of(client), clock)).sample()
        assert bus.events("USAGE") == before


@pytest.mark.prometheus
async def test_an_outage_leaves_no_gap(past: Path, tmp_path: Path) -> None:
    """What Prometheus stored while it could not be asked is fetched later: a log line when it fails, one afterwards."""
    (tmp_path / "data").symlink_to(past / "data")
    bus, clock = MemoryBus(), ManualClock(BEGIN - timedelta(hours=3))
    with serving(tmp_path) as (address, server):
        async with asking(address, timeout_seconds=1.0) as client:
            sampler = await sampler_of(bus, source_of(client, days=0.1), clock)
            await sampler.sample()
            server.pause()
            clock.set(BEGIN - timedelta(hours=1))
            with capture_logs() as logs:
                await sampler.sample()
                server.resume()
                await sampler.sample()
    assert [line["event"] for line in logs] == ["usage cannot be sampled", "usage is sampled again"]
    assert "no answer within 1 s (prometheus.timeout_seconds)" in logs[0]["problem"]
    known = starts(bus)
    assert all(later - earlier == STEP for earlier, later in pairwise(known))
    assert known[-1] == BEGIN - timedelta(hours=1) - 2 * STEP


@pytest.mark.prometheus
async def test_a_server_with_a_small_limit_is_asked_for_shorter_spans(past: Path, tmp_path: Path) -> None:
    """422 of `--query.max-samples`: halves, until it answers; the steps are those of a server without the limit."""
    (tmp_path / "data").symlink_to(past / "data")
    state = web_cluster()
    with serving(tmp_path, "--query.max-samples=400") as (address, _):
        async with asking(address) as client:
            with pytest.raises(TooMuchError, match=r"too many samples .*HTTP 422"):
                await client.usage(BEGIN - timedelta(days=1), BEGIN, STEP)
            limited = await everything(source_of(client, days=0.5), state)
    with serving(tmp_path) as (address, _):
        async with asking(address) as client:
            assert limited == await everything(source_of(client, days=0.5), state)
    assert len(limited) >= 140


@pytest.mark.prometheus
async def test_a_query_may_take_as_long_as_the_server_allows(past: Path, tmp_path: Path) -> None:
    """Its limit, `--query.timeout`, shows as 503 while it computes and as 422 while it reads."""
    (tmp_path / "data").symlink_to(past / "data")
    with serving(tmp_path, "--query.timeout=1ms") as (address, _):
        async with asking(address) as client:
            with pytest.raises(TimedOutError, match=r"timed out|deadline exceeded"):
                await client.usage(BEGIN - timedelta(days=2), BEGIN, timedelta(seconds=30))


@pytest.mark.prometheus
async def test_a_partial_answer_is_not_used_and_becomes_a_gap_after_an_hour(past: Path, tmp_path: Path) -> None:
    """A remote store that is away makes the server warn: what lacks containers would look like less usage."""
    (tmp_path / "data").symlink_to(past / "data")
    gaps: list[list[tuple[str, str]]] = []
    remote = "remote_read:\n- url: http://127.0.0.1:9/read\n  read_recent: true\n"
    with serving(tmp_path, config=remote) as (address, _):
        async with asking(address) as client:
            with pytest.raises(PartialError, match=r"the answer is not whole: .*remote"):
                await client.usage(BEGIN - timedelta(hours=1), BEGIN, STEP)
            source = source_of(client, days=0.1)
            for _ in range(2):
                with capture_logs() as logs, pytest.raises(PartialError):
                    await everything(source, web_cluster())
                gaps.append([(line["event"], line["end"]) for line in logs])
    assert gaps == [[("usage is a gap", (BEGIN - timedelta(hours=1)).isoformat())], []]


@pytest.mark.prometheus
async def test_a_server_without_these_series_has_no_steps(past: Path, tmp_path: Path) -> None:
    """Neither another cluster's label nor an empty server is an error, and neither gives usage of nothing."""
    (tmp_path / "data").symlink_to(past / "data")
    state = web_cluster()
    with serving(tmp_path) as (address, _):
        async with asking(address, matchers={"cluster": 'other"x\\'}) as client:
            assert await everything(source_of(client, days=0.1), state) == []
        async with asking(address, matchers={"image": "app:1"}) as client:
            assert await everything(source_of(client, days=0.1), state) != []


@asynccontextmanager
async def in_front(url: str) -> AsyncIterator[tuple[str, list[str]]]:
    """A gate that wants a token and a tenant; gives its address, and the tenants that it has seen."""
    tenants: list[str] = []

    async def pass_on(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer s3cret":
            return web.Response(status=401, text="who are you")
        tenants.append(request.headers.get("X-Scope-OrgID", ""))
        async with aiohttp.ClientSession() as session, session.get(f"{url}{request.path_qs}") as answer:
            return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")

    async def log_in(_: web.Request) -> web.Response:
        raise web.HTTPFound("/login")

    app = web.Application()
    app.router.add_get("/api/v1/query_range", pass_on)
    app.router.add_get("/sso/api/v1/query_range", log_in)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", tenants
    finally:
        await runner.cleanup()


@pytest.mark.prometheus
async def test_token_and_tenant_are_sent(url: str, tmp_path: Path) -> None:
    """The token is read for each query: one that was renewed counts. Without it the error names the setting."""
    token = tmp_path / "token"
    token.write_text("old\n")
    async with in_front(url) as (gate, tenants):
        async with asking(gate, token_file=str(token), tenant="shop") as client:
            with pytest.raises(PrometheusError, match=r"denied \(HTTP 401\).*prometheus\.token_file"):
                await client.usage(BEGIN - STEP, BEGIN, STEP)
            token.write_text("s3cret\n")
            assert (await client.usage(BEGIN - STEP, BEGIN, STEP))[0]
            token.unlink()
            with pytest.raises(PrometheusError, match=r"prometheus\.token_file .*No such file"):
                await client.usage(BEGIN - STEP, BEGIN, STEP)
        async with asking(f"{gate}/sso") as client:
            with pytest.raises(PrometheusError, match="redirect"):
                await client.usage(BEGIN - STEP, BEGIN, STEP)
        async with asking(f"{gate}/other") as client:
            with pytest.raises(PrometheusError, match=r"no Prometheus API at this address"):
                await client.usage(BEGIN - STEP, BEGIN, STEP)
    assert tenants == ["shop", "shop"]


@pytest.mark.prometheus
async def test_the_servers_certificate_is_verified(past: Path, tmp_path: Path) -> None:
    """With the authority's file it answers, without it the error says why not."""
    (tmp_path / "data").symlink_to(past / "data")
    known = authority(tmp_path / "authority")
    certificate, key = known.issue("prometheus", "IP:127.0.0.1")
    config = tmp_path / "web.yml"
    config.write_text(f"tls_server_config:\n  cert_file: {certificate}\n  key_file: {key}\n")
    with serving(tmp_path, f"--web.config.file={config}", authority=known.certificate) as (address, _):
        async with asking(address, ca_file=known.certificate) as client:
            assert (await client.usage(BEGIN - STEP, BEGIN, STEP))[0]
        async with asking(address) as client:
            with pytest.raises(PrometheusError, match=r"cannot be reached: .*certificate"):
                await client.usage(BEGIN - STEP, BEGIN, STEP)


async def test_an_address_without_a_server_is_named() -> None:
    """A port at which nothing listens, and a file of authorities that is none."""
    async with asking("http://127.0.0.1:9") as client:
        with pytest.raises(PrometheusError, match=r"http://127\.0\.0\.1:9 cannot be reached"):
            await client.usage(BEGIN - STEP, BEGIN, STEP)
    with pytest.raises(PrometheusError, match=r"prometheus\.ca_file /nowhere"):
        Prometheus(PrometheusSettings(url="https://127.0.0.1:9", ca_file="/nowhere"))


def test_settings_that_cannot_be_meant_are_refused() -> None:
    """An address without a scheme, a label's name with a sign, no address at all."""
    with pytest.raises(ValueError, match="give an address such as"):
        PrometheusSettings(url="prometheus:9090")
    with pytest.raises(ValueError, match="letters, digits and _ only"):
        PrometheusSettings(matchers={"a-b": "c"})
    with pytest.raises(ValueError, match=r"prometheus\.url is empty"):
        Settings(runtime=RuntimeSettings(cluster="c1"), usage_source="prometheus")


def samples(*values: float) -> dict[int, float]:
    """Values of steps from the first on."""
    return dict(enumerate(values))


def test_samples_that_cannot_be_are_dropped_and_counted() -> None:
    """Not a number, infinite, negative, or above twice what the node has: neither CPU nor memory of that pod counts."""
    state = web_cluster()
    cpu = {"shop/web-0": samples(0.1, math.nan, -1.0, 0.1, 0.1), "shop/web-1": samples(0.1, 0.1, 0.1, 0.1, 8.1)}
    held = {"shop/web-0": samples(*[1e8] * 5), "shop/web-1": samples(1e8, 1e8, 1e8, math.inf, 1e8)}
    found = list(steps_of(cpu, held, Pods(state), first=BEGIN, step=STEP, count=4))
    assert [(step.table[0], step.dropped) for step in found] == [(1, 1)] * 4


def test_a_pod_that_starts_has_memory_but_no_cpu() -> None:
    """Of one that the state does not know, the first step is its start."""
    state = web_cluster()
    cpu = {"shop/web-0": samples(0.1, 0.1, 0.1), f"shop/{GONE}": {1: 3.0, 2: 0.2}}
    held = {"shop/web-0": samples(1e8, 1e8, 1e8), f"shop/{GONE}": {1: 2e8, 2: 2e8}}
    first, second = steps_of(cpu, held, Pods(state), first=BEGIN, step=STEP, count=2)
    assert (first.table[0], first.table[2]) == (2, 100)
    assert (second.table[0], second.table[2]) == (2, 200)
    assert first.table[4:] == second.table[4:]


def test_names_show_the_controllers_of_pods_that_are_gone() -> None:
    """By the ways in which controllers name their pods; a name that no known workload gives belongs to none."""
    state = cluster(
        deployment("web"),
        deployment("web-api"),
        stateful("db", ["n1"]),
        daemon_set("agent", namespace="shop"),
    )
    pods = Pods(state)
    found = {
        name: pods.workload_of(f"shop/{name}")
        for name in ("web-6d5f8c9b7-x7k2p", "web-api-6d5f8c9b7-x7k2p", "db-7", "agent-x7k2p", "web-1", "other-x7k2p")
    }
    assert found == {
        "web-6d5f8c9b7-x7k2p": "Deployment/shop/web",
        "web-api-6d5f8c9b7-x7k2p": "Deployment/shop/web-api",
        "db-7": "StatefulSet/shop/db",
        "agent-x7k2p": "DaemonSet/shop/agent",
        "web-1": None,
        "other-x7k2p": None,
    }


def test_answers_of_other_programs_are_errors() -> None:
    """An error page, an empty answer, an answer to another kind of query."""
    for body, text in ((b"<html>", "not Prometheus'"), (b"", "it is empty"), (b'{"status":"success"}', "no matrix")):
        with pytest.raises(PrometheusError, match=text):
            samples_of(body, status=200, first=BEGIN, step=STEP)


def test_values_of_matchers_are_quoted() -> None:
    """A quote or a backslash in a label's value ends no string of the query."""
    assert r'cluster="a\"b\\c"' in queries(STEP, {"cluster": 'a"b\\c'})[0]
