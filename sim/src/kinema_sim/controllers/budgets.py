"""Disruption budgets and resource quotas: how many pods may go right now, and how many a namespace may hold."""

from kinema_sim.api.errors import ApiError, about
from kinema_sim.controllers.base import Controller, Priority
from kinema_sim.controllers.deployment import scaled
from kinema_sim.engine.clock import parse_stamp
from kinema_sim.engine.kinds import DEPLOYMENT, PDB, POD, REPLICA_SET, RESOURCE_QUOTA, STATEFUL_SET, Kind
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
from kinema_sim.engine.store import Change

_FORGET_MS = 120_000
"""An eviction that was allowed but never executed counts for this long."""

_SCALED = (REPLICA_SET, DEPLOYMENT, STATEFUL_SET)


class BudgetController(Controller):
    """Keeps the status of every PodDisruptionBudget true."""

    kind = PDB
    priority = Priority.BUDGET

    def note(self, change: Change) -> None:
        """Queue the budgets that a change concerns."""
        super().note(change)
        if change.kind is POD:
            labels = labels_of(change.new)
            for budget in self.store.sorted(PDB, namespace_of(change.new)):
                if matches(budget["spec"].get("selector"), labels):
                    self._queue.add(key_of(budget))
        elif change.kind in _SCALED:
            labels = labels_of(change.new["spec"]["template"])
            for budget in self.store.sorted(PDB, namespace_of(change.new)):
                if matches(budget["spec"].get("selector"), labels):
                    self._queue.add(key_of(budget))

    def sync(self, key: Key, found: Obj) -> None:
        """Compute one budget's status."""
        selector = found["spec"].get("selector")
        pods = [pod for pod in self.store.pods_in(key[0]) if matches(selector, labels_of(pod)) and not is_finished(pod)]
        expected, desired = self._wanted(found["spec"], pods)
        disrupted = self._disrupted(found, pods)
        healthy = sum(1 for pod in pods if is_ready(pod) and not is_terminating(pod) and name_of(pod) not in disrupted)
        allowed = max(0, healthy - desired) if expected else 0
        status: Obj = {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "observedGeneration": found["metadata"].get("generation", 1),
            "conditions": (found.get("status") or {}).get("conditions") or [],
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


class QuotaController(Controller):
    """Keeps the status of every ResourceQuota true, and refuses pods beyond it.

    Install with `store.admit_with(quotas.admit)`.
    """

    kind = RESOURCE_QUOTA
    priority = Priority.BUDGET

    def note(self, change: Change) -> None:
        """Queue the quotas that a change concerns."""
        super().note(change)
        if change.kind is POD:
            for quota in self.store.sorted(RESOURCE_QUOTA, namespace_of(change.new)):
                self._queue.add(key_of(quota))

    def sync(self, key: Key, found: Obj) -> None:
        """Count one quota's pods."""
        hard = found["spec"].get("hard") or {}
        used = {"pods": str(self._pods(key[0]))} if "pods" in hard else {}
        self.store.edit(RESOURCE_QUOTA, key, lambda draft: draft.update(status={"hard": hard, "used": used}))

    def admit(self, kind: Kind, obj: Obj) -> None:
        """Refuse a pod that is one too many.

        Raises:
            ApiError: 403, it would exceed a quota.
        """
        if kind is not POD:
            return
        for quota in self.store.sorted(RESOURCE_QUOTA, namespace_of(obj)):
            limit = (quota["spec"].get("hard") or {}).get("pods")
            if limit is None:
                continue
            used = self._pods(namespace_of(obj))
            if used >= int(limit):
                amounts = f"requested: pods=1, used: pods={used}, limited: pods={limit}"
                why = f"exceeded quota: {name_of(quota)}, {amounts}"
                message = f'pods "{name_of(obj)}" is forbidden: {why}'
                raise ApiError(403, message, details=about(POD, name_of(obj)))

    def _pods(self, namespace: str) -> int:
        return sum(1 for pod in self.store.pods_in(namespace) if not is_finished(pod))
