"""A whole execution in memory: streams, cluster, cloud and a rescheduler that can be killed at any point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec.structs import replace
from tests.rescheduler.memory_cluster import MemoryCluster, Pace
from tests.rescheduler.memory_effects import MemoryProvider, MemoryWriter
from tests.support.builders import NOW, offers
from tests.support.manual_clock import ManualClock

from kinema_core.events import (
    AbortRequested,
    AnyBody,
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ObserverHeartbeat,
    Offer,
    Plan,
    PlanAccepted,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.model.cluster import Cluster, all_objects, difference
from kinema_core.runtime.bus import Bus, Lease
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_rescheduler.names import COST_BEFORE, DELETION_COST, DISRUPTED, PLAN, is_verdict
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.service import Dependencies, Rescheduler
from kinema_rescheduler.settings import Settings, SimSettings
from kinema_sim.memory_bus import MemoryBus

HEARTBEAT_SECONDS = 15
ALL_AT_ONCE = Limits(max_closed_nodes="100%")
"""For tests of moves from several nodes at the same time."""
CLUSTER = "test"
WEB = "Deployment/shop/web"


def once(when: Callable[[], bool], do: Callable[[], object]) -> Callable[[], None]:
    """Do something the first time that something holds."""
    done = False

    def check() -> None:
        nonlocal done
        if not done and when():
            done = True
            do()

    return check


class CrashError(BaseException):
    """The process dies here; no handler of the product may catch it."""


class World:
    """Everything around one rescheduler."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan | None = None,
        *,
        limits: Limits | None = None,
        pace: Pace | None = None,
        sold: Iterable[Offer] | None = None,
        bus: Bus | None = None,
    ) -> None:
        self.plan = plan
        """The plan that `accept` takes where it is given none."""
        self.clock = ManualClock(NOW)
        self.bus: Any = bus or MemoryBus()
        self.memory = MemoryCluster(cluster, self.clock, pace=pace)
        self.writer = MemoryWriter(self.memory, after=self.look)
        self.provider = MemoryProvider(self.memory)
        self.limits = limits or Limits()
        self.offers = tuple(sold if sold is not None else offers())
        self.delegated = False
        """Whether the catalog says that the cluster's own autoscaler boots and deletes."""
        self.problems: list[str] = []
        self.floors: dict[str, int] = {
            item.key: item.replicas - (1 if item.type == "StatefulSet" else 0)
            for item in cluster.workloads
            if item.type in {"Deployment", "StatefulSet"}
        }
        self.watched = True
        """Whether the observer runs: it publishes a heartbeat though nothing changes."""
        self.crash_at: Callable[[str], bool] = lambda _: False
        self.passed: list[str] = []
        self.crashes = 0
        self._seen: Cluster | None = None
        self._accepted = False
        self._lease: Lease | None = None
        self._service = self._new_service()
        self.on_second: Callable[[], None] = lambda: None

    def _new_service(self) -> Rescheduler:
        settings = Settings(
            runtime=RuntimeSettings(cluster=CLUSTER),
            limits=self.limits,
            provider=SimSettings(url="http://127.0.0.1:8001"),
        )
        return Rescheduler(
            settings=settings,
            bus=self.bus,
            clock=self.clock,
            health=Health("rescheduler", CLUSTER),
            writer=self.writer,
            provider=self.provider,
            dependencies=Dependencies(fault=self._fault),
        )

    def _fault(self, name: str) -> None:
        self.passed.append(name)
        if self.crash_at(name):
            raise CrashError(name)

    def look(self) -> None:
        """What must hold at every moment."""
        for key, floor in self.floors.items():
            workload = self.memory.workloads.get(key)
            if workload is not None and workload.ready < floor:
                self.problems.append(f"{key}: {workload.ready} ready, floor {floor}")

    # --- streams

    async def publish(self, body: AnyBody, id_: str, iteration: str = "it-1") -> Event:
        """An event of somebody else."""
        event = origin(body, id_=id_, cluster=CLUSTER, iteration=iteration, now=self.clock.now())
        await self.bus.publish(event)
        return event

    async def accept(self, plan: Plan | None = None, name: str = "plan-1") -> Event:
        """Publish catalog, proposal and acceptance."""
        self._accepted = True
        plan = plan or self.plan
        assert plan is not None
        if not await self.bus.head("STATE"):
            await self.observe()
        body = CatalogPublished(source="test", priced=None, offers=self.offers, delegated=self.delegated)
        await self.publish(body, f"catalog-{name}")
        # The provider sells what was published: it is not asked for another catalog while a test runs.
        self._service._catalog_due = self.clock.now() + timedelta(days=1)
        proposal = await self.publish(plan, name)
        accepted = answer(
            PlanAccepted(plan=proposal.id, version=plan.base_version),
            cause=proposal,
            service="decider",
            n=0,
            now=self.clock.now(),
            state=1,
        )
        await self.bus.publish(accepted)
        return accepted

    def view(self, version: int) -> Cluster:
        """The cluster as the observer sees it."""
        return self.memory.cluster(version)

    async def observe(self) -> None:
        """Publish what changed in the cluster."""
        if self._seen is None:
            self._seen = self.view(1)
            await self.publish(ClusterSnapshot(version=1, objects=tuple(all_objects(self._seen))), "state-1")
            return
        now = self.view(self._seen.version + 1)
        upserts, deletes = difference(self._seen, now)
        if upserts or deletes:
            await self.publish(
                ClusterDelta(version=now.version, upserts=upserts, deletes=deletes), f"state-{now.version}"
            )
            self._seen = now
        elif self.watched and int(self.clock.now().timestamp()) % HEARTBEAT_SECONDS == 0:
            beat = ObserverHeartbeat(version=self._seen.version)
            await self.publish(beat, f"heartbeat-{self.clock.now().timestamp():.0f}")

    # --- running

    async def run(self, seconds: int = 2000) -> ExecutionCompleted | ExecutionAborted:
        """Accept the plan, if there is one that was not accepted yet, and live until the execution has ended."""
        if self.plan is not None and not self._accepted:
            await self.accept()
        for _ in range(seconds):
            await self.second()
            end = self.end()
            if end is not None:
                await self.stop()
                return end
        await self.stop()
        raise AssertionError(f"no end after {seconds} s; log:\n" + "\n".join(self.told()))

    async def completes(self, *nodes: str, seconds: int = 2000) -> ExecutionCompleted:
        """Run to a good end: nobody hurt, nothing of ours left, and these nodes where some are named."""
        end = await self.run(seconds)
        assert isinstance(end, ExecutionCompleted), self.told()
        self._check(nodes)
        return end

    async def aborts(self, reason: str, *nodes: str, seconds: int = 2000) -> ExecutionAborted:
        """Run until the plan is aborted for this reason, and check the same."""
        end = await self.run(seconds)
        assert isinstance(end, ExecutionAborted), self.told()
        assert end.reason == reason
        self._check(nodes)
        return end

    async def aborted_when(self, when: Callable[[], bool]) -> None:
        """Carry the plan out until something holds; then an operator asks for its abort."""
        if not self._accepted:
            await self.accept()
        for _ in range(600):
            await self.second()
            if when():
                break
        await self.publish(AbortRequested(by="me"), "abort-1")

    def _check(self, nodes: tuple[str, ...]) -> None:
        assert not nodes or sorted(self.memory.nodes) == sorted(nodes)
        assert self.problems == []
        assert self.marks_left() == []

    async def second(self) -> None:
        """One second of the cluster's life, with a crash and a restart where a test wants one."""
        await self.clock.sleep(1)
        self.memory.catch_up()
        self.look()
        self.on_second()
        await self.observe()
        try:
            await self._service.tick(await self.lease())
            for _ in range(30):
                await asyncio.sleep(0)
        except CrashError:
            await self._restart()

    async def lease(self) -> Lease:
        """The rescheduler's lease, taken if it is not held."""
        if self._lease is None:
            self._lease = await self.bus.acquire("rescheduler", 3600)
            assert self._lease is not None
        return self._lease

    async def _restart(self) -> None:
        self.crashes += 1
        await self.stop()
        self._service = self._new_service()
        self._service._catalog_due = self.clock.now() + timedelta(days=1)

    async def stop(self) -> None:
        """Kill the service as it stands and give its lease free."""
        with suppress(CrashError):
            tasks = self._service._tasks
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        if self._lease is not None:
            await self._lease.release()
            self._lease = None

    # --- what others do

    def once(self, when: Callable[[], bool], do: Callable[[], object]) -> None:
        """Let something happen in the first second in which something holds."""
        self.on_second = once(when, do)

    def alter(self, name: str, **changes: object) -> None:
        """Change a node, a pod (`namespace/name`) or a workload (`Type/namespace/name`) as somebody else would."""
        found: dict[str, Any] = [self.memory.nodes, self.memory.pods, self.memory.workloads][name.count("/")]  # type: ignore[assignment]
        found[name] = replace(found[name], **changes)

    def disrupted(self, node: str) -> bool:
        """Return whether the plan has closed this node."""
        return DISRUPTED in self.memory.nodes[node].labels

    # --- looking back

    def log(self) -> list[Event]:
        """The log so far."""
        return list(self.bus.events("LOG"))

    def intents(self, kind: str = "") -> list[StepStarted]:
        """Intents so far, of one kind of step or of all."""
        bodies = [event.body for event in self.log() if isinstance(event.body, StepStarted)]
        return [body for body in bodies if kind in {"", body.step.kind}]

    def intended_kinds(self) -> set[str]:
        """Kinds of steps that were intended."""
        return {body.step.kind for body in self.intents()}

    def verdicts(self) -> dict[str, str]:
        """Reasons by what was left out or given up."""
        bodies = [event.body for event in self.log() if isinstance(event.body, StepFailed)]
        return {body.step: body.reason for body in bodies if is_verdict(body.step)}

    def end(self) -> ExecutionCompleted | ExecutionAborted | None:
        """How the first execution ended."""
        for event in self.log():
            if isinstance(event.body, ExecutionCompleted | ExecutionAborted):
                return event.body
        return None

    def told(self) -> list[str]:
        """The log in words, for failing tests."""
        lines = []
        for event in self.log():
            body = event.body
            at = f"{(event.time - NOW).total_seconds():7.0f}"
            match body:
                case StepStarted():
                    lines.append(f"{at} intend {body.step.id} #{body.attempt} {body.step.pods} {body.step.nodes}")
                case StepSucceeded():
                    lines.append(f"{at} done   {body.step} {body.outcome}")
                case StepFailed():
                    lines.append(f"{at} failed {body.step} {body.reason} {body.detail} retry={body.retry}")
                case ExecutionCompleted() | ExecutionAborted():
                    lines.append(f"{at} end    {body}")
                case _:
                    lines.append(f"{at} {event.type}")
        return lines

    def marks_left(self) -> list[str]:
        """Labels, taints, annotations, costs and steering of ours that are still there."""
        found: list[str] = []
        for node in self.memory.nodes.values():
            keys: Mapping[str, object] = {**node.labels, **node.annotations, **{item.key: 1 for item in node.taints}}
            found += [f"{node.name}: {key}" for key in (DISRUPTED, PLAN) if key in keys]
        for pod in self.memory.pods.values():
            keys = pod.annotations
            if not pod.terminating:
                found += [f"{pod.key}: {key}" for key in (DELETION_COST, COST_BEFORE, PLAN) if key in keys]
        for workload in self.memory.workloads.values():
            found += [f"{workload.key}: {key}" for key in workload.annotations if key.startswith("kinema.io/rolled")]
        found += [f"steering: {uid}" for uid in self.memory.steering]
        return found

    def outcomes(self) -> dict[str, list[str]]:
        """Outcomes by step id and attempt."""
        found: dict[str, list[str]] = {}
        for event in self.log():
            if isinstance(event.body, StepSucceeded | StepFailed):
                found.setdefault(event.id, []).append(event.type)
        return found
