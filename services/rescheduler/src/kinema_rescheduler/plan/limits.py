"""Limits on executions that an operator can set: how fast, how long and how often."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

import msgspec

from kinema_core.events import StepKind
from kinema_core.ranges import NotNegative, Share, between, check_ranges

_SHARE: Final = re.compile(r"([1-9][0-9]?|100)%")
_Number: TypeAlias = Annotated[int, between(1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of an execution. Seconds count cluster time."""

    execution_seconds: NotNegative = 7200.0
    """Deadline of the whole plan."""
    start_seconds: NotNegative = 300.0
    """A plan that was accepted longer ago and never begun is stale."""
    boot_seconds: NotNegative = 900.0
    """Deadline of the provider's operation that boots a node."""
    node_ready_seconds: NotNegative = 900.0
    """Maximum time until a booted node is Ready."""
    pods_ready_seconds: NotNegative = 600.0
    """Maximum time until new pods are Ready, those of rolling updates included."""
    refused_seconds: NotNegative = 15.0
    """Time for which a controller may report that it cannot create pods, or kube-scheduler that it can bind them to no
    node: a passing cause, as two writers at one quota, is over by then."""
    unschedulable_seconds: NotNegative = 15.0
    """Time for which a new pod may wait where only Kinema's taint keeps it off a node with room, or a node on sale
    would take it: then the plan is aborted."""
    roll_seconds: NotNegative = 3600.0
    """Maximum duration of a rolling update that makes progress."""
    resize_in_place: bool = True
    """Requests are changed while the pods run, where the plan leaves them on their nodes and their kubelets do it
    without a restart; false: always by a rolling update."""
    resize_seconds: NotNegative = 300.0
    """Maximum duration of that. A resize that its kubelet defers or refuses is followed by a rolling update."""
    max_moves_fraction: Share = 0.25
    """Most pods moved or restarted by one plan, as a share of all pods; above 0, ten pods always may. Where kubelets
    refuse resizes, rolling updates follow only within this. The optimizer needs the same value."""
    evict_seconds: NotNegative = 900.0
    """Time for which a disruption budget may refuse an eviction."""
    delete_seconds: NotNegative = 600.0
    """Deadline of deleting a node, of its vanishing from the cluster, and of its letting go of volumes before."""
    write_seconds: NotNegative = 120.0
    """Deadline of every other single write to the cluster."""
    blocked_seconds: NotNegative = 600.0
    """Time for which a move may wait for a healthy workload or for room while nothing else goes on. Where all moves
    that are left wait for what nothing under way would bring, `no_room_seconds` at most."""
    no_room_seconds: NotNegative = 15.0
    """Time for which moves wait for room that nothing under way would free, or for workloads that are not whole. Then
    the plan ends after the moves under way, and what remains is planned again. A plan that is done waits as long for
    the end of a mark by which others kept a node."""
    terminating_seconds: NotNegative = 600.0
    """Time for which a node waits for terminating pods."""
    observed_seconds: NotNegative = 60.0
    """After this long, Kinema's changes must be visible in the cluster state."""
    missing_share: Share = 0.1
    """Share of the Ready replicas, or of the nodes, that may be missing from the state. Above it the state contradicts
    itself, and no step of a plan begins."""
    blind_seconds: NotNegative = 120.0
    """Time for which a plan waits for a state that is unknown (the observer is away, or cannot see a kind). Then the
    plan is aborted and Kinema's marks are reverted without a state. A plan that an operator aborts does not wait."""
    steer_seconds: NotNegative = 2.0
    """Time after which the admission policy sees the preferred nodes of new pods."""
    landing_seconds: NotNegative = 5.0
    """Time for which a new pod may be kept from other nodes than the planned ones; after it kube-scheduler may bind it
    anywhere. It tries a pod after 0, 1, 3, 7 and 15 seconds. 0: the planned nodes are only preferred."""
    retry_seconds: NotNegative = 5.0
    """First pause before a step is tried again; it doubles up to a minute."""
    attempts: _Number = 3
    """Number of attempts at a step."""
    rounds: _Number = 5
    """Number of moves of one workload that may have no effect, for example because its autoscaler removed the new
    pods. One where KEDA sets the autoscaler's limits."""
    max_parallel_moves: _Number = 32
    """Number of workloads that move at the same time."""
    max_parallel_marks: _Number = 32
    """Number of nodes that are marked at the same time."""
    max_closed_nodes: int | str = "10%"
    """Number of nodes that are tainted at a time until they are gone or open again, or a share of the nodes such as
    `10%`; at least 1. More are tainted only where the move of a pod waits for one that is on another node."""
    move_jobs: bool = False
    """Pods of Jobs may be moved. The optimizer needs the same value."""

    def __post_init__(self) -> None:
        """Refuse what would stop every plan."""
        check_ranges(self, "limits.")
        limit = self.max_closed_nodes
        if limit < 1 if isinstance(limit, int) else not _SHARE.fullmatch(limit):
            raise ValueError(f"limits.max_closed_nodes is {limit}: give a number from 1, or a share from 1% to 100%")

    def deadline_seconds(self, kind: StepKind) -> float:
        """Return how long a step of that kind may take, with what it waits for."""
        waiting = {
            "boot": self.boot_seconds,
            "surge-up": self.pods_ready_seconds,
            "resize": self.resize_seconds,
            "roll": self.roll_seconds,
            "evict": self.evict_seconds,
            "delete": self.delete_seconds,
        }
        return waiting.get(kind, self.write_seconds)

    def pause_seconds(self, attempt: int) -> float:
        """Pause after the `attempt`th try (1, 2, …)."""
        return min(60.0, self.retry_seconds * 2.0 ** min(attempt - 1, 10))
