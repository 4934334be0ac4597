"""What a run came to: figures, and everything that was wrong with it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.e2e.auditor import Auditor
from tests.history.checker import violations
from tests.history.record import History, write

from kinema_core.events import ExecutionAborted, ExecutionCompleted, Plan

_QUARTER: Final = 0.25
_MANY: Final = 4
"""From so many nodes to delete on, plans are counted together."""


class NothingToDoError(Exception):
    """There is no better plan, or it is not worth it."""


class UnsettledError(Exception):
    """The cluster's own pods never came to be Ready: its rules are too narrow for its scheduler."""


@dataclass(frozen=True)
class Verdict:
    """One random plan that was carried out."""

    seed: int
    ended: str
    """`finished`, the reason of an abort, or `stuck`."""
    flaws: tuple[str, ...]
    """Broken invariants, harm that the auditor saw, and leftovers."""
    before: float
    """USD per hour, as planned."""
    planned: float
    reached: float
    moves: int
    misses: int
    """Pods that came up elsewhere than planned."""
    changes: int
    """Changes of the cluster that were judged."""
    seconds: float
    """That judging it took, all in all."""
    history: History | None = field(repr=False)
    """None once it was judged: it is large."""
    took: float = 0.0
    """Seconds from the first acceptance to the last end, in the cluster's time."""
    third: float | None = None
    """Share of the planned saving that was real after a third of these; None where nothing was to be saved."""
    steered: int = 0
    """New pods that moves led to a node; workloads that others change are left out."""
    landed: int = 0
    """How many of these came to that node."""
    plans: int = 1
    """Executions, those included that went on with what was left."""
    features: tuple[str, ...] = ()
    """Of its environment."""
    deletes: int = 0
    """Nodes that the first plan deletes."""
    boots: int = 0
    """Nodes that it boots."""

    @property
    def wrong(self) -> bool:
        """Whether anything was."""
        return bool(self.flaws) or self.ended == "stuck"

    @classmethod
    def of_error(cls, seed: int, text: str) -> Verdict:
        """What raised instead of coming to an end."""
        return cls(seed, "error", (text,), 0, 0, 0, 0, 0, 0, 0, None)

    def line(self) -> str:
        """As JSON."""
        return json.dumps({one.name: getattr(self, one.name) for one in fields(self) if one.name != "history"})

    @classmethod
    def of_line(cls, line: str) -> Verdict:
        """What `line` wrote; without the history."""
        found = json.loads(line)
        return cls(**{**found, "flaws": tuple(found["flaws"]), "features": tuple(found["features"]), "history": None})

    def judged(self, folder: Path) -> Verdict:
        """Without its history, which is written to `folder` where something went otherwise than planned."""
        otherwise = self.ended != "finished" or self.reached > self.planned or self.landed < self.steered
        if self.history is not None and (self.wrong or otherwise):
            write(self.history, folder / f"{self.seed}.jsonl")
        return replace(self, history=None)


def verdict_on(
    seed: int,
    *,
    history: History,
    auditor: Auditor,
    plan: Plan,
    end: ExecutionCompleted | ExecutionAborted | None,
    cost: float,
    seconds: float,
    features: tuple[str, ...] = (),
) -> Verdict:
    """Judge a run by the history checker and the auditor."""
    left = [] if isinstance(end, ExecutionAborted) and end.leftovers else auditor.leftovers()
    flaws = [*map(str, violations(history)), *auditor.flaws, *(f"left: {one}" for one in left)]
    if auditor.gaps:
        flaws.append(f"{auditor.gaps} times not every change was seen")
    took, third = _progress(history, plan)
    steered, landed = _landing(history, auditor)
    ended = "stuck" if end is None else end.reason if isinstance(end, ExecutionAborted) else "finished"
    return Verdict(
        seed=seed,
        ended=ended,
        flaws=tuple(flaws),
        before=plan.cost.before,
        planned=plan.cost.after,
        reached=round(cost, 6),
        moves=plan.moves,
        misses=int(end.figures.get("placement_misses", 0)) if end is not None else 0,
        changes=auditor.changes,
        seconds=round(seconds, 3),
        history=history,
        took=took,
        third=third,
        steered=steered,
        landed=landed,
        plans=len(history.ends),
        features=features,
        deletes=sum(node.action == "delete" for node in plan.nodes),
        boots=sum(node.action == "boot" for node in plan.nodes),
    )


def _landing(history: History, auditor: Auditor) -> tuple[int, int]:
    """Return how many new pods moves led to a node, and how many of them were bound to it."""
    led: dict[str, Counter[str]] = {}
    for entry in history.intents:
        step = entry.body["step"]
        if step["kind"] in {"surge-up", "evict"} and (entry.plan, step["id"]) in history.done:
            led.setdefault(step["target"], Counter()).update(step["nodes"])
    came = {key.replace(" ", "/", 1): Counter(nodes) for key, nodes in auditor.starts.items()}
    alone = {key: nodes for key, nodes in led.items() if key not in history.others}
    steered = sum(min(nodes.total(), came.get(key, Counter()).total()) for key, nodes in alone.items())
    return steered, sum((nodes & came.get(key, Counter())).total() for key, nodes in alone.items())


def _progress(history: History, plan: Plan) -> tuple[float, float | None]:
    """Return how long the executions took, and which share of the planned saving was real after a third of that.

    A machine is paid for from its order on until its node is gone.
    """
    begun = [entry.time for entry in history.of("plan-accepted")]
    ends = [entry.time for entry in history.ends.values()]
    if not begun or not ends:
        return 0.0, None
    first, took = min(begun), max(ends) - min(begun)
    saving = plan.cost.before - plan.cost.after
    if saving <= 0 or not history.before:
        return took.total_seconds(), None
    nodes = [node for one in history.plans.values() for node in (*one["nodes"], *one.get("temporary", ()))]
    prices = {node["name"]: node.get("usd_per_hour", 0.0) for node in nodes}
    early = [entry.body["step"] for entry in history.intents if entry.time <= first + took / 3]
    boots = {step["target"] for step in early if step["kind"] == "boot"}
    ended = [one for one in history.changes if one.kind == "Node" and one.type == "DELETED"]
    gone = {change.key for change in ended if change.at <= first + took / 3}
    paid = sum(prices.get(name, 0.0) for name in boots - gone)
    saved = sum(prices.get(name, 0.0) for name in gone - boots)
    return took.total_seconds(), round((saved - paid) / saving, 4)


def by_feature(verdicts: list[Verdict]) -> dict[str, dict[str, float]]:
    """Figures of the plans with each feature, and of all."""
    names = sorted({name for one in verdicts for name in one.features})
    groups = {name: [one for one in verdicts if name in one.features] for name in names}
    return {name: _figures(group) for name, group in {"all": verdicts, **groups}.items()}


def _figures(verdicts: list[Verdict]) -> dict[str, float]:
    steered, planned = sum(one.steered for one in verdicts), sum(one.before - one.planned for one in verdicts)
    thirds = _thirds(verdicts)
    return {
        "plans": len(verdicts),
        "flaws": sum(one.wrong for one in verdicts),
        "landed": round(sum(one.landed for one in verdicts) / steered, 4) if steered else 1.0,
        "seconds": median([one.took for one in verdicts]) if verdicts else 0.0,
        "saving_reached": round(sum(one.before - one.reached for one in verdicts) / planned, 4) if planned else 1.0,
        "dearer": sum(one.reached > max(one.before, one.planned) for one in verdicts),
        "executions": round(sum(one.plans for one in verdicts) / len(verdicts), 2) if verdicts else 0.0,
        "aborted": sum(one.ended not in {"finished", "stuck", "error"} for one in verdicts),
        "quarter_by_a_third": round(sum(one >= _QUARTER for one in thirds) / len(thirds), 3) if thirds else 1.0,
    }


def _thirds(verdicts: list[Verdict]) -> list[float]:
    return [one.third for one in verdicts if one.third is not None and one.reached < one.before]


def first_saving(verdicts: list[Verdict]) -> dict[str, dict[str, int]]:
    """How many of the plans that saved had a quarter of their saving after a third of their time, by their nodes."""
    kinds: dict[str, list[Verdict]] = {}
    for one in verdicts:
        kind = "boots" if one.boots else f"deletes {one.deletes}" if one.deletes < _MANY else f"deletes {_MANY} or more"
        kinds.setdefault(kind, []).append(one)
    thirds = {kind: _thirds(kinds[kind]) for kind in sorted(kinds)}
    return {kind: {"plans": len(found), "met": sum(one >= _QUARTER for one in found)} for kind, found in thirds.items()}


def summary(verdicts: list[Verdict], *, without_plan: int, unsettled: int) -> dict[str, Any]:
    """Figures of many runs, for people."""
    carried = [one for one in verdicts if one.ended == "finished"]
    saving = sum(one.before - one.planned for one in verdicts)
    return {
        "plans": len(verdicts),
        "without_a_better_plan": without_plan,
        "never_at_rest": unsettled,
        "ended": dict(Counter(one.ended for one in verdicts)),
        "with_flaws": sum(bool(one.flaws) for one in verdicts),
        "moves": sum(one.moves for one in verdicts),
        "misses": sum(one.misses for one in verdicts),
        "changes_judged": sum(one.changes for one in verdicts),
        "planned_saving_reached": round(sum(one.before - one.reached for one in verdicts) / saving, 6) if saving else 1,
        "cost_over_plan": round(
            sum(one.reached for one in verdicts) / (sum(one.planned for one in verdicts) or 1) - 1, 6
        ),
        "at_planned_cost": sum(one.reached <= one.planned + 1e-9 for one in carried),
        "first_saving": first_saving(verdicts),
        "seconds": round(sum(one.seconds for one in verdicts), 1),
    }
