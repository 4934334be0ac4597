"""From marks to limits: how many pods of a class one node takes, and which classes it does not bring together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product

import numpy as np

from kinema_optimizer.logic.packing import UNLIMITED
from kinema_optimizer.logic.problem import Flags, Ints, frozen
from kinema_optimizer.logic.ties import Marks


def caps(marks: Sequence[Marks], most: Mapping[int, int]) -> Ints:
    """(C,): most pods of each class on one node; `most` by number of the spread constraint."""
    found = [
        min([1 if one.keeps_away & one.kept_away else UNLIMITED, *(most[rule] for rule in one.counted)])
        for one in marks
    ]
    return frozen(found, (len(found),))


def true_caps(marks: Sequence[Marks], present: Ints) -> Ints:
    """(C,): what no plan exceeds: a class that keeps itself away, unless `present` (C,) of it share a node now."""
    found = [
        max(1, there) if one.keeps_away & one.kept_away else UNLIMITED
        for one, there in zip(marks, present.tolist(), strict=True)
    ]
    return frozen(found, (len(found),))


def conflicts(marks: Sequence[Marks], meets: Sequence[int], places: Flags) -> Ints:
    """(P, 2): pairs of classes that no node may newly bring together, smaller first, sorted.

    Several classes that one spread constraint counts exclude each other: a node then holds no more than the limit of
    one of them. Classes that can be at no common site need no pair: `places` (K, S) is where the classes of a kind can
    be, `meets` the kind of each class.
    """
    together: dict[tuple[int, int], bool] = {}
    found: set[tuple[int, int]] = set()
    for a, b in _pairs(marks):
        kinds = (min(meets[a], meets[b]), max(meets[a], meets[b]))
        if kinds not in together:
            together[kinds] = bool((places[kinds[0]] & places[kinds[1]]).any())
        if together[kinds]:
            found.add((a, b) if a < b else (b, a))
    return frozen(np.array(sorted(found), dtype=np.int64).reshape(len(found), 2), (len(found), 2))


def _pairs(marks: Sequence[Marks]) -> Iterable[tuple[int, int]]:
    keeps, kept, counted = (_by_rule(marks, what) for what in range(3))
    for rule, carriers in keeps.items():
        yield from ((a, b) for a, b in product(carriers, kept.get(rule, ())) if a != b)
    for members in counted.values():
        yield from combinations(members, 2)


def _by_rule(marks: Sequence[Marks], what: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for c, one in enumerate(marks):
        for rule in sorted((one.keeps_away, one.kept_away, one.counted)[what]):
            found.setdefault(rule, []).append(c)
    return found
