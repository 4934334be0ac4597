"""What pods that land elsewhere cost: `python -m tests.history.misses --plans 24`.

An admission policy of others sends a share of the steered pods to another node, at random. Each seed is run without it,
and with 5% and 50%. Figures go to `out/random-plans/misses.json`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from itertools import count
from statistics import median
from typing import Any, Final

from tests.history.__main__ import OUT, quiet
from tests.history.continued import continued
from tests.history.random_clusters import random_cluster
from tests.history.verdict import NothingToDoError

SHARES: Final = (0.05, 0.5)
_WORK: Final = 40
"""How far each solve goes: with less work the rest of a plan is planned dearer than the plan was."""


@dataclass(frozen=True)
class Disturbed:
    """One seed with a share of its steered pods elsewhere, beside the same without."""

    seed: int
    share: float
    dearer: float
    """Cost at the end over that of the undisturbed run."""
    longer: float
    """Time over that of the undisturbed run."""
    executions: int
    flaws: tuple[str, ...]
    """Of the invariants, of the auditor, and what was left behind."""


def main() -> int:
    """Run them; 1 if anything was wrong with any."""
    parser = argparse.ArgumentParser(prog="python -m tests.history.misses", description=__doc__)
    parser.add_argument("--plans", type=int, default=24, help="seeds that have a plan")
    parser.add_argument("--first", type=int, default=300, help="the first seed")
    asked = parser.parse_args()
    quiet()
    found: list[Disturbed] = []
    for seed in count(asked.first):
        try:
            found += disturbed(seed)
        except NothingToDoError:
            continue
        OUT.mkdir(parents=True, exist_ok=True)
        (OUT / "misses.json").write_text(json.dumps(summary(found), indent=2) + "\n")
        if len(found) >= asked.plans * len(SHARES):
            break
    print(json.dumps({name: value for name, value in summary(found).items() if name != "runs"}, indent=2))
    return 1 if any(one.flaws for one in found) else 0


def disturbed(seed: int) -> list[Disturbed]:
    """Run a seed without misses and with each share of them.

    Raises:
        NothingToDoError: it has no better plan.
    """
    calm, seconds, _ = continued(random_cluster(seed), 0.0, work=_WORK)
    found = []
    for share in SHARES:
        verdict, took, executions = continued(random_cluster(seed), share, work=_WORK)
        dearer, longer = verdict.reached / calm.reached - 1, took / seconds
        found.append(Disturbed(seed, share, round(dearer, 4), round(longer, 3), executions, verdict.flaws))
    return found


def summary(found: list[Disturbed]) -> dict[str, Any]:
    """Figures by share, and every run."""
    by_share = {}
    for share in SHARES:
        runs = [one for one in found if one.share == share]
        by_share[f"{share:.0%}"] = {
            "runs": len(runs),
            "with_flaws": sum(bool(one.flaws) for one in runs),
            "dearer_mean": round(sum(one.dearer for one in runs) / len(runs), 4) if runs else 0.0,
            "dearer_most": max((one.dearer for one in runs), default=0.0),
            "longer_median": median([one.longer for one in runs]) if runs else 1.0,
            "longer_most": max((one.longer for one in runs), default=1.0),
        }
    return {"by_share": by_share, "runs": [asdict(one) for one in found]}


if __name__ == "__main__":
    raise SystemExit(main())
