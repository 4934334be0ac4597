"""What a solution of the exact model is worth: nodes, moves, and wishes about nodes and other pods in weight points."""

from __future__ import annotations

from collections.abc import Sequence

from kinema_optimizer.adapters.exact_layout import ExactLayout, Sum, column, total
from kinema_optimizer.logic.tiny import NOWHERE, Wish


def worth(layout: ExactLayout) -> Sum:
    """What a solution costs, what pods give up and moves priced, in worth units; nodes that must stay left out.

    Adds columns and rows: to be asked once for each model.
    """
    problem = layout.problem
    found = Sum().add(Sum(layout.price()), problem.price_unit / problem.worth_unit)
    if problem.choosy:
        points = total([_disliked(layout), *(_given_up(layout, wish) for wish in problem.wishes)])
        found.add(points, problem.point_price / problem.worth_unit)
    for index, kind in enumerate(problem.kinds):
        if kind.move_price:
            found.add(layout.moved(index), kind.move_price / problem.worth_unit)
    return found


def _disliked(layout: ExactLayout) -> Sum:
    """Points that pods give up by the nodes that they are on."""
    found = Sum()
    for index, kind in enumerate(layout.problem.kinds):
        for number, site in enumerate(layout.sites) if kind.disliked_nodes else ():
            live = site.node is not None
            points = kind.disliked_nodes[site.node or 0] if live else kind.disliked_machines[site.machine or 0]
            if points:
                found.add(layout.pods(index, number), float(points))
    return found


def _given_up(layout: ExactLayout, wish: Wish) -> Sum:
    """Points that pods give up by whom they share a domain with, or do not."""
    found = Sum()
    for sites in layout.domains(wish.census.zoning):
        for kind in sorted(wish.holders):
            found.add(_unmet(layout, wish, kind, sites), float(wish.weight))
    if wish.near:
        for kind in sorted(wish.holders):
            found.add(total(layout.pods(kind, site) for site in _nowhere(layout, wish)), float(wish.weight))
    return found


def _nowhere(layout: ExactLayout, wish: Wish) -> Sequence[int]:
    zoning = wish.census.zoning
    return [
        number
        for number, site in enumerate(layout.sites)
        if (zoning.nodes[site.node] if site.node is not None else zoning.machines[site.machine or 0]) == NOWHERE
    ]


def _unmet(layout: ExactLayout, wish: Wish, kind: int, sites: Sequence[int]) -> Sum:
    """How many of the kind's pods in the domain the wish does not hold for: all of them or none."""
    here = total(layout.pods(kind, site) for site in sites)
    if not here.terms and not here.constant:
        return Sum()
    pods, own = float(len(layout.problem.kinds[kind].pods)), float(kind in wish.census.kinds)
    count, flag = layout.counted(wish.census, sites), layout.flag()
    unmet = column(layout.model.column(pods))
    if wish.near:  # the flag needs somebody else counted, and spares all
        layout.row(Sum().add(count).add(flag, -1.0 - own), lower=0.0)
        layout.row(Sum().add(unmet).add(here, -1.0).add(flag, pods), lower=0.0)
    else:  # anybody else counted sets the flag, which takes all
        most = float(sum(len(layout.problem.kinds[k].pods) for k in wish.census.kinds) + sum(wish.census.others) + 1)
        layout.row(Sum().add(count).add(flag, -most), upper=own)
        layout.row(Sum().add(unmet).add(here, -1.0).add(flag, -pods), lower=-pods)
    return unmet
