"""Kinema as Kinema: the services' own logic in one process, in the virtual time of a simulated cluster.

Observer, predictor, optimizer, decider and rescheduler are the classes that run live, on a bus in memory; only their
surroundings are replaced: the observer reads the simulated cluster without HTTP, the rescheduler's clients call the
simulator's handlers, and the solver stops after an amount of work instead of a time, so that a run can be repeated.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from aiohttp import web

from kinema_core.events import (
    Autoscaler,
    ClusterObject,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ForecastMade,
    NoPlanFound,
    Plan,
    PlanAccepted,
    PlanRejected,
    StepStarted,
    UsageCompacted,
    UsageResampled,
    kind_of_type,
)
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions, mobility
from kinema_core.runtime.bus import Lease, Stored
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment, NoState, Stage
from kinema_core.runtime.topology import CONSUMES, kinds_of
from kinema_decider.logic.limits import Limits
from kinema_decider.service import Decider
from kinema_decider.settings import Settings as DeciderSettings
from kinema_kubernetes.client import Answer, Client
from kinema_kubernetes.errors import error_of
from kinema_kubernetes.objects import Json
from kinema_observer.logic.changes import Changes
from kinema_observer.sampling import MeteredUsage, UsageSampler
from kinema_observer.service import Observer
from kinema_observer.settings import Settings as ObserverSettings
from kinema_optimizer.policies.policy import Outcome, Tick
from kinema_optimizer.policies.thesis import Thesis
from kinema_optimizer.process.job import Job, solve
from kinema_optimizer.service import Optimizer
from kinema_optimizer.settings import PolicyName, PolicySettings
from kinema_optimizer.settings import Settings as OptimizerSettings
from kinema_optimizer.solvers.stopping import PRICING, StopReason, WorkStop
from kinema_predictor.logic.history import History
from kinema_predictor.service import Predictor
from kinema_predictor.settings import Settings as PredictorSettings
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.providers.sim import SimProvider, cloud_error
from kinema_rescheduler.service import Dependencies, Rescheduler
from kinema_rescheduler.settings import Settings as ReschedulerSettings
from kinema_rescheduler.settings import SimSettings
from kinema_sim.api.errors import ApiError
from kinema_sim.api.listing import Lister
from kinema_sim.api.metrics import MetricsApi
from kinema_sim.cloud.provider import CloudError
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.front.cloud import CloudFront
from kinema_sim.front.kube import KubeFront
from kinema_sim.front.watch import Watches
from kinema_sim.memory_bus import MemoryBus
from kinema_sim.simulate.executor import Tally
from kinema_sim.simulate.sizing import Sizer
from kinema_sim.simulate.usage import READING, STEP, SimMeter
from kinema_sim.simulate.view import View, now_of

NAME: Final = "simulated"
WORK: Final = 60
"""Iterations that each phase of a solve may take, by default."""
IDLE_SECONDS: Final = 5
"""Virtual time between two looks while nothing is being executed."""
_TURNS: Final = 30
"""Turns of the event loop after which effects wait for virtual time to pass."""
_AUTOMATIC: Final = Limits(approval="automatic")
_THESIS: Final = Limits(
    approval="automatic",
    cooldown_seconds=0,
    transition_seconds=0,
    restart_price_usd=0,
    max_moves_fraction=1,
    redundancy=False,
)
"""What algorithm 7 asks of a plan: saving, drift, and that it is feasible. The rules that Kinema adds are off."""
Handler = Callable[[Any], Awaitable[web.StreamResponse]]
Lend = Callable[[str, int], None]


class SimClock:
    """The virtual time; a task that sleeps is woken when that has passed."""

    def __init__(self, sim: SimCluster) -> None:
        self._sim = sim

    def now(self) -> datetime:
        """Return the virtual time now."""
        return now_of(self._sim)

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        woken = asyncio.get_running_loop().create_future()
        self._sim.loop.after(round(seconds * 1000), lambda: None if woken.done() else woken.set_result(None))
        await woken


class Request:
    """As much of an HTTP request as the simulator's handlers look at."""

    def __init__(self, method: str, path: str, body: object, content_type: str, query: dict[str, str]) -> None:
        split = urlsplit(path)
        self.method = method
        self.path = unquote(split.path)
        self.query = {**dict(parse_qsl(split.query)), **query}
        self.content_type = content_type
        self.match_info: dict[str, str] = {}
        self._body = body

    async def read(self) -> bytes:
        """Return the body's bytes."""
        return b"" if self._body is None else msgspec.json.encode(self._body)


class SimApi(Client):
    """The services' client; the simulator answers."""

    def __init__(self, sim: SimCluster, fence: Fence, lend: Lend | None = None) -> None:
        """`lend` hears of every workload whose replicas the services change, before they do."""
        self._guard = fence.check
        self._clock = SimClock(sim)
        self._lend = lend
        self._front = KubeFront(
            api=sim.api,
            lister=Lister(sim.store),
            watches=Watches(sim.store, sim.faults),
            metrics=MetricsApi(sim.store, sim.meter),
        )

    async def close(self) -> None:
        """There is nothing to close."""

    async def pause(self, seconds: float) -> None:
        """Wait in virtual time."""
        await self._clock.sleep(seconds)

    async def read(self, path: str, **query: str) -> Answer:
        """Read an object or a list as bytes."""
        return Answer(msgspec.json.encode(await self.request("GET", path, query=query)), "")

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        content_type: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Call the simulator's handlers."""
        if method != "GET":
            self._guard()
        if self._lend is not None and method != "GET" and path.endswith("/scale") and isinstance(body, dict):
            *_, space, plural, name, _ = path.split("/")
            kind = {"deployments": "Deployment", "statefulsets": "StatefulSet"}.get(plural, "")
            self._lend(f"{kind} {space}/{name}", int(body["spec"]["replicas"]))
        request = Request(method, path, body, content_type, dict(query or {}))
        try:
            found = await self._front.handle(request)  # type: ignore[arg-type]  # as much of one as is looked at
        except ApiError as error:
            raise error_of(f"{method} {path}", error.code, msgspec.json.encode(error.status()), {}) from error
        return _json(found)


class _Routes:
    """Where handlers of the cloud are installed; finds the one for a request."""

    def __init__(self) -> None:
        self.found: list[tuple[str, list[str], Handler]] = []

    @property
    def router(self) -> _Routes:
        """As an application has it."""
        return self

    def add_get(self, path: str, handler: Handler) -> None:
        """Install a handler."""
        self.found.append(("GET", path.split("/"), handler))

    def add_post(self, path: str, handler: Handler) -> None:
        """Install a handler."""
        self.found.append(("POST", path.split("/"), handler))

    def add_delete(self, path: str, handler: Handler) -> None:
        """Install a handler."""
        self.found.append(("DELETE", path.split("/"), handler))

    async def answer(self, request: Request) -> web.StreamResponse:
        """Return the answer of the handler for a request."""
        parts = request.path.split("/")
        for method, pattern, handler in self.found:
            pairs = list(zip(pattern, parts, strict=False))
            same = all(want == have or want.startswith("{") for want, have in pairs)
            if method == request.method and len(pattern) == len(parts) and same:
                request.match_info = {want[1:-1]: have for want, have in pairs if want.startswith("{")}
                return await handler(request)
        raise AssertionError(f"the cloud knows no {request.method} {request.path}")


class InProcessProvider(SimProvider):
    """The services' provider of simulated nodes; the simulated cloud answers."""

    def __init__(self, sim: SimCluster, fence: Fence) -> None:
        self._fence = fence
        self._routes = _Routes()
        CloudFront(sim.cloud).install(self._routes)  # type: ignore[arg-type]  # takes routes as an application does

    async def close(self) -> None:
        """There is nothing to close."""

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        if method != "GET":
            self._fence.check()
        try:
            found = await self._routes.answer(Request(method, path, body, "", {}))
        except CloudError as error:
            raise cloud_error(str(error.kind), error.message) from error
        assert isinstance(found, web.Response)
        assert isinstance(found.body, bytes)
        return found.body


def _json(found: web.StreamResponse) -> Json:
    assert isinstance(found, web.Response)
    assert isinstance(found.body, bytes)
    body: Json = msgspec.json.decode(found.body)
    return body


class Source:
    """The simulated cluster as the observer's source."""

    def __init__(self, view: View) -> None:
        self._view = view

    def listed(self) -> bool:
        """Return True: nothing has to be listed."""
        return True

    def missing(self) -> tuple[str, ...]:
        """Return nothing: everything can be seen."""
        return ()

    def drain(self) -> Changes:
        """Return what changed since the last call."""
        return self._view.drain()

    def contents(self) -> Iterator[ClusterObject]:
        """Everything as last seen."""
        self._view.drain()
        return self._view.contents()


class Published:
    """The state as the observer has published it: what all services of this process would fold alike is folded once."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def read(self) -> tuple[Cluster, int] | None:
        """Return the state and its version; None before the first one."""
        cluster = self._observer.cluster
        return None if cluster is None else (cluster, cluster.version)


class PlanStop(WorkStop):
    """Ends every phase after so many callbacks; what constraints cost is not worked out, as no figure needs it."""

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`."""
        return "work-limit" if coming == PRICING else super().ends(iteration, coming)


@dataclass
class WorkSolver:
    """A solver that stops after an amount of work, and does not solve what it has just solved."""

    work: int = WORK
    _known: dict[bytes, Plan | NoPlanFound] = field(default_factory=dict)

    async def answer(self, job: Job) -> Plan | NoPlanFound:
        """Return the answer to a job; the last one again where objects, what may move and offers are the same."""
        asked = (job.settings.objective(job.now), job.offers, job.mode, job.forecasts, job.ahead)
        key = _digest(job.cluster, job.now, job.settings.mobility, *asked)
        if key not in self._known:
            self._known.clear()
            self._known[key] = solve(job, PlanStop(self.work))
        found = self._known[key]
        if isinstance(found, Plan):
            return msgspec.structs.replace(found, base_version=job.cluster.version)
        return msgspec.structs.replace(found, version=job.cluster.version)


@dataclass
class WorkThesis:
    """The thesis's model, which is not solved again for a state that has just been solved."""

    name: str = "thesis"
    period_seconds: float = Thesis.period_seconds
    _known: dict[bytes, Outcome] = field(default_factory=dict)

    def tick(self, tick: Tick) -> Outcome:
        """See `Policy`."""
        key = _digest(tick.cluster, tick.now, tick.options, tick.offers)
        if key not in self._known:
            self._known = {key: Thesis().tick(tick)}
        return self._known[key]


def _digest(cluster: Cluster, now: datetime, options: MobilityOptions, *more: object) -> bytes:
    """Return a digest of what an answer depends on, `more` included.

    Figures of autoscalers change with every scrape, and the time always: both count by what they let move.
    """
    kinds = {kind: [items[key] for key in sorted(items)] for kind, items in sorted(cluster.objects.items())}
    kinds.pop(Autoscaler.__name__, None)
    may = mobility(cluster, now, options)
    held = [(key, one.code) for key, one in may.held.items()]
    kept = sorted(name for name, why in may.deletable.items() if why is not None)
    return sha256(msgspec.json.encode((kinds, held, kept, more))).digest()


@dataclass
class _Seat:
    """A stage and what it wants to hear."""

    stage: Stage[Any]
    delivered: tuple[str, ...]


@dataclass(frozen=True)
class Requests:
    """How requests follow usage: by the predictor, by another's rule, or not at all."""

    past: tuple[UsageCompacted | UsageResampled, ...] | None = None
    """Usage of before, where the predictor sizes."""
    max_change: str = ""
    """Largest change of a request that it makes at a time, as a fraction of it; empty: as by default."""
    cpu_risk: float = 0.05
    """Share of the steps in which a pod may use more CPU than it requests."""
    sizer: Sizer | None = None


class Pipeline:
    """The five services on a simulated cluster."""

    def __init__(
        self,
        sim: SimCluster,
        view: View,
        *,
        policy: PolicyName = "kinema",
        work: int = WORK,
        lend: Lend | None = None,
        requests: Requests | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.sim = sim
        self.tally = tally or Tally()
        self.rejections: Counter[str] = Counter()
        """Plans that were not executed, by rule."""
        self.aborted = 0
        self.unread: set[str] = set()
        """Annotations that the predictor could not read, with workload and value."""
        self._clock = SimClock(sim)
        self._fence = Fence()
        self.bus = MemoryBus(monotonic=lambda: sim.loop.now_ms / 1000)
        runtime = RuntimeSettings(cluster=NAME)
        self._observer = Observer(
            bus=self.bus,
            source=Source(view),
            clock=self._clock,
            health=Health("observer", NAME),
            settings=ObserverSettings(runtime=runtime, snapshot_seconds=86_400, snapshot_deltas=100_000),
        )
        self._requests = requests or Requests()
        mode: Literal["recommend", "apply"] = "recommend" if self._past is None else "apply"
        change = self._requests.max_change or "0"
        self._predictor = Predictor(
            PredictorSettings(
                runtime=runtime, mode=mode, max_request_change_fraction=change, cpu_risk=self._requests.cpu_risk
            )
        )
        self._history, self._usage_read = History(), 0
        settings = ObserverSettings(runtime=runtime, usage_step_seconds=STEP.total_seconds())
        source = MeteredUsage(SimMeter(sim), STEP.total_seconds())
        self._sampler = UsageSampler(
            bus=self.bus, source=source, clock=self._clock, observer=self._observer, settings=settings
        )
        self._reading_due = self._clock.now()
        chosen = PolicySettings(name=policy)
        stages: tuple[Stage[Any], ...] = (
            self._predictor,
            Optimizer(
                OptimizerSettings(runtime=runtime, policy=chosen),
                WorkSolver(work),
                lambda: WorkStop(work),
                WorkThesis() if policy == "thesis" else None,
            ),
            Decider(DeciderSettings(runtime=runtime, limits=_THESIS if policy == "thesis" else _AUTOMATIC)),
        )
        self._seats = [_Seat(stage, kinds_of(CONSUMES[stage.name])) for stage in stages]
        self._rescheduler = Rescheduler(
            settings=ReschedulerSettings(runtime=runtime, provider=SimSettings(url="http://127.0.0.1:1")),
            bus=self.bus,
            clock=self._clock,
            health=Health("rescheduler", NAME),
            writer=KubernetesWriter(FencedClient(SimApi(sim, self._fence, lend), self._fence)),
            provider=InProcessProvider(sim, self._fence),
            dependencies=Dependencies(fence=self._fence, state=Published(self._observer)),
        )
        self._lease: Lease | None = None
        self._position = 0
        self._plans: dict[str, Plan] = {}
        self._running = ""
        self._resized: set[str] = set()
        """Workloads whose pods were to be resized where they are, by the running plan."""

    async def run_until(self, end_ms: int) -> None:
        """Let virtual time pass with the services at work."""
        if self._lease is None:
            self._lease = await self.bus.acquire("rescheduler", 10**9)
            assert self._lease is not None
            self._fence.hold(self._lease)
            await self._publish_past()
        while self.sim.loop.now_ms < end_ms:
            await self._turn()
            step = 1 if self._running or self._busy else IDLE_SECONDS
            self.sim.loop.run_until(min(end_ms, self.sim.loop.now_ms + step * 1000))

    @property
    def _past(self) -> tuple[UsageCompacted | UsageResampled, ...] | None:
        return self._requests.past

    async def _publish_past(self) -> None:
        """Publish the usage of before, as an observer that reads it from Prometheus does at its start."""
        for body in self._past or ():
            name = f"{NAME}/observer/usage-{body.TYPE}-{body.start.isoformat()}"
            event = origin(body, id_=name, cluster=NAME, iteration="", now=self._clock.now(), state=0)
            await self.bus.publish(event)

    async def _measure(self) -> None:
        """Take the readings that are due, for the predictor or for who sizes instead of it."""
        now, cluster = self._clock.now(), self._observer.cluster
        if cluster is None or now < self._reading_due:
            return
        self._reading_due = now + READING
        if self._requests.sizer is not None:
            self._requests.sizer.look(cluster)
        if self._past is None:
            return
        await self._sampler.sample()
        async for item in self.bus.read("USAGE", start=self._usage_read + 1):
            self._usage_read = item.sequence
            if isinstance(item, Stored):
                self._history = self._predictor.past.fold(self._history, item.event)

    @property
    def _busy(self) -> bool:
        """Whether pods wait that the services may act on at once."""
        return bool(self.sim.scheduler.books.pending)

    async def _turn(self) -> None:
        """One look of every service."""
        await self._measure()
        await self._observer.tick()
        await self._answers()
        assert self._lease is not None
        await self._rescheduler.tick(self._lease)
        for _ in range(_TURNS if self._running else 3):
            await asyncio.sleep(0)
        await self._answers()

    async def _answers(self) -> None:
        """Deliver what is new in the log to the stages, and publish what they answer, until nothing is new."""
        while await self.bus.head("LOG") > self._position:
            async for item in self.bus.read("LOG", start=self._position + 1):
                self._position = item.sequence
                if isinstance(item, Stored):
                    await self._deliver(item.event)

    async def _deliver(self, event: Event) -> None:
        self._note(event)
        for seat in self._seats:
            seat.stage.recall(event)
            if kind_of_type(event.type) in seat.delivered:
                await self._handle(seat.stage, event)

    async def _handle(self, stage: Stage[Any], event: Event) -> None:
        wanted = stage.wants(event)
        cluster = self._observer.cluster or Cluster()
        state: object = None if isinstance(wanted, NoState) else cluster
        version = 0 if isinstance(wanted, NoState) else cluster.version
        bodies = await stage.handle(event, state, Moment(self._clock.now(), past=self._history))
        for n, body in enumerate(bodies):
            await self.bus.publish(
                answer(body, cause=event, service=stage.name, n=n, now=self._clock.now(), state=version)
            )

    # --- figures

    def _note(self, event: Event) -> None:
        body = event.body
        if isinstance(body, Plan):
            self.tally.ticks += 1
            self._plans = {event.id: body}
        elif isinstance(body, NoPlanFound):
            self.tally.ticks += 1
        elif isinstance(body, ForecastMade):
            self.unread |= {
                f'{one.workload}: {one.figures["annotation"]}: "{one.figures["value"]}"'
                for one in body.refused
                if "annotation" in one.figures
            }
        elif isinstance(body, PlanRejected):
            self.rejections[body.rule] += 1
        elif isinstance(body, PlanAccepted):
            plan = self._plans.get(body.plan)
            self._running = body.plan
            if plan is not None:
                self.tally.evictions += plan.moves + plan.restarts
                self.tally.booted += sum(node.action == "boot" for node in plan.nodes)
                self.tally.deleted += sum(node.action == "delete" for node in plan.nodes)
                pods = (self._observer.cluster or Cluster()).pods_by_workload
                self.tally.resized += sum(len(pods.get(one.workload, ())) for one in plan.resizes)
        elif isinstance(body, StepStarted) and body.step.kind == "resize":
            self._resized.add(body.step.target)
        elif isinstance(body, StepStarted) and body.step.kind == "roll" and body.step.target in self._resized:
            # Its kubelets refused: the plan counts no restarts of these pods.
            self._resized.remove(body.step.target)
            self.tally.evictions += body.step.replicas_from
        elif isinstance(body, ExecutionCompleted | ExecutionAborted):
            self._resized.clear()
            self._running = ""
            self.aborted += isinstance(body, ExecutionAborted)

    async def close(self) -> None:
        """End what still runs."""
        tasks = list(self._rescheduler._tasks.values())
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
