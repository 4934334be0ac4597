"""A plan kept in a file: `kinema plan --out` writes it, `kinema diff` compares it with the state of now.

The file is what `kinema plan -o json` prints. `kinema approve FILE` publishes the very plan in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kinema_cli.inputs import (
    InputError,
    PriceChoice,
    UsageError,
    check_prices,
    fail,
    input_warnings,
    labels_in,
    prices_of,
    scope_warnings,
    snapshot_of,
)
from kinema_cli.output import Format, emit, hourly, listed, print_warning, table
from kinema_core.events import EventError, Plan, decode_plan

if TYPE_CHECKING:
    from kinema_cli.snapshot.file import Snapshot
    from kinema_core.events import Offer

_SCHEMA: Final = "kinema.plan/v1"
_NAMED: Final = 5
_BEFORE_COSTS: Final = frozenset({"nothing-to-do", "priced"})
"""Rules of the decider that come before any cost is worked out."""
"""Pods or nodes that a difference names."""
CONFLICT: Final = 4


def write_plan(path: Path, value: dict[str, Any]) -> None:
    """Write the plan as `kinema plan -o json` prints it; raises InputError."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    except OSError as error:
        raise InputError(f"--out {path}: the plan cannot be written: {error.strerror}") from error


def read_plan(path: Path) -> Plan:
    """Return the plan in a file; raises InputError."""
    try:
        plan = decode_plan(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: the plan cannot be read: {error.strerror}") from error
    except EventError as error:
        raise InputError(f"{path}: no plan of `kinema plan --out`: {error.detail}") from error
    if plan.schema != _SCHEMA:
        raise InputError(f"{path}: schema is {plan.schema!r}; this version reads {_SCHEMA}")
    return plan


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """Options of `kinema diff`."""

    plan: Path
    catalog: Path | None
    discounts: Path | None = None
    offer: str = ""
    snapshot: Path | None = None
    context: str = ""
    kubeconfig: Path | None = None
    move_jobs: bool = False
    allow_spot: bool = False
    scope: tuple[str, ...] = ()
    redundancy: bool = True
    output: Format = Format.TABLE


def run_diff(options: DiffOptions) -> int:
    """Compare; returns 0 where the plan still holds, 4 where it does not, 1 or 2 for inputs that cannot be used."""
    from kinema_core.model.catalog import PriceError

    try:
        plan = read_plan(options.plan)
        found = snapshot_of(options.snapshot, options.context, options.kubeconfig)
        prices = prices_of(PriceChoice(options.catalog, options.discounts, options.offer), found)
        print_warning(
            *check_prices(found, prices),
            *prices.warnings,
            *input_warnings(found),
            *scope_warnings(options.scope, found),
        )
        changes, reasons = differences(plan, found, prices.offers, options)
    except (UsageError, InputError, PriceError) as error:
        return fail(error)
    value = {"holds": not reasons, "changes": dict(changes), "reasons": list(reasons)}
    verdict = [("holds", "yes" if not reasons else "no"), *(("because", reason) for reason in reasons)]
    emit(value, options.output, lambda: [table("Plan", ("what", "now"), [*changes, *verdict])])
    return 0 if not reasons else CONFLICT


def differences(
    plan: Plan, found: Snapshot, offers: tuple[Offer, ...], options: DiffOptions
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return what differs from the plan's state, and why the decider would reject it now; nothing where it would not.

    The rules are those of the decider at its defaults, for a plan that an operator has approved.
    """
    from kinema_decider.logic.decision_input import DecisionInput
    from kinema_decider.logic.limits import Limits
    from kinema_decider.logic.memory import Memory
    from kinema_decider.logic.rules import first_rejection

    limits = Limits(
        move_jobs=options.move_jobs,
        allow_spot=options.allow_spot,
        redundancy=options.redundancy,
        scope=tuple(labels_in(one) for one in options.scope),
    )
    case = DecisionInput(
        id="",
        plan=plan,
        proposed=found.now,
        approved=True,
        memory=Memory(offers=offers),
        cluster=found.cluster,
        now=found.now,
        limits=limits,
    )
    rejection = first_rejection(case)
    reasons = () if rejection is None else (f"{rejection.rule}: {rejection.reason}",)
    if (rejection is not None and rejection.rule in _BEFORE_COSTS) or plan.cost.unit == "W":
        return tuple(_changes(plan, found)), reasons
    cost = case.adapted.plan.cost
    return (*_changes(plan, found), ("cost with the plan", f"{hourly(cost.before)} → {hourly(cost.after)}")), reasons


def _changes(plan: Plan, found: Snapshot) -> Iterator[tuple[str, str]]:
    from kinema_core.model.mobility import listed_by_key

    live = {pod.uid: pod for pod in listed_by_key(found.cluster).values()}
    planned = {one.uid: one for one in plan.placements}
    known = planned.keys() | {one.uid for one in plan.unplaced}
    nodes = {node.name for node in plan.nodes if node.action != "boot"}
    present = {node.name for node in found.cluster.nodes}
    elsewhere = [one.pod for uid, one in planned.items() if uid in live and live[uid].node != one.source]
    for what, names in (
        ("pods gone", [one.pod for uid, one in planned.items() if uid not in live]),
        ("pods new", [pod.key for uid, pod in live.items() if uid not in known]),
        ("pods on another node", elsewhere),
        ("nodes gone", sorted(nodes - present)),
        ("nodes new", sorted(present - nodes)),
    ):
        yield what, f"{len(names)}: {listed(names, _NAMED)}" if names else "0"
