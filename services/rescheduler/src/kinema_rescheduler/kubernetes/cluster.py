"""Writing to a cluster: what the rescheduler needs of it, for any implementation.

Every effect reads afresh what it depends on (uid, replicas, readiness) and is refused when that is not as the step
says. Effects are idempotent: a repeated one reports `adopted`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from kinema_core.events import EMPTY, Figures, Step

Outcome: TypeAlias = Literal["done", "adopted", "void"]


@dataclass(frozen=True)
class Order:
    """One step to be made real."""

    step: Step
    plan: str
    """Id of the plan's proposal; the value of Kinema's marks."""
    iteration: str
    attempt: int = 1


@dataclass(frozen=True)
class Made:
    """An effect was made, found made (`adopted`), or found needless (`void`).

    A changed workload's `generation` is in the figures: the state shows the change from that generation on.
    """

    outcome: Outcome = "done"
    figures: Figures = EMPTY


class ClusterWriter(Protocol):
    """Makes steps real in one cluster."""

    async def perform(self, order: Order) -> Made:
        """Make the effect of any step but `boot` and `delete`.

        Raises:
            TransientError, PermanentError: it was not made.
        """

    async def check_deletable(self, order: Order) -> bool:
        """Return whether the node of a `delete` step is there; False when it is gone already.

        Raises:
            TransientError: `not-empty`, pods run on it; `attached`, volumes of pods that have left are still attached
                to it; `not-ready`, it has come up since its deletion was decided.
            PermanentError: `changed`, it is not the node that was marked.
        """
