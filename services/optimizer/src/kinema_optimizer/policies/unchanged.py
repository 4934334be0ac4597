"""The policy that does nothing: what every other one is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from kinema_optimizer.policies.policy import Outcome, Tick
from kinema_optimizer.policies.proposal import proposal


@dataclass(frozen=True)
class Unchanged:
    """No node is added or removed."""

    name: str = "none"
    period_seconds: float = 3600.0

    def tick(self, tick: Tick) -> Outcome:
        """Return the cluster as it is."""
        return Outcome(proposal(tick.world(), (), name=self.name))
