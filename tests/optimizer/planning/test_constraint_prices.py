"""Which constraints are looked at, and that taking one away takes that one away and nothing else."""

from __future__ import annotations

import inspect
import re

import pytest
from tests.support.builders import (
    NOW,
    amounts,
    budget,
    cluster,
    deployed,
    labels,
    namespace,
    node,
    offer,
    pod,
    quota,
    selector,
    stateful,
    stateful_set,
    unreadable,
)
from tests.support.planning import unguarded

from kinema_core.events import (
    ClusterObject,
    ContainerRequests,
    FrozenMap,
    HostPort,
    Offer,
    PlacementRules,
    PodTerm,
    Spread,
)
from kinema_core.model import pod_rules, volumes
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import mobility
from kinema_core.model.resource_quotas import SETS
from kinema_core.model.vocabulary import HELD
from kinema_optimizer.planning.constraint_prices import UNPRICED, class_of, constraint_relaxations, prices_of
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.planning.relaxed_cluster import released
from kinema_optimizer.problem.question import Question
from kinema_optimizer.request.headroom import ROOM, USABLE, placeholders, with_placeholders
from kinema_optimizer.request.limits import NodeLimit, floor_pods
from kinema_optimizer.solvers.stopping import PRICING, RecordedStop, StopReason, WorkStop

ON_SALE = (offer("m2", cpu=2000, price=90_000), offer("m4", cpu=4000, price=170_000))
HOST = "kubernetes.io/hostname"


def asked(state: Cluster, on_sale: tuple[Offer, ...] = ON_SALE, *, percent: int = 100) -> Question:
    """A reschedule question."""
    return Question(state, on_sale, NOW, "reschedule", percent=percent)


def names(question: Question) -> list[str]:
    """What is looked at, in order."""
    return [one.name for one in constraint_relaxations(question)]


def without(question: Question, name: str) -> Question:
    """The question without one constraint."""
    return next(one.make() for one in constraint_relaxations(question) if one.name == name)


def held(question: Question) -> dict[str, str]:
    """Held pods with their codes."""
    found = mobility(question.cluster, question.now, question.options).held
    return {key: item.code for key, item in found.items()}


def least(question: Question) -> float:
    """Cost of the best plan."""
    made = plan_for(question.cluster, question.offers, now=NOW, settings=unguarded(), stop=WorkStop(100_000))
    return made.cost.after


def held_cluster(*more: ClusterObject) -> Cluster:
    """Two m4; on n1 a small pod that would fit on n0."""
    return cluster(node("n0"), node("n1"), *deployed("web", ["n0", "n0"], cpu=300), *more)


DISRUPT = {"karpenter.sh/do-not-disrupt": "true"}
UNSAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (pod("lone", node="n1"), "pods without a controller"),
        (deployed("db", ["n1", "n1"], pod_annotations=DISRUPT), "annotation karpenter.sh/do-not-disrupt"),
        (
            deployed("db", ["n1", "n1"], pod_annotations=UNSAFE),
            "annotation cluster-autoscaler.kubernetes.io/safe-to-evict",
        ),
        (
            deployed("db", ["n1", "n1"], annotations={"kinema.io/do-not-move": "true"}),
            "annotation kinema.io/do-not-move",
        ),
        (
            (
                *deployed("db", ["n1", "n1"], namespace="team"),
                namespace("team", labels={"kinema.io/do-not-move": "true"}),
            ),
            "annotation kinema.io/do-not-move",
        ),
        (deployed("db", ["n1", "n1"], annotations={"kinema.io/strategy": "none"}), "annotation kinema.io/strategy"),
        (stateful("db", ["n1"]), "single replicas"),
        (
            deployed("db", ["n1", "n1"], annotations={"kinema.io/disruption-cost": "lots"}),
            "annotation kinema.io/disruption-cost",
        ),
        (
            deployed("db", ["n1", "n1"], pod_annotations={HELD: "refused: quota"}),
            "moves that were refused",
        ),
        ((*deployed("db", ["n1", "n1"]), budget("db", max_unavailable="0")), "pdb shop/db"),
        ((*deployed("db", ["n1", "n1"]), budget("db", max_unavailable="0")), "pdb *"),
    ],
)
def test_rule_that_holds_a_pod_can_be_taken_away(more: object, name: str) -> None:
    """Without it nothing is held, and the node that stayed for it can go; what is held has its class's name."""
    objects = more if isinstance(more, tuple | list) else (more,)
    question = asked(held_cluster(*objects))
    assert {class_of(code) for code in held(question).values()} == {name.replace("shop/db", "*")}
    free = without(question, name)
    assert held(free) == {}
    assert least(free) < least(question)


@pytest.mark.parametrize(("way", "sets"), [("rolling", True), ("surge", False)])
def test_a_quota_of_replica_sets_is_looked_at_for_what_is_rolled(way: str, *, sets: bool) -> None:
    """Pods that surge make no set: to lift it beside the quota that holds them would gain nothing."""
    chosen = deployed("web", ["n0", "n1"], annotations={"kinema.io/strategy": way})
    full = [quota("pods", hard={"pods": 2}), quota("sets", hard={SETS: 4}, used={SETS: 4})]
    named = {name for name in names(asked(cluster(node("n0"), node("n1"), chosen, full))) if "shop/" in name}
    assert named == {"ResourceQuota shop/pods", *(["ResourceQuota shop/sets"] if sets else [])}


@pytest.mark.parametrize(
    "item",
    [unreadable("Pod shop/odd", node="n1"), unreadable("DisruptionBudget shop/odd"), unreadable("Deployment shop/db")],
)
def test_an_unreadable_object_has_a_price(item: ClusterObject) -> None:
    """Without it no pod is held, and the node that stayed for it can go."""
    question = asked(held_cluster(*deployed("db", ["n1", "n1"]), item))
    name = "objects that could not be read"
    assert {class_of(code) for code in held(question).values()} == {name}
    assert held(without(question, name)) == {}


def test_every_code_of_a_held_pod_has_a_price_or_a_reason() -> None:
    """No rule by which a pod stays is missing from the prices without a word why."""
    source = inspect.getsource(pod_rules) + inspect.getsource(volumes)
    codes = set(re.findall(r'\(?"([a-z]+(?:-[a-z]+)*)", (?:f?"|why|protected|fixed|unsafe|doubt|missing)', source))
    codes -= {"namespaces", "scheduler", "field", "surge"}
    assert codes > {"bare-pod", "gated", "invalid-disruption-cost", "frozen-namespace", "volume-shared", "pdb-never"}
    codes |= {"unmodeled-namespaces", "unmodeled-scheduler", "unmodeled-field"}
    assert {code for code in codes if class_of(code) == code} <= set(UNPRICED)


def test_one_rule_of_two_leaves_the_other() -> None:
    """A pod that two rules hold stays held when one of them goes."""
    question = asked(held_cluster(pod("lone", node="n1", annotations=DISRUPT)))
    assert held(question) == {"shop/lone": "do-not-disrupt"}
    assert held(without(question, "annotation karpenter.sh/do-not-disrupt")) == {"shop/lone": "bare-pod"}


def test_budgets_are_looked_at_one_by_one_and_together() -> None:
    """A budget that allows disruptions costs nothing and is not listed."""
    objects = [*deployed("a", ["n1", "n1"]), *deployed("b", ["n1", "n1"]), *deployed("c", ["n1", "n1"])]
    budgets = [budget("a", max_unavailable="0"), budget("b", max_unavailable="0"), budget("c", max_unavailable="1")]
    question = asked(held_cluster(*objects, *budgets))
    assert names(question) == ["pdb *", "pdb shop/a", "pdb shop/b"]
    assert set(held(without(question, "pdb shop/a")).values()) == {"pdb-never"}
    assert len(held(without(question, "pdb shop/a"))) == 2


def test_templates_that_differ_from_pods_are_a_rule_of_their_own() -> None:
    """Without them a copy is taken to be as its pod is; and a rule that is taken away goes from templates, too."""
    larger = (ContainerRequests(name="c", requests=FrozenMap(cpu=900)),)
    ssd = PlacementRules(node_selector=labels({"disk": "ssd"}))
    db = stateful_set("db", replicas=2, template_containers=larger)
    web = stateful_set("web", replicas=2, rules=ssd)
    own = [pod("db-0", node="n1", owner=db), pod("web-0", node="n1", owner=web, rules=ssd)]
    question = asked(held_cluster(db, web, *own))
    assert names(question) == ["node selectors and node affinity", "templates that differ from pods"]
    assert held(question) == {"shop/db-0": "template-differs"}
    assert held(without(question, "templates that differ from pods")) == {}
    assert held(without(question, "node selectors and node affinity")) == {"shop/db-0": "template-differs"}


def test_node_rules_are_looked_at_one_by_one_and_together() -> None:
    """A node that may not be deleted by its annotation may be without it."""
    keep = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    state = cluster(node("n0"), node("n1", annotations=keep), node("n2", annotations=keep), *deployed("web", ["n0"]))
    question = asked(state)
    assert names(question) == ["node annotations", "node n1", "node n2"]
    free = without(question, "node n1")
    deletable = mobility(free.cluster, NOW, free.options).deletable
    assert (deletable["n1"], deletable["n2"] is None) == (None, False)


RULES = {
    "host ports": PlacementRules(host_ports=(HostPort(port=80),)),
    "node selectors and node affinity": PlacementRules(node_selector=labels({"disk": "ssd"})),
    "pod affinity": PlacementRules(affinity=(PodTerm(topology_key=HOST, selector=selector(app="db")),)),
    "pod anti-affinity": PlacementRules(anti_affinity=(PodTerm(topology_key=HOST, selector=selector(app="db")),)),
    "topology spread": PlacementRules(
        spread=(Spread(topology_key=HOST, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="db")),)
    ),
    "volumes": PlacementRules(claims=("data",)),
    "rules that are not modeled": PlacementRules(scheduler="other"),
}


@pytest.mark.parametrize("name", sorted(RULES))
def test_kind_of_placement_rule_can_be_taken_away(name: str) -> None:
    """The pods have no such rule any more; pods without one are the very same."""
    question = asked(held_cluster(*deployed("db", ["n1", "n1"], rules=RULES[name])))
    assert name in names(question)
    free = without(question, name).cluster
    assert {one.rules for one in free.pods} == {PlacementRules()}
    assert free.pod("shop/web-0") is question.cluster.pod("shop/web-0")


def test_taints_limits_ceilings_and_spot_are_looked_at() -> None:
    """What the nodes and the catalog forbid has a price too."""
    state = cluster(node("n0", taints=["team=a:NoSchedule"]), *deployed("web", ["n0"]))
    spot = offer("m2", spot=True, price=30_000)
    question = asked(state, (offer("m4", available=2), spot), percent=60)
    assert names(question) == [
        "ceiling 60%",
        "limit *",
        "spot only where it is asked for",
        "taints",
        "limit m4/a/on-demand",
    ]
    assert without(question, "ceiling 60%").percent == 100
    assert {one.available for one in without(question, "limit *").offers} == {None}
    assert without(question, "spot only where it is asked for").options.allow_spot


def test_room_kept_free_has_a_price() -> None:
    """Without it no placeholder is left."""
    kinds = [*placeholders(ROOM, amounts(500), 2), *placeholders(USABLE, amounts(500), 3)]
    state = with_placeholders(held_cluster(), [*kinds, *floor_pods([NodeLimit(min_nodes=1)])])
    question = asked(state)
    assert names(question) == ["headroom", "minimum nodes", "usable resources"]
    assert len(without(question, "headroom").cluster.pods) == len(state.pods) - 2
    assert len(without(question, "usable resources").cluster.pods) == len(state.pods) - 3
    assert len(without(question, "minimum nodes").cluster.pods) == len(state.pods) - 1


def test_only_the_dearest_single_ones_are_looked_at() -> None:
    """Classes are all kept; of single nodes those that cost most, and names come in order."""
    keep = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    nodes = [node(f"n{i}", annotations=keep, price=str(0.1 * (i + 1))) for i in range(5)]
    found = constraint_relaxations(asked(cluster(*nodes, *deployed("web", ["n0"]))), singles=2)
    assert [one.name for one in found] == ["node annotations", "node n3", "node n4"]


def test_prices_are_differences_and_what_costs_nothing_is_left_out() -> None:
    """The dearest comes first; when time is up the rest is not guessed."""
    question = asked(held_cluster(pod("lone", node="n1"), *deployed("db", ["n0"], rules=RULES["host ports"])))
    relaxations = constraint_relaxations(question)
    assert [one.name for one in relaxations] == ["host ports", "pods without a controller"]

    def value(asked_: Question) -> int:
        return round(least(asked_) * 1_000_000)

    found, looked = prices_of(relaxations, base=value(question), value=value, ends=lambda _: False)
    assert looked == 2
    assert [(item.constraint, item.usd_per_hour > 0) for item in found] == [("pods without a controller", True)]
    assert prices_of(relaxations, base=value(question), value=value, ends=lambda n: n > 1) == ((), 1)


def test_released_pods_may_move_whatever_held_them() -> None:
    """For the price of a node all that holds its pods is lifted at once, and nothing else."""
    objects = [
        pod("lone", node="n1", annotations=DISRUPT, host_path=True),
        *deployed("db", ["n1", "n0"], rules=PlacementRules(scheduler="other")),
        budget("db", max_unavailable="0"),
    ]
    state = held_cluster(*objects)
    free = released(state, ["shop/lone", "shop/db-0"])
    assert held(asked(free)) == {"shop/db-1": "unmodeled-scheduler"}


def test_what_a_rule_of_a_small_cluster_costs_is_what_could_be_saved_without_it() -> None:
    """Differences of relaxations are not: they know nothing of rules between pods, and buy parts of nodes."""
    apart = PlacementRules(anti_affinity=(PodTerm(topology_key=HOST, selector=selector(app="web")),))
    picky = {name: PlacementRules(node_selector=labels({"disk": name})) for name in ("ssd", "hdd")}
    nodes = [node(f"n{i}") for i in range(3)]
    scenes = {
        "pod anti-affinity": cluster(*nodes, *deployed("web", ["n0", "n1", "n2"], cpu=100, rules=apart)),
        "node selectors and node affinity": cluster(
            *(node(f"n{i}", labels=labels({"disk": name})) for i, name in enumerate(picky)),
            *(one for i, name in enumerate(picky) for one in deployed(name, [f"n{i}"], cpu=100, rules=picky[name])),
        ),
    }
    for rule, state in scenes.items():
        made = plan_for(state, ON_SALE[1:], now=NOW, settings=unguarded(), stop=WorkStop(20_000))
        saved = {one.constraint: one.usd_per_hour for one in made.constraint_costs}
        assert saved == {rule: pytest.approx(made.cost.after - least(without(asked(state, ON_SALE[1:]), rule)))}
        assert saved[rule] >= 0.17


def test_a_spread_over_nodes_proves_nothing_about_fewer_nodes() -> None:
    """Both pods may be on one node once the other is gone: whatever order allows, the bound is one node's price."""
    spread = Spread(topology_key=HOST, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="web"))
    even = PlacementRules(spread=(spread,))
    state = cluster(node("n0"), node("n1"), *deployed("web", ["n0", "n1"], cpu=100, rules=even))
    made = plan_for(state, ON_SALE[1:], now=NOW, settings=unguarded(), stop=WorkStop(20_000))
    assert made.cost.lower_bound <= 0.17


class LateStop(WorkStop):
    """Lets so many rules be priced, and the next one be begun in vain."""

    def __init__(self, rules: int) -> None:
        super().__init__(2000)
        self._rules = rules

    def late(self) -> bool:
        """Once that many were looked at: none is looked at for long here."""
        return self._rules == 0

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """Counts the rules."""
        if self._phase == PRICING and iteration > 1:
            self._rules -= 1
        return super().ends(iteration, coming)


@pytest.mark.parametrize("rules", [0, 1])
def test_a_rule_whose_price_is_not_known_in_time_is_given_up(rules: int) -> None:
    """The limit holds for what rules cost too; a replay does not even begin what was begun in vain."""
    stays = {"karpenter.sh/do-not-disrupt": "true"}
    state = cluster(
        [node(f"n{n}") for n in range(4)],
        deployed("web", ["n0", "n1"]),
        deployed("kept", ["n2"], annotations=stays),
        deployed("db", ["n3"]),
        budget("db", max_unavailable="0"),
    )
    stop = LateStop(rules)
    made = plan_for(state, ON_SALE, now=NOW, settings=unguarded(), stop=stop)
    (ended,) = (one for one in made.solve.stops if one.phase == PRICING)
    assert (ended.reason, ended.iteration) == ("time-limit", 2 * rules)
    assert len(made.constraint_costs) <= rules
    again = plan_for(state, ON_SALE, now=NOW, settings=unguarded(), stop=RecordedStop(made.solve))
    assert again == made
