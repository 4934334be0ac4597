"""What a run came to: figures, and everything that was wrong with it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tests.e2e.auditor import Auditor
from tests.history.checker import violations
from tests.history.record import History, write

from kinema_core.events import ExecutionAborted, ExecutionCompleted, Plan


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
    history: History | None = field(repr=False)
    """None once it was judged: it is large."""

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

    def judged(self, folder: Path) -> Verdict:
        """Without its history, which is written to `folder` where something went otherwise than planned."""
        if self.history is not None and (self.wrong or self.ended != "finished" or self.reached > self.planned):
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
) -> Verdict:
    """Judge a run by the history checker and the auditor."""
    left = [] if isinstance(end, ExecutionAborted) and end.leftovers else auditor.leftovers()
    flaws = [*map(str, violations(history)), *auditor.flaws, *(f"left: {one}" for one in left)]
    if auditor.gaps:
        flaws.append(f"{auditor.gaps} times not every change was seen")
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
    )


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
        "seconds": round(sum(one.seconds for one in verdicts), 1),
    }
