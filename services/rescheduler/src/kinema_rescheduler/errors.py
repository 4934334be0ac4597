"""Errors of effects.

EffectError
├── TransientError  worth another try: conflict, throttled, unavailable, budget, not-ready, not-empty, attached
└── PermanentError  no use trying: changed, gone, denied, refused, invalid, held, stock-out, quota, not-found
"""

from __future__ import annotations

from typing import Final

from kinema_kubernetes import errors as kubernetes
from kinema_kubernetes.claim import ClaimedError
from kinema_rescheduler.names import CLAIMED

ATTACHED: Final = "attached"
"""Why a node was not deleted yet: volumes of pods that have left are still attached to it."""


class EffectError(Exception):
    """Root. `reason` is the code that is recorded, `detail` is for people."""

    def __init__(self, reason: str, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after
        """Seconds that the other side asks to wait."""


class TransientError(EffectError):
    """The effect may be made later."""


class PermanentError(EffectError):
    """The effect will not be made, however often it is tried."""


class ConflictError(TransientError):
    """Another client wrote the object in between."""


class NotFoundError(PermanentError):
    """There is no such object (any more)."""


_REASONS: Final[tuple[tuple[type[kubernetes.KubernetesError], type[EffectError], str], ...]] = (
    (kubernetes.NotFoundError, NotFoundError, "gone"),
    (kubernetes.ConflictError, ConflictError, "conflict"),
    (kubernetes.BudgetError, TransientError, "budget"),
    (kubernetes.ThrottledError, TransientError, "throttled"),
    (kubernetes.TransientError, TransientError, "unavailable"),
    (ClaimedError, PermanentError, CLAIMED),
    (kubernetes.RefusedError, PermanentError, "refused"),
    (kubernetes.DeniedError, PermanentError, "denied"),
    (kubernetes.KubernetesError, PermanentError, "invalid"),
)


def effect_error(error: kubernetes.KubernetesError) -> EffectError:
    """Return what a failed request to the API server means for an effect."""
    kind, reason = next((kind, reason) for cause, kind, reason in _REASONS if isinstance(error, cause))
    return kind(reason, str(error), retry_after=error.retry_after)
