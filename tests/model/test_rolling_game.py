"""What is said of a rolling update, against every course that it could take."""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.model.test_rolling import spread, stuck

ZONES = "abc"


class State(NamedTuple):
    """Old pods on nodes that stay, on nodes that leave, and new ones, by zone."""

    staying: tuple[int, ...]
    leaving: tuple[int, ...]
    new: tuple[int, ...]


class Game(NamedTuple):
    """An update of a workload whose pods are spread over zones of one node that stays and one that leaves."""

    begin: State
    room: tuple[int, ...]
    skew: int
    least: int
    """`minDomains`."""
    surge: int
    hashed: bool

    @property
    def copies(self) -> int:
        """Replicas."""
        return sum(self.begin.staying) + sum(self.begin.leaving)

    def arrivals(self, now: State) -> list[State]:
        """Every place that kube-scheduler may give to the next new pod."""
        counts = now.new if self.hashed else tuple(map(sum, zip(now.new, now.staying, strict=True)))
        fewest = 0 if len(counts) < self.least else min(counts)
        return [
            now._replace(new=_with(now.new, zone, 1))
            for zone, count in enumerate(counts)
            if count + 1 - fewest <= self.skew
            and now.staying[zone] + now.new[zone] < self.begin.staying[zone] + self.room[zone]
        ]

    def departures(self, now: State) -> list[State]:
        """Every old pod that the controller may take away."""
        found = [now._replace(staying=_with(now.staying, n, -1)) for n, here in enumerate(now.staying) if here]
        return found + [now._replace(leaving=_with(now.leaving, n, -1)) for n, here in enumerate(now.leaving) if here]

    def may_stop(self) -> bool:
        """Whether some course comes to where no new pod has a place, and no old one may go."""
        seen, left = {self.begin}, [self.begin]
        while left:
            now = left.pop()
            there = sum(map(sum, now))
            wants = sum(now.new) < self.copies and there < self.copies + self.surge
            coming = self.arrivals(now) if wants else []
            going = self.departures(now) if there > self.copies else []
            if not coming and not going and sum(now.new) < self.copies:
                return True
            fresh = [one for one in (*coming, *going) if one not in seen]
            seen.update(fresh)
            left += fresh
        return False


def _with(counts: tuple[int, ...], index: int, by: int) -> tuple[int, ...]:
    return (*counts[:index], counts[index] + by, *counts[index + 1 :])


def test_no_update_that_is_said_to_get_through_ever_stops() -> None:
    """For 3,000 small updates, whoever kube-scheduler and the controller pick; and not all others are refused."""
    rng = random.Random(5)
    through = ends = 0
    for _ in range(3000):
        zones = range(rng.randint(1, 3))
        staying, leaving = ([rng.randint(0, 2) for _ in zones] for _ in range(2))
        if not sum(staying) + sum(leaving):
            continue
        game = Game(
            begin=State(tuple(staying), tuple(leaving), (0,) * len(zones)),
            room=tuple(rng.choice((0, 0, 1, 2)) for _ in zones),
            skew=rng.choice((1, 1, 2)),
            least=rng.choice((1, 1, 2)),
            surge=rng.randint(1, 2),
            hashed=rng.random() < 0.4,
        )
        on = [
            f"{ZONES[n]}{kind}"
            for kind, counts in (("1", staying), ("9", leaving))
            for n in zones
            for _ in range(counts[n])
        ]
        rules = spread(
            max_skew=game.skew, min_domains=game.least, match_label_keys=("pod-template-hash",) if game.hashed else ()
        )
        room = {f"{ZONES[n]}1": game.room[n] for n in zones}
        said = stuck(rules, on, room, leaving=[f"{ZONES[n]}9" for n in zones])
        stops = game.may_stop()
        assert said or not stops, game
        through += not said
        ends += not stops
    assert through > 0.8 * ends
