"""A small cluster that all services optimize while something happens to it or to them, and what holds afterwards."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import FaultyProxy
from tests.e2e.auditor import Auditor
from tests.e2e.clouds import Cloud
from tests.e2e.pipeline_run import SECONDS, SETTINGS, Run, carried_out, own_rights
from tests.e2e.shop import Placed
from tests.e2e.small import SPACE, of_kwok, small_cluster
from tests.history.checker import violations
from tests.pipeline.pipeline_harness import Strikes

from kinema_cli.local.demo import Progress
from kinema_cli.local.pipeline import LocalPipeline
from kinema_cli.local.settings import layered
from kinema_core.events import ExecutionAborted, ExecutionCompleted
from kinema_core.events.execution import StepKind

RESULT: Final = Path("out/e2e/faults.jsonl")
"""What came of each case, a line for each."""

_DEATH_SECONDS: Final = 60.0
"""More time for each death: on a loaded machine a process takes as long to be back."""

Settings: TypeAlias = Mapping[str, Mapping[str, object]]

PATIENT: Final[Settings] = {
    **SETTINGS,
    # A killed leader's lease has to run out before the next one may act.
    "observer": {**SETTINGS["observer"], "lease_seconds": 3.0},
    "rescheduler": {"lease_seconds": 3.0},
}
_LIMITS: Final = {
    "node_ready_seconds": 60.0,
    "evict_seconds": 12.0,
    "blocked_seconds": 20.0,
    "pods_ready_seconds": 40.0,
    "refused_seconds": 5.0,
    "observed_seconds": 20.0,
    "terminating_seconds": 30.0,
}
HASTY: Final[Settings] = {**PATIENT, "rescheduler": {"lease_seconds": 3.0, "limits": _LIMITS}}
"""With deadlines that a test can wait for."""


@dataclass
class Scene:
    """What a case can do something to."""

    plane: ControlPlane
    proxy: FaultyProxy
    auditor: Auditor
    pipeline: LocalPipeline
    progress: Progress
    notes: dict[str, Any] = field(default_factory=dict)
    """What a case remembers from one call to the next, and for its test."""

    @property
    def admin(self) -> Access:
        """Access with all rights."""
        return self.plane.admin

    def did(self, kind: StepKind) -> bool:
        """Return whether a step of a kind is done, of any plan."""
        return any(step.startswith(f"{kind}/") for step in self.progress.done)

    def leaving(self, app: str = "") -> list[str]:
        """Names of nodes that are marked to go and hold pods of an app (any: of no daemon), sorted."""
        marked = {name for name, node in self.auditor.now["Node"].items() if "kinema.io/disrupted" in _labels(node)}
        pods = [pod for pod in self.auditor.now["Pod"].values() if _labels(pod).get("app", "agent") != "agent"]
        found = {str(pod["spec"].get("nodeName")) for pod in pods if app in {"", _labels(pod)["app"]}}
        return sorted(marked & found)

    def booted(self) -> list[str]:
        """Names of the nodes that plans have booted, sorted."""
        return sorted(name for name in self.auditor.now["Node"] if not name.startswith("old-"))

    async def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Change an object as its owner would."""
        kind = "application/merge-patch+json"
        return await asyncio.to_thread(self.admin.request, "PATCH", path, body, content_type=kind)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send any other request with all rights."""
        return await asyncio.to_thread(self.admin.request, method, path, body)

    def once(self, what: str) -> bool:
        """Whether this is asked for the first time."""
        first = what not in self.notes
        self.notes[what] = True
        return first

    def later(self, seconds: float) -> bool:
        """Whether so much time has passed since this was first asked."""
        return time.monotonic() - float(self.notes.setdefault("since", time.monotonic())) > seconds


def _labels(item: dict[str, Any]) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


Case = Callable[[Scene], Awaitable[bool]]
"""Called at every turn until it says True: it has done what it came for."""


@dataclass(frozen=True)
class Outcome:
    """What a case left behind."""

    run: Run
    auditor: Auditor
    leftovers: list[str]
    notes: dict[str, Any]
    paid: list[str]
    """Nodes whose machines its cloud counts."""

    def broken(self, *, alone: bool, but: Container[str] = ()) -> list[str]:
        """The invariants of the events that do not hold; where the services were `alone`, also those of the changes.

        What others change in the cluster has no intent. Nor can changes be judged that a server did not tell.
        """
        history, auditor = self.run.history, self.auditor
        if alone and not auditor.gaps:
            history = replace(history, before=auditor.before, changes=tuple(auditor.history))
        return [*map(str, violations(history, but=but))]

    @property
    def ends(self) -> set[type]:
        """How the accepted plans ended."""
        return {type(end) for end in self.run.progress.ended.values()}

    @property
    def reasons(self) -> dict[str, tuple[str, str]]:
        """What was given up, and why: verdict → reason and detail."""
        verdicts = ("skip/", "keep/", "unfit/", "abort")
        return {one.step: (one.reason, one.detail) for one in self.run.progress.failed if one.step.startswith(verdicts)}

    def moved(self, kind: str, name: str) -> bool:
        """Whether pods of a workload were moved by a kind of step, to its end."""
        return any(step.startswith(f"{kind}/") and f"/{SPACE}/{name}/" in step for step in self.run.progress.done)


async def struck(
    plane: ControlPlane,
    folder: Path,
    case: Case | None = None,
    *,
    faults: Mapping[str, Sequence[str]] | None = None,
    settings: Settings = PATIENT,
    goal: bool = True,
    extra: Sequence[Placed] = (),
    cloud: Cloud | None = None,
    nodes: Callable[[Access], None] = of_kwok,
) -> Outcome:
    """Let the services optimize a small cluster while a case happens to them.

    Args:
        plane: a control plane without nodes.
        folder: for settings, logs and streams.
        case: what happens.
        faults: service → points at which its processes kill themselves, one after the other.
        settings: of the services.
        goal: go on until a plan has been finished and the cluster is as small as it can be; else until one has ended.
        extra: more objects in the cluster.
        cloud: whose machines the nodes are; none: KWOK's.
        nodes: brings the nodes that the cluster has at first.
    """
    notes: dict[str, Any] = {}
    with small_cluster(plane.admin, extra, nodes):
        auditor = Auditor(plane.admin)
        async with FaultyProxy(plane.admin).running() as proxy:
            accounts = own_rights(plane.admin, cloud.kind if cloud is not None else "kwok")
            rights = {name: proxy.through(access) for name, access in accounts.items()}

            async def strike(pipeline: LocalPipeline, progress: Progress) -> bool:
                return case is None or await case(Scene(plane, proxy, auditor, pipeline, progress, notes))

            def reached(progress: Progress) -> bool:
                ends = list(progress.ended.values())
                return not goal or (isinstance(ends[-1], ExecutionCompleted) and len(auditor.now["Node"]) == 1)

            with auditor.watching():
                points = {service: list(given) for service, given in (faults or {}).items()}
                strikes = Strikes(points, strike if case is not None else None)
                decider = {"limits": {"cooldown_seconds": 5.0 if goal else 600.0}}
                chosen = layered(settings, {"decider": decider})
                seconds = SECONDS + _DEATH_SECONDS * sum(map(len, points.values()))
                run = await carried_out(
                    folder,
                    rights,
                    settings=chosen,
                    strikes=strikes,
                    until=reached,
                    seconds=seconds,
                    provider=cloud.provider if cloud is not None else None,
                )
        paid = cloud.paid() if cloud is not None else []
        outcome = Outcome(run, auditor, auditor.leftovers(), notes, paid)
    deaths = [f"{len(given)} deaths of {service}" for service, given in (faults or {}).items()]
    _tell(", ".join([*([case.__name__] if case is not None else []), *deaths]), outcome)
    return outcome


def _tell(name: str, outcome: Outcome) -> None:
    """Add a line of figures for people to `RESULT`."""
    progress = outcome.run.progress
    told = {
        "case": name,
        "seconds": round(outcome.run.seconds, 1),
        "ends": [getattr(end, "reason", "finished") for end in progress.ended.values()],
        "given_up": outcome.reasons,
        "steps": len(progress.done),
        "nodes": len(outcome.auditor.now["Node"]),
        "changes_audited": outcome.auditor.changes,
        "gaps": outcome.auditor.gaps,
        "flaws": outcome.auditor.flaws,
        "leftovers": outcome.leftovers,
        "broken": outcome.broken(alone=False),
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    with RESULT.open("a") as lines:
        lines.write(json.dumps(told) + "\n")


def check(outcome: Outcome, *, alone: bool = False, but: Container[str] = ()) -> None:
    """What holds after every case: every plan has ended, nobody was hurt by us, nothing of ours is left.

    And no invariant of the history is broken; where nobody else was at work (`alone`), none of the changes, either. The
    same events lead to the same decisions again. `but` names invariants of the events that the case itself breaks.
    """
    broken = outcome.broken(alone=alone, but=but)
    assert broken == [], "\n".join(broken)
    assert outcome.run.replayed() == ""
    progress = outcome.run.progress
    assert outcome.run.struck
    assert progress.accepted.keys() == progress.ended.keys()
    assert [end for end in progress.ended.values() if isinstance(end, ExecutionAborted) and end.leftovers] == []
    assert outcome.auditor.flaws == []
    assert outcome.leftovers == []
