"""`kinema status`: what it reads from the streams, and what it says."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.support.builders import NOW, node
from tests.support.plans import bare_plan, plan_node

from kinema_cli import broker
from kinema_cli.broker import AddressError, environment_of, settings_for
from kinema_cli.inputs import UsageError
from kinema_cli.output import Format
from kinema_cli.status.command import run_status, status_table
from kinema_cli.status.pipeline import Status, read_status
from kinema_cli.status.plans import read_plans
from kinema_core.events import (
    AnyBody,
    ClusterDelta,
    ClusterSnapshot,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    ForecastMade,
    FrozenMap,
    IterationSkipped,
    IterationStarted,
    NoPlanFound,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.runtime.bus import BusUnavailableError
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_sim.memory_bus import MemoryBus

PLAN = bare_plan(before=1.7, after=0.56, status="optimal", moves=12)
WEB = "Deployment/shop/web"
UNPROVEN = FrozenMap[int | float | str](cost_usd_per_hour=1.14, lower_bound_usd_per_hour=0.18)
STARTED = IterationStarted(mode="reschedule", version=7, reason="stable")


class Told:
    """A bus that was told events one second after the other."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.count = 0

    async def say(self, *bodies: AnyBody, iteration: str = "i1") -> Told:
        """Publish the bodies as events of an iteration; the n-th event has the id `e<n>`."""
        for body in bodies:
            self.count += 1
            now = NOW + timedelta(seconds=self.count)
            await self.bus.publish(
                origin(body, id_=f"e{self.count}", cluster="demo", iteration=iteration, now=now, state=0)
            )
        return self

    async def status(self, now: datetime = NOW + timedelta(seconds=60)) -> Status:
        """The status a minute after the first event."""
        return await read_status(self.bus, cluster="demo", now=now)


def shown(status: Status) -> str:
    """What a wide terminal would show."""
    console = Console(width=160)
    with console.capture() as capture:
        console.print(status_table(status))
    return capture.get()


def step(name: str, kind: str = "boot") -> Step:
    """A step on the node of its name."""
    assert kind in ("boot", "delete")
    return Step(id=name, kind="boot" if kind == "boot" else "delete", target=name)


def intended(name: str, attempt: int = 1) -> StepStarted:
    """The step is about to be tried."""
    return StepStarted(plan="e3", step=step(name), fencing=1, deadline=NOW, attempt=attempt)


def done(name: str) -> StepSucceeded:
    """The step was made."""
    return StepSucceeded(plan="e3", step=name, fencing=1, outcome="done")


def failed(name: str) -> StepFailed:
    """The step was not made and will be repeated."""
    return StepFailed(plan="e3", step=name, fencing=1, reason="stock-out", detail="none left", retry=True)


async def test_nothing_said_is_empty() -> None:
    """On silent streams the status is empty, not an error."""
    found = await Told().status()
    assert found.empty
    assert not found.pause.paused


@pytest.mark.parametrize(
    "end",
    [
        ExecutionAborted(plan="e3", fencing=1, reason="operator", detail="ada: too slow"),
        ExecutionCompleted(plan="e3", fencing=1),
        None,
    ],
)
async def test_a_plan_has_the_phase_that_kinema_plans_prints(end: ExecutionAborted | ExecutionCompleted | None) -> None:
    """Both commands name the same phase and reason of the newest plan, also after its end."""
    told = await Told().say(ClusterSnapshot(version=7, objects=()), STARTED, PLAN, PlanAccepted(plan="e3", version=7))
    if end is not None:
        await told.say(end)
    found = (await told.status()).plan
    (line,) = await read_plans(told.bus, 1)
    assert found is not None
    assert (found.phase, found.reason) == (line.phase, line.why)


async def test_state_is_the_newest_version_with_its_age() -> None:
    """A delta after a snapshot counts, a snapshot after a delta does too."""
    told = await Told().say(ClusterSnapshot(version=1, objects=(node("n1"),)), ClusterDelta(version=2))
    found = (await told.status()).state
    assert found is not None
    assert (found.version, found.age_seconds) == (2, 58)
    await told.say(ClusterSnapshot(version=9, objects=()))
    again = (await told.status()).state
    assert again is not None
    assert again.version == 9


@pytest.mark.parametrize(
    ("bodies", "stage", "outcome"),
    [
        ((), "forecasting", ""),
        ((ForecastMade(version=7, forecasts=()),), "optimizing", ""),
        ((PLAN,), "deciding", ""),
        ((PLAN, PlanAccepted(plan="e2", version=7)), "executing", ""),
        ((NoPlanFound(mode="reschedule", version=7, reason="nothing-better"),), "over", "nothing better was found"),
        (
            (NoPlanFound(mode="reschedule", version=7, reason="nothing-better", figures=UNPROVEN),),
            "over",
            "nothing better was found; at most $0.96/h (84%) more could be saved",
        ),
        (
            (PLAN, PlanRejected(plan="e2", version=7, rule="saving", reason="too little", would_change="more")),
            "over",
            "too little",
        ),
        (
            (
                PLAN,
                PlanApprovalRequested(
                    plan="e2", version=7, rule="approval", reason="asks first", would_change="approve"
                ),
            ),
            "awaiting-approval",
            "asks first",
        ),
        (
            (PLAN, PlanAccepted(plan="e2", version=7), ExecutionCompleted(plan="e2", fencing=1)),
            "over",
            "plan Completed",
        ),
        (
            (ExecutionCompleted(plan="e2", fencing=1, figures=FrozenMap({"nodes_kept": 2})),),
            "over",
            "plan PartlyCompleted: 2 nodes kept",
        ),
        (
            (ExecutionAborted(plan="e2", fencing=1, reason="deadline", detail="boot took too long"),),
            "over",
            "deadline: boot took too long",
        ),
    ],
)
async def test_iteration_is_where_its_last_event_says(bodies: tuple[AnyBody, ...], stage: str, outcome: str) -> None:
    """The stage follows from the newest event of the iteration."""
    told = await Told().say(STARTED, *bodies)
    found = (await told.status()).iteration
    assert found is not None
    assert (found.id, found.stage, found.outcome) == ("i1", stage, outcome)


async def test_a_plan_in_part_says_what_the_cluster_costs_after_it() -> None:
    """The node that was kept is paid for on top of what was planned."""
    kept = plan_node("n2", "delete", usd=0.2)
    told = await Told().say(STARTED, msgspec.structs.replace(PLAN, nodes=(kept,)), PlanAccepted(plan="e2", version=7))
    await told.say(ExecutionCompleted(plan="e2", fencing=1, figures=FrozenMap({"nodes_kept": 1})))
    found = (await told.status()).iteration
    assert found is not None
    assert found.outcome == (
        "plan PartlyCompleted: 1 node kept; costs $0.76/h after it, $1.70/h before ($0.56/h planned)"
    )


async def test_events_of_an_earlier_iteration_do_not_count() -> None:
    """A new iteration begins at the beginning, whatever the one before came to; an autoscale one awaits no forecast."""
    told = await Told().say(STARTED, NoPlanFound(mode="reschedule", version=7, reason="nothing-better"))
    await told.say(IterationStarted(mode="autoscale", version=9, reason="pending pods"), iteration="i2")
    found = (await told.status()).iteration
    assert found is not None
    assert (found.id, found.stage) == ("i2", "optimizing")


async def test_skip_is_shown_until_an_iteration_starts() -> None:
    """Why nothing starts is of interest only while nothing starts."""
    told = await Told().say(IterationSkipped(version=3, reason="settling", figures=FrozenMap({"stable_seconds": 4})))
    waiting = (await told.status()).skipped
    assert waiting is not None
    assert waiting.reason == "settling"
    await told.say(STARTED)
    assert (await told.status()).skipped is None


OCCUPIED = IterationSkipped(version=8, reason="disrupted-node-occupied", figures=FrozenMap({"node": "node-0"}))
RUNNING = IterationSkipped(version=8, reason="iteration-running", figures=FrozenMap({"phase": "planning"}))


async def test_what_was_told_before_an_iteration_went_on_is_not_shown() -> None:
    """A step after it has overtaken it, and so has the verdict; that an iteration runs is no news beside it."""
    told = await Told().say(STARTED, RUNNING)
    assert (await told.status()).skipped is None
    await told.say(OCCUPIED)
    assert (await told.status()).skipped is not None
    await told.say(PLAN, PlanAccepted(plan="e3", version=7))
    assert (await told.status()).skipped is None
    await told.say(OCCUPIED)
    assert (await told.status()).skipped is not None
    await told.say(intended("a"))
    assert (await told.status()).skipped is None


async def test_what_holds_back_the_next_iteration_is_shown_with_its_age() -> None:
    """Once an iteration is over, the observer's last word counts, and how old it is stands beside it."""
    told = await Told().say(STARTED, OCCUPIED, NoPlanFound(mode="reschedule", version=7, reason="nothing-better"))
    text = shown(await told.status(NOW + timedelta(seconds=302)))
    assert "a node that is to be deleted still runs pods (node node-0); reported 5min ago" in text


async def test_refused_plan_says_rule_reason_and_what_would_change_it() -> None:
    """The verdict on the newest plan is shown with its figures; one on an older plan is not."""
    old = PlanRejected(plan="e2", version=7, rule="saving", reason="saves 3 %", would_change="a saving of 10 %")
    told = await Told().say(STARTED, PLAN, old)
    found = (await told.status()).plan
    assert found is not None
    assert (found.phase, found.rule, found.reason, found.would_change) == (
        "Rejected",
        "saving",
        "saves 3 %",
        "a saving of 10 %",
    )
    await told.say(PLAN)
    newer = (await told.status()).plan
    assert newer is not None
    assert (newer.id, newer.phase) == ("e4", "Pending")


@pytest.mark.parametrize(
    ("rule", "figures", "since", "outlived"),
    [
        ("executing", {"executing": "e3"}, None, ""),
        ("executing", {"executing": "e3"}, ExecutionCompleted(plan="e3", fencing=1), "it has ended since"),
        ("paused", {"by": "ann"}, ExecutionPaused(by="ann"), ""),
        ("paused", {"by": "ann"}, ExecutionResumed(by="ann"), "resumed since"),
        ("cooldown", {"passed_seconds": 5.0, "cooldown_seconds": 60.0}, None, "the rest is over since"),
        ("cooldown", {"passed_seconds": 5.0, "cooldown_seconds": 600.0}, None, ""),
        ("saving", {}, ExecutionCompleted(plan="e3", fencing=1), ""),
    ],
)
async def test_a_rejection_that_has_outlived_its_cause_says_so(
    rule: str, figures: dict[str, float | str], since: AnyBody | None, outlived: str
) -> None:
    """Plans are not proposed again only because the cause is gone: the last rejection stays, marked as past."""
    told = await Told().say(ClusterSnapshot(version=7, objects=()), STARTED, PLAN, PlanAccepted(plan="e3", version=7))
    await told.say(STARTED, PLAN, iteration="i2")
    refused = PlanRejected(
        plan="e6", version=7, rule=rule, reason="not now", would_change="later", figures=FrozenMap(figures)
    )
    await told.say(refused, iteration="i2")
    if since is not None:
        await told.say(since)
    status = await told.status(NOW + timedelta(seconds=90))
    assert status.plan is not None
    assert (status.plan.phase, status.plan.outlived) == ("Rejected", outlived)
    text = shown(status)
    assert "of plan e3, " in text
    assert (f"no longer so: {outlived}" in text) == bool(outlived)
    assert ("what would change it: later" in text) == (not outlived)
    assert (f"not now; {outlived}" in text) == bool(outlived)


async def test_steps_are_counted_by_their_latest_attempt() -> None:
    """A failed step that is tried again runs; one that was done counts once; steps of an older plan count nowhere."""
    told = await Told().say(STARTED, done("old"), PLAN, PlanAccepted(plan="e3", version=7))
    await told.say(intended("a"), done("a"), intended("b"), failed("b"), intended("c"), failed("c"), intended("c", 2))
    found = (await told.status()).execution
    assert found is not None
    assert (found.phase, found.done) == ("Running", 1)
    assert [item.id for item in found.running] == ["c"]
    assert [item.step for item in found.failed] == ["b"]


async def test_after_the_end_nothing_is_tried_again() -> None:
    """A step that failed last waits for another try only as long as its plan goes on."""
    told = await Told().say(ClusterSnapshot(version=7, objects=()), STARTED, PLAN, PlanAccepted(plan="e3", version=7))
    await told.say(intended("a"), failed("a"))
    assert "failed: a: stock-out: none left; will be repeated" in shown(await told.status())
    await told.say(ExecutionCompleted(plan="e3", fencing=1))
    text = shown(await told.status())
    assert "failed: a: stock-out: none left" in text
    assert "tried again" not in text


async def test_restarts_beside_moves_are_those_in_place() -> None:
    """Evictions restart pods too: what a roll replaces on its own node is told as that."""
    accepted = PlanAccepted(plan="e2", version=7, figures=FrozenMap({"moves": 15, "restarts": 0}))
    told = await Told().say(STARTED, PLAN, accepted)
    assert "predicted (moves 15, restarts in place 0)" in shown(await told.status())


async def test_aborted_execution_names_what_is_left() -> None:
    """An abort is shown with its reason and with what could not be taken back; nothing runs any more."""
    told = await Told().say(STARTED, PLAN, PlanAccepted(plan="e2", version=7), intended("a"))
    await told.say(ExecutionAborted(plan="e2", fencing=1, reason="deadline", detail="boot", leftovers=("label on n1",)))
    found = (await told.status()).execution
    assert found is not None
    assert (found.phase, found.running, found.leftovers) == ("Aborted", (), ("label on n1",))


async def test_what_was_left_alone_did_not_fail() -> None:
    """A node that somebody cordoned and a workload without room were decided on, and are said as such."""
    told = await Told().say(ClusterSnapshot(version=7, objects=()), STARTED, PLAN, PlanAccepted(plan="e3", version=7))
    await told.say(
        intended("a"),
        StepFailed(
            plan="e3", step="keep/n1", fencing=1, reason="off-limits", detail="another client cordoned it", retry=False
        ),
        StepFailed(plan="e3", step=f"skip/{WEB}", fencing=1, reason="no-room", detail="n2 is full", retry=False),
        failed("a"),
    )
    status = await told.status()
    assert status.execution is not None
    assert [item.step for item in status.execution.failed] == ["a"]
    assert [item.what for item in status.execution.skipped] == ["n1", WEB]
    text = shown(status)
    assert "1 failed, 2 skipped" in text
    assert "skipped: n1: off-limits: another client cordoned it" in text
    assert f"skipped: {WEB}: no-room: n2 is full" in text
    assert "failed: keep" not in text


async def test_figures_are_those_of_the_plan() -> None:
    """A single node that is deleted on the observer's request after a plan has an end of its own."""
    told = await Told().say(STARTED, PLAN, PlanAccepted(plan="e2", version=7), intended("a"))
    await told.say(ExecutionCompleted(plan="e2", fencing=1, figures=FrozenMap({"workloads_skipped": 1})))
    await told.say(ExecutionCompleted(plan="request", fencing=1, figures=FrozenMap({"workloads_skipped": 0})))
    found = (await told.status()).execution
    assert found is not None
    assert (found.phase, dict(found.figures)) == ("Completed", {"workloads_skipped": 1})


async def test_a_plan_from_a_file_does_not_hide_what_the_cycle_waits_for() -> None:
    """It was held, approved and is executed after the cycle's plan was held: that waits for approval still."""
    told = await Told().say(STARTED, ForecastMade(version=7, forecasts=()), PLAN, held("e3"))
    await told.say(PLAN, held("e5"), PlanAccepted(plan="e5", version=7), iteration="file")
    status = await told.status()
    assert status.iteration is not None
    assert (status.iteration.id, status.iteration.stage) == ("i1", "awaiting-approval")


def held(plan: str) -> PlanApprovalRequested:
    """The plan waits for approval."""
    return PlanApprovalRequested(plan=plan, version=7, rule="approval", reason="asked for", would_change="an approval")


async def test_codes_and_names_of_fields_are_words_with_units() -> None:
    """Pods that nothing holds, and what a plan is predicted to cost."""
    figures = FrozenMap[int | float | str](pods_unplaced=2, unplaced="resource-cpu: 2")
    none = NoPlanFound(mode="autoscale", version=7, reason="nothing-holds-pending", figures=figures)
    said = shown(await (await Told().say(STARTED, none)).status())
    assert "2 pending pods fit no node and no machine on sale; see `kinema explain pod/NAME`" in said
    costs = FrozenMap[int | float | str](cost_now_usd_per_hour=0.47, cost_new_usd_per_hour=0.43)
    told = await Told().say(STARTED, PLAN, PlanAccepted(plan="e2", version=7, figures=costs))
    assert "predicted (new cost $0.43/h, cost now $0.47/h)" in shown(await told.status())


async def test_pause_holds_until_resumed() -> None:
    """The later of the two words of the operator counts."""
    told = await Told().say(ExecutionPaused(by="kim", reason="release"))
    assert (await told.status()).pause.paused
    await told.say(ExecutionResumed(by="kim"))
    assert not (await told.status()).pause.paused


async def test_damaged_newest_event_is_named() -> None:
    """What cannot be read is said, not passed over."""
    told = await Told().say(STARTED, PLAN)
    told.bus.damage("LOG", 2)
    found = await told.status()
    assert found.damaged == ("plan-proposed",)
    assert found.plan is None


async def test_table_says_it_in_words() -> None:
    """Pause, plan, verdict, steps and failures all stand in the table."""
    told = await Told().say(ClusterSnapshot(version=7, objects=()), STARTED, PLAN)
    await told.say(
        PlanAccepted(plan="e3", version=7), intended("a"), intended("b"), failed("b"), ExecutionPaused(by="kim")
    )
    text = shown(await told.status())
    for said in ("version 7", "by kim", "$1.70/h → $0.56/h", "Running", "running: boot a", "failed: b: stock-out"):
        assert said in text


@pytest.mark.parametrize(
    ("address", "url", "user", "password"),
    [
        ("nats://op:p%40ss@host:4222", "nats://host:4222", "op", "p@ss"),
        ("host:4222", "nats://host:4222", "", ""),
        ("nats://op:pw@a:1,nats://b:2", "nats://a:1,nats://b:2", "op", "pw"),
        ("tls://op:pw@host", "tls://host", "op", "pw"),
        ("tls://a,tls://b:4333", "tls://a,tls://b:4333", "", ""),
    ],
)
def test_address_is_taken_apart(address: str, url: str, user: str, password: str) -> None:
    """User and password leave the address, so that no log or error shows them."""
    settings = settings_for(address, "demo")
    assert (settings.nats_url, settings.nats_user, settings.nats_password) == (url, user, password)


def test_the_environment_gives_what_the_address_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """User, files and server name come from variables; a password in the address takes the place of its file."""
    given = {"USER": "op", "PASSWORD_FILE": "pw", "CREDS_FILE": "/a.creds", "CA_FILE": "/ca.pem", "SERVER_NAME": "b"}
    for name, value in given.items():
        monkeypatch.setenv(f"KINEMA_NATS_{name}", value)
    settings = settings_for("tls://host", "demo")
    assert (settings.nats_user, settings.nats_password_file) == ("op", str(Path("pw").absolute()))
    assert (settings.nats_creds_file, settings.nats_ca_file, settings.nats_server_name) == ("/a.creds", "/ca.pem", "b")
    named = settings_for("tls://me@host", "demo")
    assert (named.nats_user, named.nats_password_file) == ("me", str(Path("pw").absolute()))
    assert settings_for("tls://me:secret@host", "demo").nats_password_file == ""
    assert environment_of(settings)["KINEMA_NATS"] == "tls://op@host"
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)
    assert settings_for(environment_of(settings)["KINEMA_NATS"], "demo") == settings
    monkeypatch.setenv("KINEMA_NATS_SEED_FILE", "/a.seed")
    with pytest.raises(UsageError, match="KINEMA_NATS_SEED_FILE and KINEMA_NATS_CREDS_FILE are both set"):
        settings_for("tls://host", "demo")


@pytest.mark.parametrize(("address", "cluster"), [("http://host", "demo"), ("nats://", "demo")])
def test_bad_address_is_refused(address: str, cluster: str) -> None:
    """What is no address of a broker is said in one line, without repeating a password."""
    with pytest.raises(AddressError, match="--nats is"):
        settings_for(address, cluster)


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """2 for a bad address, 1 for a broker that cannot be read, 3 when nothing was said: each with one line."""

    async def unreachable(_: RuntimeSettings) -> MemoryBus:
        raise BusUnavailableError("no broker at nats://host")

    async def silent(_: RuntimeSettings) -> MemoryBus:
        return MemoryBus()

    assert run_status(nats="ftp://x", cluster="demo", output=Format.TABLE) == 2
    monkeypatch.setattr(broker, "connect", unreachable)
    assert run_status(nats="host", cluster="demo", output=Format.TABLE) == 1
    monkeypatch.setattr(broker, "connect", silent)
    assert run_status(nats="host", cluster="demo", output=Format.TABLE) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("error: ") == 3
