"""What must hold of the events alone: who may do what, in which order, how often, and until when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

from tests.history.record import JSON, Entry, History

Invariant = Callable[[History], Iterator[str]]

_GRACE: Final = timedelta(seconds=60)
"""What a process may be late with its word: it may have died and been started again."""
_MOST_STATE_AGE: Final = timedelta(minutes=15)
_LONGEST: Final = timedelta(hours=3)
"""Two hours for a plan; its way back is a rolling update of one hour at most."""
_UNDOING: Final = {"surge-down", "revert", "delete", "untaint", "clear-preferred-nodes", "finalize-rollout"}
_WORDS: Final = {"plan-approved", "execution-paused", "execution-resumed"}
"""Of people."""
_DISTURBING: Final = {"surge-up", "surge-down", "evict", "roll"}


def ids_are_unique(history: History) -> Iterator[str]:
    """No id names two events."""
    seen: set[str] = set()
    for entry in history.log:
        if entry.id in seen:
            yield entry.id
        seen.add(entry.id)


def everything_has_a_cause(history: History) -> Iterator[str]:
    """Whatever an event was caused by stands before it; only observations and people's words have no cause."""
    known = {entry.id for entry in history.state}
    for entry in history.log:
        if entry.cause and entry.cause not in known:
            yield f"{entry.id}: nobody said {entry.cause} before"
        if not entry.cause and entry.kind.startswith(("step-", "execution-", "plan-")) and entry.kind not in _WORDS:
            yield f"{entry.id}: without a cause"
        known.add(entry.id)


def accepted_as_proposed(history: History) -> Iterator[str]:
    """A plan is accepted once, after it was proposed and not refused, and a held one by an operator's word only."""
    proposed: set[str] = set()
    over: set[str] = set()
    held: set[str] = set()
    for entry in history.log:
        if entry.kind == "plan-proposed":
            proposed.add(entry.id)
        if entry.kind == "plan-approval-requested":
            held.add(entry.plan)
        if entry.kind == "plan-approved":
            held.discard(entry.plan)
        if entry.kind == "plan-accepted" and (entry.plan not in proposed or entry.plan in over | held):
            yield f"{entry.plan} is accepted, which is not proposed, held, or decided already"
        if entry.kind in {"plan-accepted", "plan-rejected"}:
            over.add(entry.plan)


def approved_first(history: History) -> Iterator[str]:
    """No step of a plan is intended before the plan was accepted, or its one deletion asked for."""
    allowed: set[str] = set()
    for entry in history.log:
        if entry.kind == "plan-accepted":
            allowed.add(entry.plan)
        if entry.kind == "node-deletion-requested":
            allowed.add(entry.id)
        if entry.kind == "step-started" and entry.plan not in allowed:
            yield f"{_step(entry)} of {entry.plan}"


def not_while_paused(history: History) -> Iterator[str]:
    """No plan is accepted during a pause."""
    paused = False
    for entry in history.of("execution-paused", "execution-resumed", "plan-accepted"):
        if entry.kind == "plan-accepted" and paused:
            yield entry.plan
        paused = entry.kind == "execution-paused" or (paused and entry.kind != "execution-resumed")


def one_plan_accepted(history: History) -> Iterator[str]:
    """No plan is accepted before the one that was accepted last has ended."""
    running = ""
    for entry in history.of("plan-accepted", "execution-completed", "execution-aborted"):
        if entry.kind != "plan-accepted":
            running = "" if entry.plan == running else running
        else:
            if running:
                yield f"{entry.plan} while {running} is carried out"
            running = entry.plan


def one_plan_at_a_time(history: History) -> Iterator[str]:
    """From its first step to its end, a plan is alone."""
    running = ""
    for entry in history.of("step-started", "execution-completed", "execution-aborted"):
        if entry.kind != "step-started":
            running = "" if entry.plan == running else running
        elif running and entry.plan != running:
            yield f"{_step(entry)} of {entry.plan} while {running} is carried out"
        else:
            running = entry.plan


def ends_once(history: History) -> Iterator[str]:
    """Every accepted plan comes to one end, after which nothing of it is told."""
    ended: set[str] = set()
    for entry in history.of(
        "step-started", "step-succeeded", "step-failed", "execution-completed", "execution-aborted"
    ):
        if entry.plan in ended:
            yield f"{entry.id} after the end of its plan"
        if entry.kind.startswith("execution-"):
            ended.add(entry.plan)
    yield from (f"{entry.plan} has no end" for entry in history.of("plan-accepted") if entry.plan not in ended)


def one_outcome_for_each_intent(history: History) -> Iterator[str]:
    """Nothing is told of an effect that was not intended, and of each attempt one outcome."""
    open_: dict[tuple[str, str], int] = {}
    for entry in history.log:
        if entry.kind == "step-started":
            key = (entry.plan, _step(entry))
            if key in open_:
                yield f"{_step(entry)} is intended again before its outcome"
            open_[key] = entry.body.get("attempt", 1)
        elif entry.is_outcome and open_.pop((entry.plan, str(entry.body["step"])), None) is None:
            yield f"{entry.id}: an outcome of what was not intended"
    yield from (f"{step} of {plan}: attempt {attempt} has no outcome" for (plan, step), attempt in open_.items())


def tried_in_order(history: History) -> Iterator[str]:
    """Attempts of a step count from 1; another one follows only on a failure that says so."""
    last: dict[tuple[str, str], tuple[int, bool]] = {}
    for entry in history.log:
        if entry.kind == "step-started":
            key, attempt = (entry.plan, _step(entry)), entry.body.get("attempt", 1)
            before, again = last.get(key, (0, True))
            if attempt != before + 1 or not again:
                why = "" if again else ", which was to be the last"
                yield f"{_step(entry)}: attempt {attempt} after {before}{why}"
            last[key] = (attempt, False)
        elif entry.is_outcome:
            key = (entry.plan, str(entry.body["step"]))
            last[key] = (last.get(key, (0, False))[0], bool(entry.body.get("retry")))


def fenced(history: History) -> Iterator[str]:
    """Once a later holder of the lease has spoken, no earlier one decides anything."""
    highest = 0
    for entry in history.of(
        "step-started", "step-succeeded", "step-failed", "execution-completed", "execution-aborted"
    ):
        token = int(entry.body["fencing"])
        if token < highest and not entry.is_outcome:
            yield f"{entry.id} by revision {token} after {highest}"
        highest = max(highest, token)


def in_time(history: History) -> Iterator[str]:
    """The outcome of an effect is known by its deadline, or shortly after."""
    due: dict[tuple[str, str], datetime] = {}
    for entry in history.log:
        if entry.kind == "step-started":
            due[entry.plan, _step(entry)] = datetime.fromisoformat(entry.body["deadline"])
        elif entry.is_outcome:
            deadline = due.get((entry.plan, str(entry.body["step"])), entry.time)
            if entry.time > deadline + _GRACE:
                yield f"{entry.id}: {(entry.time - deadline).total_seconds():.0f} s after its deadline"


def ended_in_time(history: History) -> Iterator[str]:
    """A plan ends in the time that it is given and that of its way back."""
    accepted = {entry.plan: entry.time for entry in history.of("plan-accepted")}
    for plan, end in history.ends.items():
        took = end.time - accepted.get(plan, end.time)
        if took > _LONGEST:
            yield f"{plan} took {took.total_seconds():.0f} s"


def moved_once(history: History) -> Iterator[str]:
    """No pod is evicted or taken away twice."""
    moved: dict[str, tuple[str, str]] = {}
    for entry in history.intents:
        step = entry.body["step"]
        mine = (entry.plan, step["id"])
        if step["kind"] in {"evict", "surge-down"} and mine in history.done:
            for uid in step["pods"]:
                if moved.setdefault(uid, mine) != mine:
                    yield f"{step['id']} takes pod {uid} again"


def only_planned_pods(history: History) -> Iterator[str]:
    """Pods that the plan holds or leaves where they are, on a node that stays, are not touched."""
    for entry in history.intents:
        plan = history.plans.get(entry.plan)
        if plan is None or entry.body["step"]["kind"] not in {"surge-up", "evict"}:
            continue
        held = {item["pod"] for item in plan["held"]}
        staying = {item["uid"] for item in plan["placements"] if item["from"] == item["to"] or item["pod"] in held}
        # A pod may make a stop on its way back to where it is.
        travelling = {item.get("pod") for item in plan.get("steps", ()) if item["action"] == "move"}
        away = {item["uid"] for item in plan["placements"] if item["pod"] in travelling - held}
        uids = set(entry.body["step"]["pods"]) & staying - away
        yield from (f"{_step(entry)} takes pod {uid}, which the plan leaves alone" for uid in sorted(uids))


def bought_once(history: History) -> Iterator[str]:
    """Nodes are booted that the plan has, each once."""
    booted: set[tuple[str, str]] = set()
    for entry in history.intents:
        step = entry.body["step"]
        plan = history.plans.get(entry.plan)
        if step["kind"] != "boot" or plan is None:
            continue
        if step["target"] not in _bought(plan):
            yield f"{step['id']}: the plan has no such node to boot"
        if entry.body.get("attempt", 1) == 1 and (entry.plan, step["target"]) in booted:
            yield f"{step['id']} again"
        booted.add((entry.plan, step["target"]))


def room_first(history: History) -> Iterator[str]:
    """No pod is sent to a node that the plan boots, and no node closed whose pods go there, before it is there.

    Pods of workloads that are left alone go nowhere.
    """
    there: set[tuple[str, str]] = set()
    left: set[tuple[str, str]] = set()
    for entry in history.log:
        if entry.kind == "step-succeeded":
            there.add((entry.plan, str(entry.body["step"])))
        if entry.kind == "step-failed" and str(entry.body["step"]).startswith("skip/"):
            left.add((entry.plan, str(entry.body["step"]).split("/", 2)[2]))
        plan = history.plans.get(entry.plan)
        if entry.kind != "step-started" or plan is None:
            continue
        step = entry.body["step"]
        stay = tuple(f"{name}-" for of, name in left if of == entry.plan)
        needed = set(step["nodes"]) if step["kind"] in _DISTURBING | {"prefer-nodes"} else set()
        if step["kind"] == "taint":
            moved = [place for place in plan["placements"] if not place["pod"].startswith(stay)]
            needed = {place["to"] for place in moved if place["from"] == step["target"]}
        missing = [name for name in sorted(needed & _bought(plan)) if (entry.plan, f"boot/{name}") not in there]
        yield from (f"{step['id']} before boot/{name} is done" for name in missing)


def few_closed(history: History) -> Iterator[str]:
    """At most a tenth of the nodes is closed at a time, more for an exchange only; the end counts the most truly.

    A node is closed until it is open again or gone. The end counts those whose deletion had not begun.
    """
    gone = _gone(history)
    closed: dict[str, set[str]] = {}
    emptied: dict[str, set[str]] = {}
    most: dict[str, int] = {}
    for entry in history.of("step-started", "step-succeeded"):
        plan = history.plans.get(entry.plan)
        if plan is None:
            continue
        now, out = closed.setdefault(entry.plan, set()), emptied.setdefault(entry.plan, set())
        intent = entry.kind == "step-started"
        kind, _, node = (_step(entry) if intent else str(entry.body["step"])).partition("/")
        if kind == "taint" and node not in _bought(plan):
            if intent and entry.body.get("attempt", 1) == 1:
                there = [name for name in now if gone.get(name, entry.state + 1) > entry.state]
                yield from _too_many(entry.plan, plan, len(there) + 1)
            now.add(node)
            if not intent:
                most[entry.plan] = max(most.get(entry.plan, 0), len(now - out))
        elif kind == "untaint" and not intent:
            now.discard(node)
        elif kind == "delete":
            out.add(node)
    for name, end in history.ends.items():
        told, count = end.body.get("figures", {}).get("nodes_closed_most"), most.get(name, 0)
        if told is not None and told != count and name in history.plans:
            yield f"{name}: {told} nodes closed at a time by its end, {count} by its steps"


def _too_many(name: str, plan: JSON, count: int) -> Iterator[str]:
    limit = max(1, sum(node["action"] != "boot" for node in plan["nodes"]) // 10)
    waves = {step["wave"] for step in plan["steps"] if step["action"] == "move"}
    exchange = len(waves) > 1 or any(place["strategy"] == "rolling" for place in plan["placements"])
    if count > limit and not exchange:
        yield f"{name}: {count} nodes closed, {limit} may be"


def _gone(history: History) -> dict[str, int]:
    """The version of the state from which on a node is gone, by name."""
    return {
        item["key"]: int(delta.body["version"])
        for delta in history.state
        for item in delta.body.get("deletes", ())
        if item["kind"] == "Node"
    }


def closed_first(history: History) -> Iterator[str]:
    """A node is deleted only after it was closed to new pods, unless it never came up."""
    closed: set[tuple[str, str]] = set()
    for entry in history.log:
        if entry.kind == "step-succeeded":
            closed.add((entry.plan, str(entry.body["step"])))
        if entry.kind != "step-started" or entry.body["step"]["kind"] != "delete":
            continue
        step = entry.body["step"]
        if entry.plan in history.plans and step.get("uid") and (entry.plan, f"taint/{step['target']}") not in closed:
            yield f"{step['id']} of a node that takes pods"


def nothing_new_after_an_abort(history: History) -> Iterator[str]:
    """Once a plan is given up, things are taken back only."""
    running = ""
    given_up: set[str] = set()
    for entry in history.log:
        if entry.kind == "step-started":
            running = entry.plan
            forward = entry.body["step"]["kind"] not in _UNDOING and not _step(entry).startswith("taint/")
            if forward and entry.plan in given_up:
                yield f"{_step(entry)} after {entry.plan} was given up"
        if entry.kind == "abort-requested" and running not in history.ends:
            given_up.add(running)
        if entry.is_verdict and entry.body["step"] == "abort":
            given_up.add(entry.plan)


def taken_back(history: History) -> Iterator[str]:
    """At the end of a plan each mark, steering, surplus and patched template is taken back, or named as left.

    A mark may also go with its node: the machine of a plan before may be on its way out when its deletion is requested.
    """
    gone = _gone(history)
    for plan, end in history.ends.items():
        made = [entry.body["step"] for entry in history.intents if entry.plan == plan]
        made = [step for step in made if (plan, step["id"]) in history.done]
        if end.body.get("leftovers"):
            continue
        for place, step in enumerate(made):
            with_its_node = step["kind"] == "taint" and gone.get(step["target"], end.state + 1) <= end.state
            if not with_its_node and not _undone(step, made[place + 1 :]):
                yield f"{step['id']} of {plan}"


def _undone(step: JSON, later: list[JSON]) -> bool:
    """Whether a step that was made needs no taking back, or one of those made later took it back."""
    target = step["target"]
    ways = {
        "taint": {f"untaint/{target}", f"delete/{target}"},
        "surge-up": {step["id"].replace("surge-up/", "surge-down/", 1), f"revert/{target}"},
        "roll": {step["id"].replace("roll/", "finalize-rollout/", 1), f"revert/{target}"},
    }.get(step["kind"])
    if step["kind"] == "prefer-nodes":
        ours = {"", step["uid"]}  # a step without one is for all workloads
        return any(one["kind"] == "clear-preferred-nodes" and one["uid"] in ours for one in later)
    return ways is None or any(one["id"] in ways for one in later)


def counted_right(history: History) -> Iterator[str]:
    """An end tells truly how many nodes were booted and deleted."""
    for plan, end in history.ends.items():
        for name, kind in (("booted", "boot/"), ("deleted", "delete/")):
            told = end.body.get("figures", {}).get(name)
            made = sum(1 for of, step in history.done if of == plan and step.startswith(kind))
            if told is not None and told != made:
                yield f"{plan}: {told} {name}, and {made} steps say so"


def saves(history: History) -> Iterator[str]:
    """A plan that only rearranges does not make the cluster dearer."""
    for entry in history.of("plan-accepted"):
        plan = history.plans.get(entry.plan)
        if plan is None or plan.get("mode") == "autoscale" or plan.get("resizes"):
            continue
        places = any(item["from"] is None for item in plan["placements"])
        if not places and plan["cost"]["after"] > plan["cost"]["before"]:
            yield f"{entry.plan}: {plan['cost']['before']} → {plan['cost']['after']}"


def state_without_gaps(history: History) -> Iterator[str]:
    """Each change of the state leads on from the one before."""
    version = 0
    for entry in history.state:
        if entry.kind == "cluster-delta" and version and entry.body["version"] != version + 1:
            yield f"version {entry.body['version']} after {version}"
        if entry.kind in {"cluster-snapshot", "cluster-delta"}:
            version = entry.body["version"]


def decided_on_fresh_state(history: History) -> Iterator[str]:
    """What is decided is decided on a state that was observed, and not long ago."""
    if not history.state:
        return
    seen = iter(sorted(history.state, key=lambda one: one.time))
    following = next(seen, None)
    newest, version = None, 0
    for entry in sorted(history.of("step-started", "plan-accepted"), key=lambda one: one.time):
        while following is not None and following.time <= entry.time:
            newest, version = following.time, max(version, int(following.body.get("version", 0)))
            following = next(seen, None)
        if entry.state > version:
            yield f"{entry.id} on version {entry.state}, and {version} was the newest"
        if newest is not None and entry.time - newest > _MOST_STATE_AGE:
            yield f"{entry.id} {(entry.time - newest).total_seconds():.0f} s after the last observation"


def _step(intent: Entry) -> str:
    return str(intent.body["step"]["id"])


def _bought(plan: JSON) -> set[str]:
    """Names of the nodes that a plan boots, for good or for the way."""
    kept = {node["name"] for node in plan["nodes"] if node["action"] == "boot"}
    return kept | {node["name"] for node in plan.get("temporary", ())}


INVARIANTS: Final[tuple[Invariant, ...]] = (
    ids_are_unique,
    everything_has_a_cause,
    accepted_as_proposed,
    approved_first,
    not_while_paused,
    one_plan_accepted,
    one_plan_at_a_time,
    ends_once,
    one_outcome_for_each_intent,
    tried_in_order,
    fenced,
    in_time,
    ended_in_time,
    moved_once,
    only_planned_pods,
    bought_once,
    room_first,
    few_closed,
    closed_first,
    nothing_new_after_an_abort,
    taken_back,
    counted_right,
    saves,
    state_without_gaps,
    decided_on_fresh_state,
)
