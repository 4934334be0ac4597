"""Disruption budgets: how many pods may go right now."""

from kinema_sim.controllers.queue import Turn, WorkQueue
from kinema_sim.controllers.rollout import scaled
from kinema_sim.engine.clock import parse_stamp
from kinema_sim.engine.kinds import DEPLOYMENT, PDB, POD, REPLICA_SET, STATEFUL_SET, Kind
from kinema_sim.engine.objects import (
    Key,
    Obj,
    controller_ref,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    set_condition,
)
from kinema_sim.engine.selectors import matches
from kinema_sim.engine.store import Change, Store

_FORGET_MS = 120_000
"""An eviction that was allowed but never executed counts for this long."""

_SCALED = (REPLICA_SET, DEPLOYMENT, STATEFUL_SET)


class BudgetController:
    """Keeps the status of every PodDisruptionBudget true."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue = WorkQueue(store.loop, Turn.BUDGET, self.sync)
        store.subscribe(self.note)

    def note(self, change: Change) -> None:
        """Queue the budgets that a change concerns."""
        if change.kind is PDB and change.type != "DELETED":
            self._queue.add(key_of(change.new))
        elif change.kind is POD:
            labels = labels_of(change.new)
            for budget in self.store.sorted(PDB, namespace_of(change.new)):
                if matches(budget["spec"].get("selector"), labels):
                    self._queue.add(key_of(budget))
        elif change.kind in _SCALED:
            for budget in self.store.sorted(PDB, namespace_of(change.new)):
                self._queue.add(key_of(budget))

    def sync(self, key: Key) -> None:
        """Compute one budget's status."""
        budget = self.store.find(PDB, key)
        if budget is None:
            return
        selector = budget["spec"].get("selector")
        pods = [pod for pod in self.store.pods_in(key[0]) if matches(selector, labels_of(pod)) and not is_finished(pod)]
        expected, desired = self._wanted(budget["spec"], pods)
        disrupted = self._disrupted(budget, pods)
        healthy = sum(1 for pod in pods if is_ready(pod) and not is_terminating(pod) and name_of(pod) not in disrupted)
        allowed = max(0, healthy - desired) if expected else 0
        status: Obj = {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "observedGeneration": budget["metadata"].get("generation", 1),
            "conditions": (budget.get("status") or {}).get("conditions") or [],
        }
        if disrupted:
            status["disruptedPods"] = disrupted
            self._queue.add(key, delay_ms=_FORGET_MS)
        reason = "SufficientPods" if allowed else "InsufficientPods"
        entry = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": reason,
            "message": "",
            "observedGeneration": status["observedGeneration"],
        }

        def change(draft: Obj) -> None:
            draft["status"] = {**status, "conditions": list(status["conditions"])}
            set_condition(draft, entry, self.store.loop.now)

        self.store.edit(PDB, key, change)

    def _wanted(self, spec: Obj, pods: list[Obj]) -> tuple[int, int]:
        """Give the expected number of pods, and how many of them must stay healthy."""
        least, most_gone = spec.get("minAvailable"), spec.get("maxUnavailable")
        if most_gone is not None:
            expected = self._scale_of(pods)
            return expected, max(0, expected - scaled(most_gone, expected, up=True))
        if isinstance(least, int):
            return len(pods), least
        expected = self._scale_of(pods)
        return expected, scaled(least, expected, up=True)

    def _scale_of(self, pods: list[Obj]) -> int:
        """Add up what the pods' controllers ask for, each counted once."""
        sizes: dict[str, int] = {}
        for pod in pods:
            top = self._top(pod)
            if top is not None:
                sizes[top["metadata"]["uid"]] = int(top["spec"].get("replicas", 1))
        return sum(sizes.values())

    def _top(self, pod: Obj) -> Obj | None:
        owner = self._owner(pod)
        while owner is not None:
            above = self._owner(owner)
            if above is None:
                return owner
            owner = above
        return None

    def _owner(self, obj: Obj) -> Obj | None:
        ref = controller_ref(obj)
        kind: Kind | None = next((each for each in _SCALED if ref is not None and each.name == ref["kind"]), None)
        return None if ref is None or kind is None else self.store.get(kind, namespace_of(obj), ref["name"])

    def _disrupted(self, budget: Obj, pods: list[Obj]) -> dict[str, str]:
        """Keep the evictions that were allowed and have not begun to show."""
        listed: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
        still = {name_of(pod) for pod in pods if not is_terminating(pod)}
        since = self.store.loop.now_ms - _FORGET_MS
        return {name: time for name, time in listed.items() if name in still and parse_stamp(time) > since}
