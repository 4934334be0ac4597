"""Assembly of the sparse instance from the members of its classes: `build_instance`.

Marks of rules become limits: how many pods of a class one node takes (`caps`), and which classes it does not bring
together (`conflicts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product

import numpy as np

from kinema_core.model.stock import most_of
from kinema_optimizer.problem.arrays import Flags, Ints, frozen
from kinema_optimizer.problem.classes import Draft
from kinema_optimizer.problem.instance import UNLIMITED, Content, Instance, content
from kinema_optimizer.problem.node_types import Machines
from kinema_optimizer.problem.pods import Mover, PodClass
from kinema_optimizer.problem.rules.reduced import RuleTags
from kinema_optimizer.problem.rules.redundancy import caps_by_redundancy, caps_in_every_plan


def caps(marks: Sequence[RuleTags], most: Mapping[int, int]) -> Ints:
    """(C,): most pods of each class on one node; `most` by number of the spread constraint."""
    found = [
        min([1 if one.keeps_away & one.kept_away else UNLIMITED, *(most[rule] for rule in one.counted)])
        for one in marks
    ]
    return frozen(found, (len(found),))


def true_caps(marks: Sequence[RuleTags], present: Ints) -> Ints:
    """(C,): what no plan exceeds: a class that keeps itself away, unless `present` (C,) of it share a node now."""
    found = [
        max(1, there) if one.keeps_away & one.kept_away else UNLIMITED
        for one, there in zip(marks, present.tolist(), strict=True)
    ]
    return frozen(found, (len(found),))


def _caps(draft: Draft, present: Ints, *, free: bool) -> Ints:
    """(C,): most pods of each class on one node, or, if `free`, what no plan exceeds; see `build_instance`."""
    if free:
        every = caps_in_every_plan(draft.question, draft.members)
        return np.minimum(true_caps(draft.marks, present), np.maximum(every, present))
    apart = caps_by_redundancy(draft.members, draft.sites.ties.apart)
    return np.minimum(caps(draft.marks, draft.sites.ties.most), apart)


def conflicts(marks: Sequence[RuleTags], meets: Sequence[int], places: Flags) -> Ints:
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


def _pairs(marks: Sequence[RuleTags]) -> Iterable[tuple[int, int]]:
    keeps, kept, counted = (_by_rule(marks, what) for what in range(3))
    for rule, owners in keeps.items():
        yield from ((a, b) for a, b in product(owners, kept.get(rule, ())) if a != b)
    for members in counted.values():
        yield from combinations(members, 2)


def _by_rule(marks: Sequence[RuleTags], what: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for c, one in enumerate(marks):
        for rule in sorted((one.keeps_away, one.kept_away, one.counted)[what]):
            found.setdefault(rule, []).append(c)
    return found


def build_instance(
    draft: Draft,
    classes: Sequence[PodClass],
    machines: Machines,
    *,
    fixed: Flags,
    bound: Flags,
    free: bool,
    updates: Sequence[str] = (),
) -> Instance:
    """Build the problem with every rule, or, if `free`, a relaxation that no plan of any kind can beat.

    Rolling updates of the workloads `updates` (keys) are in it. Without any, nodes with pods that would move by one are
    to be among `fixed` (E,) and `bound` (E,), whose pods stay. If `free`, only rules about nodes count, and of those
    between pods how many of one class a node can ever hold; and pods that are replaced leave their room to others, as
    they do in the end.
    """
    nodes, kinds = draft.question.cluster.nodes, len(classes)
    stays = _content(draft, [one.stays if updates else (*one.stays, *one.updated) for one in classes])
    rollouts = [[[one for one in each.updated if one.workload == key] for each in classes] for key in updates]
    admits, rows = _rows(draft, free=free)
    offers = list(machines.rows)
    firsts = [draft.question.offers[row] for row in offers]
    return Instance(
        resources=draft.resources,
        requests=draft.requests,
        pending=frozen([len(one.pending) for one in classes], (kinds,)),
        rolled=frozen([len(one.rolled) for one in classes], (kinds,)),
        cap=_caps(draft, _crowds(stays, kinds), free=free),
        conflicts=conflict_pairs(draft, classes) if not free else frozen([], (0, 2)),
        disruption_cost=draft.disruption_costs,
        pods=frozen([1 + len(members[0].others) if members else 1 for members in draft.members], (kinds,)),
        # Those who need company of it, and a spread that is even because every node has some, count on where it is.
        releasable=np.array([not (one.affinity_target or one.counted) for one in draft.marks], dtype=bool),
        admits=admits,
        nodes=tuple(node.name for node in nodes),
        node_price=frozen([draft.sites.prices[node.name] for node in nodes], (len(nodes),)),
        node_room=_in_the_end(draft) if free else draft.node_room,
        node_row=frozen(rows[: len(nodes)], (len(nodes),)),
        node_fixed=fixed,
        node_keeps_all=bound,
        stays=stays,
        old=_content(draft, [one.rolled for one in classes]),
        machines=tuple(same[0].name for same in machines.offers),
        machine_price=frozen([first.micro_usd_per_hour for first in firsts], (len(firsts),)),
        machine_room=frozen(draft.offer_room[offers], (len(offers), len(draft.resources))),
        machine_row=frozen(rows[len(nodes) :][offers], (len(offers),)),
        machine_available=frozen(
            [UNLIMITED if (most := most_of(first)) is None else most for first in firsts], (len(firsts),)
        ),
        pools=machines.pools,
        rollouts=tuple(_content(draft, members) for members in rollouts),
    )


def _in_the_end(draft: Draft) -> Ints:
    """(E, R): free for newcomers once old copies have gone; a later wave may count on that."""
    return np.maximum(draft.node_room, 0) + draft.replaced if draft.resizes else draft.node_room


def conflict_pairs(draft: Draft, classes: Sequence[PodClass]) -> Ints:
    """(P, 2): classes that may not meet; where a class can be is where it is admitted, and where it is."""
    places = draft.admits
    if any(any(one) for one in draft.marks):
        index = {node.name: e for e, node in enumerate(draft.question.cluster.nodes)}
        places = draft.admits.copy()
        for kind, one in zip(draft.kinds.tolist(), classes, strict=True):
            for mover in (*one.stays, *one.updated):
                places[kind, index[mover.pod.node or ""]] = True
    return conflicts(draft.marks, draft.kinds.tolist(), places)


def _content(draft: Draft, members: Sequence[Sequence[Mover]]) -> Content:
    """Return how many of these pods of each class each live node has."""
    index = {node.name: e for e, node in enumerate(draft.question.cluster.nodes)}
    rows: list[dict[int, int]] = [{} for _ in index]
    for c, movers in enumerate(members):
        for mover in movers:
            row = rows[index[mover.pod.node or ""]]
            row[c] = row.get(c, 0) + 1
    return content(rows)


def _crowds(stays: Content, kinds: int) -> Ints:
    """(C,): most pods of each class that share a node now."""
    found = np.zeros(kinds, dtype=np.int64)
    np.maximum.at(found, stays.classes, stays.counts)
    return found


def _rows(draft: Draft, *, free: bool) -> tuple[Flags, Ints]:
    """Distinct admissions (A, C), and that of each site (S,)."""
    columns = np.ascontiguousarray((draft.could if free else draft.admits).T)
    banned = {} if free else draft.banned
    known: dict[tuple[bytes, bytes], int] = {}
    rows = np.zeros(len(columns), dtype=np.int64)
    distinct: list[Flags] = []
    for index, column in enumerate(columns):
        bans = banned.get(index)
        key = (column.tobytes(), b"" if bans is None else bans.tobytes())
        if key not in known:
            known[key] = len(distinct)
            admitted = column[draft.kinds]
            distinct.append(admitted if bans is None else admitted & ~bans)
        rows[index] = known[key]
    return np.array(distinct, dtype=bool).reshape(len(distinct), len(draft.kinds)), rows
