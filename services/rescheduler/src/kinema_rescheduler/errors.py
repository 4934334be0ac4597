"""Why an effect was not made.

EffectError
├── PassingError   worth another try: conflict, throttled, unavailable, budget, not-ready, not-empty, attached …
└── FinalError     no use trying: changed, gone, denied, refused, invalid, held, stock-out, quota, permission, not-found
"""

from __future__ import annotations

from typing import Final

ATTACHED: Final = "attached"
"""Why a node was not deleted yet: volumes of pods that have left are still attached to it."""


class EffectError(Exception):
    """Root. `reason` is the code that is recorded, `detail` is for people."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class PassingError(EffectError):
    """The effect may be made later."""


class FinalError(EffectError):
    """The effect will not be made, however often it is tried."""
