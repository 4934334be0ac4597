"""Resource quotas: how many pods a namespace may hold. Of all that a quota can limit, only `pods` is modeled."""

from kinema_sim.api.errors import ApiError, about
from kinema_sim.controllers.queue import Turn, WorkQueue
from kinema_sim.engine.kinds import POD, RESOURCE_QUOTA, Kind
from kinema_sim.engine.objects import Key, Obj, is_finished, key_of, name_of, namespace_of
from kinema_sim.engine.store import Change, Store


class QuotaController:
    """Keeps the status of every ResourceQuota true, and refuses pods beyond it.

    Install with `store.admit_with(quotas.admit)`.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue = WorkQueue(store.loop, Turn.BUDGET, self.sync)
        store.subscribe(self.note)

    def note(self, change: Change) -> None:
        """Queue the quotas that a change concerns."""
        if change.kind is RESOURCE_QUOTA and change.type != "DELETED":
            self._queue.add(key_of(change.new))
        elif change.kind is POD:
            for quota in self.store.sorted(RESOURCE_QUOTA, namespace_of(change.new)):
                self._queue.add(key_of(quota))

    def sync(self, key: Key) -> None:
        """Count one quota's pods."""
        quota = self.store.find(RESOURCE_QUOTA, key)
        if quota is None:
            return
        hard = quota["spec"].get("hard") or {}
        used = {"pods": str(self._pods(key[0]))} if "pods" in hard else {}
        self.store.edit(RESOURCE_QUOTA, key, lambda draft: draft.update(status={"hard": hard, "used": used}))

    def admit(self, kind: Kind, obj: Obj) -> None:
        """Refuse a pod that is one too many.

        Raises:
            ApiError: 403, it would exceed a quota.
        """
        if kind is not POD:
            return
        used = self._pods(namespace_of(obj))
        for quota in self.store.sorted(RESOURCE_QUOTA, namespace_of(obj)):
            limit = (quota["spec"].get("hard") or {}).get("pods")
            if limit is not None and used >= int(limit):
                amounts = f"requested: pods=1, used: pods={used}, limited: pods={limit}"
                why = f"exceeded quota: {name_of(quota)}, {amounts}"
                message = f'pods "{name_of(obj)}" is forbidden: {why}'
                raise ApiError(403, message, details=about(POD, name_of(obj)))

    def _pods(self, namespace: str) -> int:
        return sum(1 for pod in self.store.pods_in(namespace) if not is_finished(pod))
