"""The scheduler: takes pending pods in order and binds each to its best node."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kinema_sim.controllers.base import Priority
from kinema_sim.engine.kinds import POD, REPLICA_SET, STATEFUL_SET
from kinema_sim.engine.objects import Key, Obj, condition, set_condition, uid_of
from kinema_sim.engine.store import Change, Store
from kinema_sim.scheduler.books import Books, NodeInfo, PodInfo
from kinema_sim.scheduler.filters import first_reason, look_around
from kinema_sim.scheduler.scores import SCORERS, Scorer

CYCLE_MS = 50
"""From a change that may help until the pending pods are looked at."""
_SPREAD = (REPLICA_SET, STATEFUL_SET)
"""Controllers over whose pods default constraints count."""


class Scheduler:
    """Binds pending pods; those that fit nowhere wait for a change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.books = Books(store)
        self.scorers: tuple[tuple[Scorer, int], ...] = SCORERS
        """Plugins and their weights, as the scheduler is configured."""
        self.default_constraints: tuple[Obj, ...] = ()
        """Topology spread constraints of pods that have none of their own, without selectors, as it is configured."""
        self._armed = False
        store.subscribe(self._note)

    def _note(self, change: Change) -> None:
        helps = self.books.note(change)
        if helps and not self._armed and self.books.pending:
            self._armed = True
            self._store.loop.after(CYCLE_MS, self._cycle, priority=Priority.SCHEDULER)

    def _cycle(self) -> None:
        self._armed = False
        hopeless: set[tuple[object, ...]] = set()
        for pod in sorted(self.books.pending.values(), key=self._order):
            alike = _alike(pod)
            if pod.terminating or alike in hopeless:
                continue
            best, reasons = self.choose(pod)
            if best is None:
                if alike:
                    hopeless.add(alike)
                self._report(pod.key, reasons)
            else:
                self._bind(pod.key, best)

    def _order(self, pod: PodInfo) -> tuple[int, str, int]:
        obj = self._store.find(POD, pod.key)
        created = obj["metadata"]["creationTimestamp"] if obj else ""
        version = int(obj["metadata"]["resourceVersion"]) if obj else 0
        return -pod.priority, created, version

    def choose(self, pod: PodInfo) -> tuple[str | None, Counter[str]]:
        """Choose a node for a pod: its name, or None; and why the other nodes do not do, counted."""
        pod = self._constrained(pod)
        nodes = self._candidates(pod)
        around = look_around(pod, self.books, nodes)
        reasons: Counter[str] = Counter()
        feasible: list[NodeInfo] = []
        for node in nodes:
            why = first_reason(pod, node) or around.refuses(node)
            if why is None:
                feasible.append(node)
            else:
                reasons[why] += 1
        if not feasible:
            return None, reasons
        return self._best(pod, feasible), reasons

    def _constrained(self, pod: PodInfo) -> PodInfo:
        """Return the pod with the default constraints over the pods of its controller, if those are for it."""
        if not self.default_constraints or pod.spread:
            return pod
        owner = next((one for kind in _SPREAD for one in self._store.each(kind) if uid_of(one) == pod.owner), None)
        if owner is None:
            return pod
        selector = owner["spec"]["selector"]
        return replace(pod, spread=tuple({**rule, "labelSelector": selector} for rule in self.default_constraints))

    def _candidates(self, pod: PodInfo) -> list[NodeInfo]:
        """A daemon set's pod names its one node: do not look at all the others."""
        pinned = pod.required is not None and len(pod.required) == 1 and not pod.spread and not pod.affinity
        fields: Sequence[Obj] = (pod.required[0].get("matchFields") or ()) if pod.required and pinned else ()
        if fields and fields[0].get("operator") == "In" and len(fields[0].get("values") or ()) == 1:
            node = self.books.node(fields[0]["values"][0])
            return [node] if node else []
        return self.books.nodes()

    def _best(self, pod: PodInfo, feasible: Sequence[NodeInfo]) -> str:
        if len(feasible) == 1:
            return feasible[0].name
        totals = [0] * len(feasible)
        for scorer, weight in self.scorers:
            for index, score in enumerate(scorer(pod, feasible, self.books)):
                totals[index] += weight * score
        return min(zip(totals, feasible, strict=True), key=lambda entry: (-entry[0], entry[1].name))[1].name

    def _bind(self, key: Key, node: str) -> None:
        now = self._store.loop.now

        def bind(draft: Obj) -> None:
            draft["spec"]["nodeName"] = node
            set_condition(draft, {"type": "PodScheduled", "status": "True"}, now)

        self._store.edit(POD, key, bind)

    def _report(self, key: Key, reasons: Counter[str]) -> None:
        listed = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        message = f"0/{sum(reasons.values())} nodes are available: {listed or 'no nodes'}."
        entry = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod = self._store.find(POD, key)
        old = condition(pod, "PodScheduled") if pod else None
        if old is not None and old.get("message") == message:
            return
        now = self._store.loop.now
        self._store.edit_status(POD, key, lambda draft: set_condition(draft, entry, now))


def _alike(pod: PodInfo) -> tuple[object, ...]:
    """Pods of one set with the same figures fail alike; empty for pods that may differ."""
    if not pod.owner or pod.owner_kind == "DaemonSet":
        return ()
    return pod.owner, tuple(sorted(pod.requests.items())), pod.key[0]
