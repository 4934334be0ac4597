"""`kinema recommend` and `kinema forecast`: the newest judgements, as tables and as patches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.support.builders import MIB, NOW, cluster, deployed, node

from kinema_cli.output import Format, show
from kinema_cli.recommend.command import Form, run_forecast, run_recommend
from kinema_cli.recommend.judgements import Judgement, component, named, read_judgements
from kinema_cli.recommend.table import forecast_tables, recommendations_table
from kinema_core.events import (
    AnyBody,
    ContainerRequests,
    ForecastMade,
    ForecastRefused,
    FrozenMap,
    UsageBand,
    Workload,
    WorkloadJudged,
)
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_sim.memory_bus import MemoryBus

WEB = "Deployment/shop/web"
BAND = UsageBand(
    resource="cpu",
    need=120,
    quantile=0.95,
    models=("seasonal-median", "harmonic"),
    offsets=(14, -3),
    horizon_seconds=86_400,
    days=7.0,
    steps=2016,
    coverage=0.99,
    above=0.047,
    loss=2.0,
    vpa_loss=4.0,
)
JUDGED = WorkloadJudged(
    workload=WEB,
    pods=3,
    requests=FrozenMap(cpu=400, memory=512 * MIB),
    recommended=FrozenMap(cpu=120, memory=512 * MIB),
    bands=(BAND,),
    kept=FrozenMap({"memory": "young"}),
)


def judgement(found: WorkloadJudged = JUDGED) -> Judgement:
    """The judgement of now."""
    return Judgement(judged=NOW, found=found)


async def test_the_newest_judgement_of_each_workload_counts() -> None:
    """An iteration judges a few: of the others the one before holds."""
    bus = MemoryBus()
    api = replace(JUDGED, workload="Deployment/shop/api")
    later = replace(JUDGED, recommended=FrozenMap(cpu=200, memory=512 * MIB))
    for n, judged in enumerate([(JUDGED, api), (later,), ()]):
        body = ForecastMade(version=n + 1, forecasts=(), judged=judged)
        await bus.publish(origin(body, id_=f"f{n}", cluster="c1", iteration=f"it-{n}", now=NOW + timedelta(hours=n)))
    found, _ = await read_judgements(bus)
    assert list(found) == ["Deployment/shop/api", WEB]
    assert found[WEB].found.recommended["cpu"] == 200
    assert found[WEB].judged == NOW + timedelta(hours=1)


def test_a_workload_without_a_forecast_is_told_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest iteration counts: the workload may have been judged once and be turned off now."""
    bodies = [
        ForecastMade(
            version=n + 1,
            forecasts=(),
            refused=(ForecastRefused(workload="Deployment/shop/api", reason=reason),),
            judged=(JUDGED,),
        )
        for n, reason in enumerate(["no-data", "turned-off"])
    ]
    on_memory(monkeypatch, *bodies)
    run = partial(run_forecast, nats="nats://127.0.0.1:1", cluster="c1", html=None, output=Format.TABLE)
    assert run(workload="api") == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "Deployment/shop/api has no forecast: turned-off" in said
    assert run(workload="gone") == 3
    assert "has no forecast" not in capsys.readouterr().err


def on_memory(monkeypatch: pytest.MonkeyPatch, *bodies: AnyBody) -> None:
    """Let commands read a bus with these events instead of a broker."""

    async def read(_: RuntimeSettings, ask: Callable[[MemoryBus], Awaitable[object]]) -> object:
        bus = MemoryBus()
        for n, body in enumerate(bodies):
            await bus.publish(origin(body, id_=f"e{n}", cluster="c1", iteration=f"it-{n}", now=NOW))
        return await ask(bus)

    monkeypatch.setattr("kinema_cli.broker.on_bus", read)


@pytest.mark.parametrize(("judged", "code"), [((JUDGED,), 0), ((), 3)])
def test_refusals_are_listed_with_their_reasons(
    judged: tuple[WorkloadJudged, ...], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside recommendations or alone; that nothing is changed by default is no news of a workload."""
    refused = (
        ForecastRefused(workload="Deployment/shop/api", reason="few-samples", figures=FrozenMap(steps=3, needed=8)),
        ForecastRefused(workload=WEB, reason="recommend-only"),
    )
    on_memory(monkeypatch, ForecastMade(version=1, forecasts=(), refused=refused, judged=judged))
    given = partial(run_recommend, nats="nats://127.0.0.1:1", cluster="c1", every=False)
    assert given(output=Form.TABLE) == code
    said = capsys.readouterr().out
    assert "Deployment/shop/api few-samples needed 8, steps 3" in " ".join(said.split())
    assert "recommend-only" not in said
    assert given(output=Form.JSON) == code
    [one] = msgspec.json.decode(capsys.readouterr().out)["refused"]
    assert one == {"workload": "Deployment/shop/api", "reason": "few-samples", "figures": {"steps": 3, "needed": 8}}


def test_a_cluster_of_which_there_is_no_event_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name may be wrong: to wait for usage would not help."""
    on_memory(monkeypatch)
    assert run_recommend(nats="nats://127.0.0.1:1", cluster="prdo", every=False, output=Form.TABLE) == 3
    said = capsys.readouterr().err
    assert run_forecast(workload="web", nats="nats://127.0.0.1:1", cluster="prdo", html=None, output=Format.TABLE) == 3
    assert capsys.readouterr().err == said
    assert 'no events found for cluster "prdo"' in said
    assert "check --cluster-name" in said


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (WEB, [WEB]),
        ("deployment/shop/web", [WEB]),
        ("shop/web", [WEB]),
        ("web", [WEB, "StatefulSet/db/web"]),
        ("eb", []),
    ],
)
def test_a_workload_is_named_by_its_key_or_the_end_of_it(text: str, keys: list[str]) -> None:
    """Whole parts between slashes count, in any case; what means several is left to the caller."""
    assert named({WEB: judgement(), "StatefulSet/db/web": judgement()}, text) == keys


def test_the_table_shows_requests_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each workload with the change in percent, and why a request stays."""
    show(recommendations_table([judgement()], 1))
    line = capsys.readouterr().out.splitlines()[-2]
    assert line.split() == [WEB, "3", "400m", "→", "120m", "(-70%)", "512Mi", "memory", "young"]
    show(recommendations_table([], 4))
    assert "4 workloads judged: all requests are right" in capsys.readouterr().out


def test_a_forecast_shows_models_risk_and_calibration() -> None:
    """Each model with its offset, what is allowed and what was above, and the loss beside a histogram's."""
    screen = Console(width=200)
    with screen.capture() as captured:
        screen.print(*forecast_tables(judgement()))
    text = captured.get()
    for part in ("seasonal-median + 14m, harmonic - 3m", "risk of 5%", "4.7% of the steps", "7 days, 99%", "50% of a"):
        assert part in text


def test_patches_share_a_pods_requests_by_its_containers() -> None:
    """Containers of 300m and 100m get 90m and 30m of 120m; what does not change is in no patch."""
    top, *rest = deployed("web", ["n1"], cpu=400, memory=512)
    assert isinstance(top, Workload)
    parts = (
        ContainerRequests(name="main", requests=FrozenMap(cpu=300, memory=512 * MIB)),
        ContainerRequests(name="log", requests=FrozenMap(cpu=100)),
        ContainerRequests(name="migrate", requests=FrozenMap(cpu=100), init=True),
    )
    state = cluster(node("n1"), replace(top, template_containers=parts), *rest)
    whole, left_out = component([judgement(), judgement(replace(JUDGED, workload="Job/shop/once"))], state)
    assert left_out == ["Job/shop/once"]
    assert (whole["kind"], len(whole["patches"])) == ("Component", 1)
    assert whole["patches"][0]["target"]["name"] == "web"
    patch = msgspec.yaml.decode(whole["patches"][0]["patch"])
    assert patch["spec"]["template"]["spec"]["containers"] == [
        {"name": "main", "resources": {"requests": {"cpu": "90m"}}},
        {"name": "log", "resources": {"requests": {"cpu": "30m"}}},
    ]


@pytest.mark.parametrize(
    ("recommended", "ceiling", "written"),
    [
        (256 * MIB, None, ["192Mi", "64Mi"]),
        (256 * MIB + 1, None, ["193Mi", "65Mi"]),
        (256 * MIB + 1, 257 * MIB, ["201326593", "67108865"]),
    ],
)
def test_memory_is_patched_in_whole_mebibytes(recommended: int, ceiling: int | None, written: list[str]) -> None:
    """Rounded up, as owners write it; by the byte where a limit leaves no room for that."""
    top, *rest = deployed("web", ["n1"], cpu=400, memory=512)
    assert isinstance(top, Workload)
    parts = tuple(
        ContainerRequests(name=name, requests=FrozenMap(memory=part * MIB)) for name, part in (("a", 384), ("b", 128))
    )
    limits = FrozenMap({} if ceiling is None else {"memory": ceiling})
    state = cluster(node("n1"), replace(top, template_containers=parts, template_ceiling=limits), *rest)
    whole, _ = component([judgement(replace(JUDGED, recommended=FrozenMap(memory=recommended)))], state)
    patch = msgspec.yaml.decode(whole["patches"][0]["patch"])
    containers = patch["spec"]["template"]["spec"]["containers"]
    assert [one["resources"]["requests"]["memory"] for one in containers] == written
