"""`kinema demo`: all services on this machine, with a simulated cluster after a traffic peak."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from rich.live import Live
from rich.table import Table

from kinema_cli.inputs import InputError, fail
from kinema_cli.local.demo_summary import DemoResult, figures, print_summary, summarize
from kinema_cli.local.directory import check_own, clear_own, exclusive_lock
from kinema_cli.local.nats_server import ServerError
from kinema_cli.local.pipeline import LocalPipeline, PipelineOptions
from kinema_cli.local.processes import Child, ChildError, Supervisor, first_line, stop_event
from kinema_cli.local.settings import UNATTENDED, layered
from kinema_cli.local.simulator import Simulator, SimulatorError, View
from kinema_cli.output import Format, console, could_be_saved, counted, print_error, print_note, print_value
from kinema_cli.replay.recording import read, record_to
from kinema_cli.report.from_run import HistoryError, RunError
from kinema_core.events import (
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ForecastMade,
    IterationSkipped,
    IterationStarted,
    NoPlanFound,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.runtime import starter
from kinema_core.runtime.bus import Bus, BusError, Stored
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings

T = TypeVar("T")
CLUSTER: Final = "demo"
SIMULATOR_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 120.0
"""Cluster seconds without changes before an iteration: eight readings of usage, where a forecast needs five."""
SOLVE_SECONDS: Final = 20.0


@dataclass
class Progress:
    """A fold over LOG. Holds every accepted plan with what became of it."""

    iteration: str = ""
    mode: str = ""
    waiting: str = "for the first observation"
    forecast: str = ""
    proposals: dict[str, Plan] = field(default_factory=dict)
    accepted: dict[str, Plan] = field(default_factory=dict)
    ended: dict[str, ExecutionCompleted | ExecutionAborted] = field(default_factory=dict)
    intended: dict[str, StepStarted] = field(default_factory=dict)
    done: dict[str, StepSucceeded] = field(default_factory=dict)
    failed: list[StepFailed] = field(default_factory=list)
    settled: bool = False
    """True when every accepted plan has ended, and the pipeline has found nothing more to do since."""

    def fold(self, event: Event) -> None:
        """Take one LOG event into account."""
        match event.body:
            case IterationStarted(mode=mode):
                self.iteration, self.mode, self.waiting = event.iteration, mode, "for a forecast"
            case IterationSkipped(reason=reason):
                self.waiting = f"before an iteration: {reason}"
            case ForecastMade(forecasts=made, refused=refused):
                self.forecast = f"{len(made)} workloads, {len(refused)} without"
                self.waiting = "for a plan"
            case Plan():
                self.proposals[event.id] = event.body
                self.waiting = "for a decision"
            case PlanAccepted(plan=plan):
                if plan in self.proposals:
                    self.accepted[plan] = self.proposals[plan]
                self.waiting, self.settled = "for the execution", False
            case PlanRejected() | NoPlanFound() | PlanApprovalRequested():
                self.settled = bool(self.ended) and self.accepted.keys() <= self.ended.keys()
                self.waiting = "for the next iteration"
            case _:
                self._fold_execution(event)

    def _fold_execution(self, event: Event) -> None:
        match event.body:
            case StepStarted(step=step):
                self.intended[step.id] = event.body
            case StepSucceeded(step=step_id):
                self.done[step_id] = event.body
            case StepFailed():
                self.failed.append(event.body)
            case ExecutionCompleted(plan=plan) | ExecutionAborted(plan=plan):
                self.ended[plan] = event.body
                self.waiting = "for the next iteration"
            case _:
                pass

    def table(self, *, seconds: float, view: View) -> Table:
        """Return the live table."""
        table = Table(title="Kinema demo", title_justify="left", show_header=False, min_width=64)
        table.add_column("what", style="bold")
        table.add_column("now")
        table.add_row("elapsed", f"{seconds:.0f} s")
        table.add_row("cluster", f"{len(view.nodes)} nodes, {view.usd_per_hour:.2f} USD/h, {view.pending} pods pending")
        table.add_row("iteration", f"{self.iteration} {self.mode}".strip() or "none yet")
        table.add_row("waiting", self.waiting)
        if self.forecast:
            table.add_row("forecast", self.forecast)
        if self.proposals:
            plan = list(self.proposals.values())[-1]
            cost = f"{plan.cost.before:.2f} → {plan.cost.after:.2f} {plan.cost.unit}"
            left = could_be_saved(plan.cost.after, plan.cost.lower_bound, plan.cost.unit)
            table.add_row("plan", f"{cost}, {counted(plan.moves, 'move')}; {left}")
        if self.intended:
            active = [item.step for key, item in self.intended.items() if key not in self.done]
            doing = ", ".join(f"{step.kind} {step.target}" for step in active[:3])
            table.add_row("steps", f"{len(self.done)} done, {len(self.failed)} failed, {len(active)} running")
            table.add_row("", doing[:90] or "-")
        return table


class DemoError(Exception):
    """The demo cannot continue; the text names what failed and its log."""


class InterruptedDemoError(Exception):
    """SIGINT or SIGTERM came."""


@dataclass(frozen=True)
class DemoOptions:
    """Options of the demo. `speed` is cluster seconds per second; `timeout` real seconds for the whole run."""

    out: Path
    seed: int = 0
    speed: float = 10.0
    timeout: float = 170.0
    scenario: str = "after-peak"
    output: Format = Format.TABLE
    simulator: str = ""
    """Address of a simulated cluster that services act on already; empty: start it and them."""
    nats: RuntimeSettings | None = None
    """Their broker."""

    @property
    def recording(self) -> Path:
        """File of the recording."""
        return self.out / "recording.jsonl.zst"

    @property
    def history(self) -> Path:
        """File of what happened in the simulated cluster."""
        return self.out / "history.json"


class SimulatorAddress(msgspec.Struct, frozen=True):
    """Address that the simulator prints when it is ready."""

    url: str
    port: int


def service_settings() -> dict[str, dict[str, object]]:
    """Return the demo's settings of services that differ from the defaults."""
    own = {
        # It takes minutes: usage of a day is no part of it.
        "observer": {"stabilization_window_seconds": SETTLE_SECONDS, "usage_step_seconds": 15},
        "predictor": {"max_request_change_fraction": "0.10", "least_age_seconds": 60},
        "optimizer": {"planning": {"time_limit_seconds": SOLVE_SECONDS}},
    }
    return layered(UNATTENDED, own)


def run_demo(options: DemoOptions) -> int:
    """Run it; returns 0 when a plan was executed without a disruption violation, else 1."""
    for name, value in (("--speed", options.speed), ("--timeout", options.timeout)):
        if not (math.isfinite(value) and value > 0):
            print_error(f"{name} {value:g}: give a number above 0")
            return 2
    try:
        check_own(options.out)
        with exclusive_lock(options.out):
            clear_own(options.out)
            result = asyncio.run(_attached(options, options.nats) if options.nats is not None else _demo(options))
    except InterruptedDemoError:
        print_note("interrupted; all started processes have ended")
        return 130
    except InputError as error:
        return fail(error)
    except (DemoError, ChildError, ServerError, BusError, SimulatorError, RunError, HistoryError) as error:
        print_error(f"demo failed: {error}")
        return 1
    if options.output is Format.TABLE:
        print_summary(result, options.out)
    else:
        print_value(figures(result), options.output)
    return 0 if result.good else 1


async def _demo(options: DemoOptions) -> DemoResult:
    began = time.monotonic()
    print_note("starting the simulated cluster; it simulates a traffic peak first …")
    child = simulator_child(options)
    pipeline: LocalPipeline | None = None
    stopping = stop_event()
    try:
        await child.start(read_output=True)
        line = await _unless(stopping, first_line(child, SIMULATOR_SECONDS))
        address = msgspec.json.decode(line, type=SimulatorAddress)
        simulator = Simulator(address.url)
        pipeline = await _unless(stopping, start_pipeline(options, simulator))
        print_note("five services and the broker are running; planning starts when usage is known …")
        try:
            await _follow(options, pipeline.bus, simulator, pipeline.supervisor, began=began, stopping=stopping)
        finally:
            # Keep the record of a failed demo too.
            await _keep(options, pipeline.bus, simulator, CLUSTER)
    finally:
        if pipeline is not None:
            await pipeline.stop()
        await child.stop()
    return _summary(options, began)


async def _attached(options: DemoOptions, nats: RuntimeSettings) -> DemoResult:
    """Follow services that were started by others, as in docker-compose.yml."""
    began, simulator = time.monotonic(), Simulator(options.simulator)
    bus = await connect(nats)
    try:
        try:
            await _follow(options, bus, simulator, None, began=began, stopping=stop_event())
        finally:
            await _keep(options, bus, simulator, nats.cluster)
    finally:
        await bus.close()
    return _summary(options, began)


async def _keep(options: DemoOptions, bus: Bus, simulator: Simulator, cluster: str) -> None:
    """Write what happened to files."""
    options.history.write_bytes(await simulator.history())
    await record_to(bus, cluster=cluster, out=options.recording)


def _summary(options: DemoOptions, began: float) -> DemoResult:
    print_note("writing the report …")
    recording, history = read(options.recording), options.history.read_bytes()
    return summarize(recording, history, out=options.out, wall_seconds=time.monotonic() - began)


async def _unless(stopping: asyncio.Event, work: Coroutine[None, None, T]) -> T:
    """Return the result of the work; raises InterruptedDemoError as soon as a signal comes."""
    working, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
            raise InterruptedDemoError
        return working.result()
    finally:
        stopped.cancel()


def simulator_child(options: DemoOptions) -> Child:
    """Return the simulated cluster as a child process."""
    return Child(
        name="simulator",
        arguments=(
            "-m",
            "kinema_sim",
            "--scenario",
            options.scenario,
            "--seed",
            str(options.seed),
            "--speed",
            str(options.speed),
            "--port",
            "0",
            "--kubeconfig",
            str(options.out / "kubeconfig"),
            starter.FLAG,
        ),
        log=options.out / "logs" / "simulator.log",
    )


async def start_pipeline(
    options: DemoOptions,
    simulator: Simulator,
    *,
    settings: Mapping[str, Mapping[str, object]] | None = None,
    environment: Mapping[str, Mapping[str, str]] | None = None,
) -> LocalPipeline:
    """Start broker and services on the simulator's time."""
    reading = await simulator.clock()
    pipeline = LocalPipeline(
        PipelineOptions(
            directory=options.out,
            cluster=CLUSTER,
            kubeconfig=options.out / "kubeconfig",
            provider={"kind": "sim", "url": simulator.url},
            clock_speed=reading.speed,
            clock_epoch=reading.now,
            clock_started=time.time(),  # noqa: TID251 - ties the services' clocks to the simulator's
            settings=layered(service_settings(), settings or {}),
            environment=environment or {},
        )
    )
    try:
        await pipeline.start()
    except BaseException:  # also a cancellation must not leave processes behind
        await pipeline.stop()
        raise
    return pipeline


async def _follow(
    options: DemoOptions,
    bus: Bus,
    simulator: Simulator,
    supervisor: Supervisor | None,
    *,
    began: float,
    stopping: asyncio.Event,
) -> None:
    """Show what happens until the pipeline has settled."""
    progress = Progress()
    position = 0
    screen = console(stderr=True)
    with Live(console=screen, refresh_per_second=4, transient=not screen.is_terminal) as live:
        while not progress.settled:
            if stopping.is_set():
                raise InterruptedDemoError
            seconds = time.monotonic() - began
            if seconds > options.timeout:
                raise DemoError(
                    f"not settled after {seconds:.0f} s, waiting {progress.waiting}: see the logs in {options.out}/logs"
                )
            looping = supervisor.crash_looping() if supervisor is not None else None
            if looping is not None:
                raise DemoError(f"{looping.name} keeps ending; its log {looping.log} ends:\n{looping.tail()}")
            with contextlib.suppress(BusError):  # a broker that restarts is asked again at the next turn
                async for item in bus.read("LOG", start=position + 1):
                    position = item.sequence
                    if isinstance(item, Stored):
                        progress.fold(item.event)
            live.update(progress.table(seconds=seconds, view=await simulator.view()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), POLL_SECONDS)
