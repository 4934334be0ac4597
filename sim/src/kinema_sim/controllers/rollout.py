"""The arithmetic of a rolling update, without objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class SetState:
    """A ReplicaSet of a Deployment, for arithmetic.

    Attributes:
        name: name of the set.
        replicas: what it asks for.
        available: how many of its pods are available.
    """

    name: str
    replicas: int
    available: int


@dataclass(frozen=True)
class Bounds:
    """How far a rolling update may stray.

    Attributes:
        replicas: what the Deployment asks for.
        max_surge: how many pods more may exist.
        max_unavailable: how many pods fewer may be available.
    """

    replicas: int
    max_surge: int
    max_unavailable: int


def scaled(value: int | str | None, total: int, *, up: bool) -> int:
    """Resolve a number or a percentage of a total; `up` says which way a fraction goes.

    Raises:
        ValueError: neither a number nor a percentage.
    """
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise ValueError(f"{value!r} is neither a number nor a percentage")
    share = Fraction(int(value[:-1]) * total, 100)
    return -(-share.numerator // share.denominator) if up else int(share)


def bounds(replicas: int, *, surge: int | str | None, unavailable: int | str | None) -> Bounds:
    """Resolve maxSurge (rounded up) and maxUnavailable (rounded down); both 0 means one may be missing."""
    max_surge = scaled(surge, replicas, up=True)
    max_unavailable = min(scaled(unavailable, replicas, up=False), replicas)
    if max_surge == 0 and max_unavailable == 0:
        max_unavailable = 1
    return Bounds(replicas, max_surge, max_unavailable)


def grow_new(new: SetState, old: Sequence[SetState], limits: Bounds) -> int:
    """Give the size that the new set may have now."""
    if new.replicas >= limits.replicas:
        return limits.replicas
    total = new.replicas + sum(each.replicas for each in old)
    room = limits.replicas + limits.max_surge - total
    return new.replicas + max(0, min(room, limits.replicas - new.replicas))


def shrink_old(new: SetState, old: Sequence[SetState], limits: Bounds) -> dict[str, int]:
    """Give the sizes that the old sets (oldest first) may have now: first the unavailable go, then the rest."""
    sizes = {each.name: each.replicas for each in old}
    total = new.replicas + sum(sizes.values())
    least = limits.replicas - limits.max_unavailable
    removable = total - least - (new.replicas - new.available)
    if removable <= 0:
        return sizes
    for each in old:
        unhealthy = min(removable, max(0, each.replicas - each.available))
        sizes[each.name] -= unhealthy
        removable -= unhealthy
    spare = new.available + sum(min(each.available, sizes[each.name]) for each in old) - least
    for each in old:
        cut = min(spare, sizes[each.name])
        if cut > 0:
            sizes[each.name] -= cut
            spare -= cut
    return sizes


def share_out(sets: Sequence[SetState], limits: Bounds, *, before: int) -> dict[str, int]:
    """Spread a new number of replicas over the sets of a rollout in proportion to their sizes.

    Args:
        sets: sets that have replicas, newest first.
        limits: what the Deployment asks for now.
        before: replicas and surge together as the sets last knew them.
    """
    sizes = {each.name: each.replicas for each in sets}
    allowed = limits.replicas + limits.max_surge if limits.replicas else 0
    left = allowed - sum(sizes.values())
    ordered = sorted(sets, key=lambda each: -each.replicas)
    growing = left > 0
    for each in ordered:
        if left == 0:
            break
        wanted = _rounded(Fraction(each.replicas * allowed, before or 1)) - each.replicas
        step = max(0, min(wanted, left)) if growing else min(0, max(wanted, left))
        sizes[each.name] += step
        left -= step
    if left and ordered:
        first = ordered[0].name
        sizes[first] = max(0, sizes[first] + left)
    return sizes


def _rounded(value: Fraction) -> int:
    return int(value + Fraction(1, 2))
