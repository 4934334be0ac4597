"""Load profiles: numbers of virtual users over time, linear between points."""

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """A piecewise-linear number of users.

    Attributes:
        points: (seconds since the start, users), by rising time; outside, the first and last value hold.
    """

    points: tuple[tuple[int, int], ...]

    def users(self, ms: int) -> int:
        """Give the users at a time in milliseconds since the start, rounded down."""
        times = [seconds * 1000 for seconds, _ in self.points]
        after = bisect_right(times, ms)
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (start, low), (end, high) = self.points[after - 1], self.points[after]
        return low + (high - low) * (ms - start * 1000) // ((end - start) * 1000)


def _steps(*steps: tuple[int, int]) -> Profile:
    """Build a profile from (duration, users at its end), starting with no users."""
    points = [(0, 0)]
    for duration, users in steps:
        points.append((points[-1][0] + duration, users))
    return Profile(tuple(points))


LINEAR = _steps((600, 1500), (600, 0))
"""Up to 1500 users in ten minutes, and down to none in ten."""

SPIKE = _steps((60, 100), (360, 100), (60, 500), (300, 500), (30, 50), (540, 50))
"""100 users, then 500 for five minutes, then within half a minute 50. (Rises without a given length take a minute.)"""

RANDOM = _steps((240, 300), (60, 50), (600, 1000), (360, 0))
"""300, 50, 1000 and no users, one after the other. (The first fall has no given length and takes a minute.)"""

PROFILES = {"linear": LINEAR, "spike": SPIKE, "random": RANDOM}
