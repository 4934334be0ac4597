"""Plans on clusters that Kinema did not build: nothing that must not happen does, whatever is around the workloads."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.history import __main__ as history
from tests.history import real
from tests.history.continued import continued
from tests.history.environment import ZONE
from tests.history.environments import FEATURES, SCHEDULERS, foreign_cluster
from tests.history.plan_step import planned
from tests.history.verdict import NothingToDoError, UnsettledError, Verdict, by_feature
from tests.support.builders import NOW, cluster, deployed, node, offer

SIMULATED = (1, 9, 34, 1008, 1079, 1109, 1111, 1153, 500131, 510826, 510894, 510964, 530190, 911615)
"""Seeds of which most once found something: a plan that ended dearer than it began, a roll that kept a pod waiting for
ten minutes, a daemon whose sidecar no new node had room for, a workload that others edit, nodes that were deleted
though a roll's last pod had none, a deletion cost that stayed, a budget without a pod."""
REAL = (600009, 600020, 600030, 600034)
"""Seeds that found something on a real control plane: a roll that was refused pods ended one short, a place in a quota
that daemons took, pods of StatefulSets that were not led, and pods that leave in the place of others."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", SIMULATED)
def test_simulated(seed: int) -> None:
    """No invariant is broken, no service is hurt, nothing is left behind, and each plan comes to an end."""
    with suppress(NothingToDoError):
        found, _, _ = continued(foreign_cluster(seed), 0.0)
        assert found.flaws == ()
        assert found.ended != "stuck"


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.parametrize("seed", REAL)
def test_real(seed: int, carry_out: Callable[[int], Verdict]) -> None:
    """The same on a real control plane, and new pods come to the nodes that their moves lead them to."""
    with suppress(NothingToDoError, UnsettledError):
        found = carry_out(seed)
        assert found.flaws == ()
        assert found.ended != "stuck"
        assert found.landed >= found.steered - 1  # one may wait longer than it may on a busy machine


@pytest.fixture(scope="module")
def carry_out() -> Iterator[Callable[[int], Verdict]]:
    """Carries out the plan of a seed on a control plane that nothing else uses."""
    with tempfile.TemporaryDirectory() as folder, history.steered_plane(Path(folder), instant=False) as plane:
        yield lambda seed: real.carried_out(plane, history.foreign_real_cluster(seed, "default"), Path(folder))


def test_every_feature_is_drawn_and_the_same_each_time() -> None:
    """Among a hundred seeds each is there several times; a seed is one environment."""
    drawn = Counter(name for seed in range(100) for name in foreign_cluster(seed).environment.features)
    assert set(drawn) == {*FEATURES, *SCHEDULERS}
    assert min(drawn.values()) >= 5
    assert foreign_cluster(7) == foreign_cluster(7)


def test_without_zone_labels_no_rule_asks_for_a_zone() -> None:
    """Such a cluster would never have come to rest."""
    for seed in range(60):
        cluster = foreign_cluster(seed)
        if "zone-missing" in cluster.environment.features:
            assert not any(ZONE in str(item) for kind, item in cluster.objects if kind != "PersistentVolume")


def test_an_interrupted_run_goes_on_after_its_last_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written counts; seeds after the last one with a plan are tried again."""
    monkeypatch.setattr(history, "OUT", tmp_path)
    tried: list[int] = []

    def one(seed: int) -> Verdict:
        tried.append(seed)
        if seed % 2:
            raise NothingToDoError
        return replace(Verdict.of_error(seed, ""), flaws=(), features=("noise",))

    for plans, resume in ((2, False), (4, True)):
        verdicts, _, _ = history._judged(plans, 10, 1, one, name="some", resume=resume)
    assert [one.seed for one in verdicts] == [10, 12, 14, 16]
    assert tried == [10, 11, 12, 13, 14, 15, 16]
    assert by_feature(verdicts)["noise"]["plans"] == 4


def test_no_plan_takes_the_time_to_price_constraints() -> None:
    """What is judged is carried out, and prices are not: the pods that stay cost a node here."""
    stays = deployed("kept", ["n1", "n2"], annotations={"kinema.io/do-not-move": "true"})
    plan = planned(cluster(node("n1"), node("n2"), stays), (offer("m4"),), NOW)
    assert {one.code for one in plan.held} == {"do-not-move"}
    assert plan.constraint_costs == ()


def test_figures_are_told_by_feature() -> None:
    """A plan counts for each feature of its environment, and once for all."""
    assert by_feature([])["all"]["plans"] == 0
