"""Judgements beside the usage after them, and the totals that metrics show."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction

from msgspec.structs import replace
from tests.support.builders import MIB, NOW, cluster, deployed, node
from tests.support.usage_steps import KEY, days, step

from kinema_core.events import FrozenMap, UsageBand, UsageResampled, UsageTotals, WorkloadJudged
from kinema_predictor.logic.checking import Check, checked
from kinema_predictor.logic.forecast import Memory, Rules, forecasts
from kinema_predictor.logic.history import History, remember

BAND = UsageBand(
    resource="cpu",
    need=120,
    quantile=0.95,
    models=("level",),
    offsets=(0,),
    horizon_seconds=3600,
    days=1.0,
    steps=288,
    coverage=1.0,
    above=0.05,
    loss=1.0,
    vpa_loss=1.0,
)
JUDGED = WorkloadJudged(
    workload=KEY,
    pods=2,
    requests=FrozenMap(cpu=400),
    recommended=FrozenMap(cpu=120),
    bands=(BAND, replace(BAND, resource="memory", need=460 * MIB)),
)
MINUTES = timedelta(minutes=1)


def of(steps: Iterable[UsageResampled]) -> History:
    """The history that steps fold to."""
    history = History()
    for one in steps:
        history = remember(history, one, keep=timedelta(days=21))
    return history


def held(time: datetime, *usage: UsageResampled, judged: WorkloadJudged = JUDGED) -> tuple[Check, Check]:
    """How a judgement of that time held, for CPU and memory."""
    found = checked(of(usage), {KEY: (time, judged)})
    return found["cpu"], found["memory"]


def test_steps_that_began_after_a_judgement_count() -> None:
    """Two of four steps do; as much as is needed is not above it, and a step without a sample says nothing."""
    steps = step(3, 900), step(2, 900), step(1, 121, 470), step(0, 120)
    assert held(NOW - 11 * MINUTES, *steps) == (Check(2, 1), Check(2, 1))
    assert held(NOW - 10 * MINUTES, *steps) == (Check(2, 1), Check(2, 1))
    assert held(NOW - 9 * MINUTES, *steps) == (Check(1, 0), Check(1, 0))
    assert held(NOW, *steps) == (Check(), Check())
    assert held(NOW - 11 * MINUTES, step(1, 900), step(0, 900, pods=0)) == (Check(1, 1), Check(1, 0))


def test_a_judgement_says_nothing_after_its_horizon() -> None:
    """Of two hours after a judgement for one hour the first twelve steps count, in which nothing was above."""
    steps = [step(at, 900 if at < 12 else 100) for at in reversed(range(24))]
    assert held(NOW - timedelta(hours=2), *steps)[0] == Check(12, 0)
    assert held(NOW - timedelta(hours=2), *steps, judged=replace(JUDGED, bands=()))[0] == Check()


def test_a_forecast_states_the_totals_of_all_judged_workloads() -> None:
    """Requests of both pods; a workload that is judged again is checked, one whose judgement holds only counts."""
    state = cluster(node("n1"), deployed("web", ["n1", "n1"], cpu=400, memory=600))
    rules = Rules(max_change=Fraction(1, 10), mode="recommend")
    first = forecasts(state, of(days(1.1)), NOW - timedelta(hours=1), rules)
    amounts = {name: first.judged[0].recommended[name] for name in ("cpu", "memory")}
    requested = {"cpu": 800, "memory": 1200 * MIB}
    assert first.totals == tuple(
        UsageTotals(resource=name, requested=requested[name], recommended=2 * amount, steps=0, above=0)
        for name, amount in amounts.items()
    )
    memory = Memory().with_answer(NOW - timedelta(hours=1), first)
    later = of([*days(1.1), step(-1, 100), step(-2, 150)])
    still = forecasts(state, later, NOW - timedelta(minutes=30), rules, memory)
    assert (still.judged, still.totals) == ((), first.totals)
    again = forecasts(state, later, NOW + timedelta(minutes=10), rules, memory)
    assert [(one.steps, one.above) for one in again.totals] == [(14, 1), (14, 0)]


def test_nothing_judged_has_no_totals() -> None:
    """Without usage there is no figure, which is not the same as none to save."""
    assert forecasts(cluster(node("n1"), deployed("web", ["n1"])), History(), NOW, Rules(Fraction(0))).totals == ()
