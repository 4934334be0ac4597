"""Waiting time before a request is sent again."""

from __future__ import annotations

import random


class BackOff:
    """Full-jitter back-off: each wait is drawn between nothing and a bound that doubles."""

    def __init__(self, *, shortest: float, longest: float, chance: random.Random) -> None:
        self._shortest = shortest
        self._longest = longest
        self._chance = chance
        self._bound = shortest

    def reset(self) -> None:
        """Begin with short waits again."""
        self._bound = self._shortest

    def next(self, at_least: float | None = None) -> float:
        """Return the seconds to wait now.

        Not less than a tenth of the bound. Where the server asks for a wait (`Retry-After`), all of that and the drawn
        one: clients that were refused together do not come back together.
        """
        wait = self._bound * (0.1 + 0.9 * self._chance.random())
        self._bound = min(self._longest, self._bound * 2)
        return wait + (at_least or 0.0)
