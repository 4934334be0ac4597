"""The limits that a plan must keep, as an operator sets them."""

from __future__ import annotations

from typing import Literal

import msgspec

from kinema_core.model.schedule import Schedule
from kinema_core.model.spot_share import SpotShare
from kinema_core.ranges import NotNegative, Share, check_ranges


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits that an accepted plan keeps. Seconds count cluster time; shares run from 0 to 1."""

    min_savings_fraction: Share = 0.10
    """Least saving as a share of the current cost (thesis, algorithm 7). The optimizer needs the same value."""
    max_drift_fraction: Share = 0.05
    """Share of pods and nodes that came or went since the plan's state; the plan must stay strictly under it."""
    cooldown_seconds: NotNegative = 60.0
    """Rest between the end of one execution and the next reschedule plan."""
    max_cooldown_seconds: NotNegative = 3600.0
    """The rest doubles with each execution in a row that was aborted, or left workloads and saved less than half of
    what it was to save, but not beyond this."""
    missing_share: Share = 0.1
    """Share of the Ready replicas, or of the nodes, that may be missing from the state. Above it the state contradicts
    itself, and every plan that saves is rejected. An operator who knows the cause may set a larger share."""
    max_plan_age_seconds: NotNegative = 300.0
    """A proposal older than this is stale."""
    approval_seconds: NotNegative = 3600.0
    """Time for which a plan that waits may be approved."""
    approval: Literal["automatic", "required"] = "required"
    """`required`: plans to save, balance or follow a policy wait for `kinema approve`; those for pending pods and other
    missing room, and for safety, do not. `automatic`: none waits."""
    expected_plan_lifetime_seconds: NotNegative = 3600.0
    """Time for which the new node set is expected to pay before the next change."""
    transition_seconds: NotNegative = 300.0
    """Time for which old and new nodes are expected to run side by side. The time from order to delivery is added, as
    earlier boots of the same offer took, or of all offers where it was never booted. The optimizer needs the same
    value."""
    restart_price_usd: NotNegative = 0.0001
    """Assumed cost of one restarted pod. The optimizer needs the same value."""
    restart_watt_hours: NotNegative = 0.5
    """The same for plans that save energy: what the price above buys at $0.20 per kWh."""
    max_moves_fraction: Share = 0.25
    """Most pods moved or restarted by one plan, as a share of all pods; above 0, ten pods always may, and those
    of a cluster's only node. An operator may approve a plan with more. Optimizer and rescheduler need the same
    value."""
    resize_in_place: bool = True
    """Pods that kubelets can resize while they run are no restarts where only their requests change. The optimizer
    needs the same value (`planning.resize_in_place`)."""
    redundancy: bool = True
    """A plan leaves no workload that is on several nodes on one, nor in fewer zones than now; pods of Jobs aside. The
    optimizer needs the same value."""
    move_jobs: bool = False
    """Pods of Jobs may be moved. The optimizer needs the same value."""
    allow_spot: bool = False
    """Pods may be put on spot capacity without asking for it. The optimizer needs the same value."""
    spot: SpotShare = SpotShare()
    """Limits on the share of a workload's pods on spot capacity. The optimizer needs the same values."""
    scope: tuple[dict[str, str], ...] = ()
    """Nodes that are Kinema's: those that have all labels of any of these; empty: every node. The optimizer needs the
    same value."""
    windows: tuple[Schedule, ...] = ()
    """Times at which reschedule plans may be executed; none: at any time."""

    def __post_init__(self) -> None:
        check_ranges(self, "limits.")
