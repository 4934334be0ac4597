"""A time limit that holds: whatever is overdue ends, a checked plan comes out, and a replay makes the same one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.optimizer.instances import boutique
from tests.support.builders import NOW
from tests.support.planning import unguarded

from kinema_core.events import Plan
from kinema_core.model.checker.check import check_plan
from kinema_optimizer.columns import compiled
from kinema_optimizer.planning import planner, portfolio
from kinema_optimizer.planning.ordering import unmoved
from kinema_optimizer.planning.planner import SalvageStop, plan_for, plan_from
from kinema_optimizer.planning.task import Request
from kinema_optimizer.problem.solution import Progress, incumbent_report
from kinema_optimizer.process.job import none_of
from kinema_optimizer.request.objective import Window
from kinema_optimizer.search import kernels
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers import stopping
from kinema_optimizer.solvers.stopping import ClockStop, RecordedStop, StopRule, WorkStop

CLUSTER, OFFERS = boutique(6, seed=5, nodes=6)
SEARCHED = unguarded(windows=(Window(move_price_usd=0.0),), time_limit_seconds=10, workers=1)
"""With a price of moves the search answers, besides the exact model."""
FILLED = unguarded(windows=(Window(max_utilization_percent=60),), time_limit_seconds=10, workers=1)
DEAR = unguarded(windows=(Window(move_price_usd=100.0),), time_limit_seconds=10, workers=1)
EXACT = unguarded(time_limit_seconds=10, workers=1)


class JumpingClock:
    """Stands still, but for one jump past every limit at the call of this number, and for sleep."""

    def __init__(self, call: int) -> None:
        self.now = 0.0
        self._calls = call

    def monotonic(self) -> float:
        """See `time.monotonic`."""
        self._calls -= 1
        self.now += 1000.0 if self._calls == 0 else 0.0
        return self.now

    def sleep(self, seconds: float) -> None:
        """See `time.sleep`."""
        self.now += seconds


def planned(settings: PlanningSettings, stop: StopRule) -> Plan:
    """A plan, which the planner has checked, checked once more."""
    plan = plan_for(CLUSTER, OFFERS, now=NOW, settings=settings, stop=stop)
    assert not check_plan(plan, CLUSTER, OFFERS, NOW)
    return plan


def again(plan: Plan, settings: PlanningSettings) -> Plan:
    """The same plan from its record."""
    assert plan.solve is not None
    return planned(settings, RecordedStop(plan.solve))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SEARCHED, EXACT], ids=["searched", "exact"])
@pytest.mark.parametrize("call", [3, 4, 6, 8, 12, 20, 40])
def test_a_clock_that_jumps_ends_every_phase(
    settings: PlanningSettings, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the time is suddenly over, a checked plan comes out without another step, and a replay makes it too."""
    monkeypatch.setattr(stopping, "time", JumpingClock(call))
    plan = planned(settings, ClockStop(10, pricing=0.1))
    assert plan.solve is not None
    assert "time-limit" in {stop.reason for stop in plan.solve.stops}
    assert again(plan, settings) == plan


@pytest.mark.parametrize(
    ("settings", "saves"),
    [(SEARCHED, True), (FILLED, True), (DEAR, False)],
    ids=["searched", "filled to 60%", "dear moves"],
)
def test_without_compiled_kernels_a_plan_is_made_that_calls_none(
    settings: PlanningSettings, saves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh installation compiles for longer than a plan may take: nodes whose pods fit on others go without it.

    Nothing is claimed of other plans: no search took place.
    """
    monkeypatch.setattr(portfolio, "_DENSE", 0)

    def call(one: compiled.Kernel, *_: object) -> None:
        raise AssertionError(one.function.__name__)

    with monkeypatch.context() as cold:
        cold.setattr(stopping, "time", JumpingClock(-1))
        cold.setattr(kernels, "ready", lambda: False)
        cold.setattr(compiled.Kernel, "__call__", call)
        plan = planned(settings, ClockStop(10, pricing=0.1))
    assert plan.solve is not None
    assert {stop.phase for stop in plan.solve.stops if stop.phase.startswith("kernels")}
    assert plan.solve.method in portfolio.WITHOUT_SEARCH
    assert plan.status == ("feasible" if saves else "nothing-better")
    assert (plan.cost.after < plan.cost.before / 2) == saves
    assert none_of(plan).reason == "not-searched"
    assert (plan.cost.lower_bound, plan.cost.gap) == (0, None)
    assert again(plan, settings) == plan


@pytest.mark.parametrize("call", [2, 3, 5])
def test_draining_ends_with_the_time(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the time is over between two nodes, no further node is tried, and a replay ends there too."""
    monkeypatch.setattr(stopping, "time", clock := JumpingClock(-1))
    kept = StopRule.noted

    def noted(stop: StopRule, phase: str) -> stopping.Over:
        clock._calls = call if phase == stopping.DRAIN else clock._calls
        return kept(stop, phase)

    monkeypatch.setattr(portfolio, "_DENSE", 0)
    with monkeypatch.context() as cold:
        cold.setattr(kernels, "ready", lambda: False)
        cold.setattr(StopRule, "noted", noted)
        plan = planned(SEARCHED, ClockStop(10, pricing=0.1))
    stops = [stop for stop in plan.solve.stops if stop.phase == "drain-1"]
    assert [stop.iteration for stop in stops] == [call - 2]
    assert again(plan, SEARCHED) == plan


def test_a_plan_that_saves_nothing_is_not_ordered_again_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling and ordering a second plan belong to the time limit: what is there then is the answer."""
    clock = JumpingClock(-1)
    monkeypatch.setattr(stopping, "time", clock)
    request = Request(CLUSTER, OFFERS, NOW, EXACT, "reschedule", ClockStop(10))
    task = request.task(())
    idle = msgspec.structs.replace(unmoved(task.problem), moves=1)
    assert planner._worthwhile(request, (), task, idle)[1] is not idle
    clock.now += 20
    assert planner._worthwhile(request, (), task, idle)[1] is idle


def test_compiled_code_is_kept_where_that_is_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first directory that can be written is taken; where none can, kernels are compiled for the process alone."""
    file = tmp_path / "file"
    file.touch()
    ways = [file / "package", tmp_path / "home", tmp_path / "temporary"]
    find = compiled.cache_directory.__wrapped__
    monkeypatch.setattr(compiled, "_PACKAGE", tmp_path)  # it came without compiled kernels
    monkeypatch.setattr(compiled, "_directories", lambda: iter(ways))
    assert find() == ways[1]
    monkeypatch.setattr(compiled, "_directories", lambda: iter(ways[:1]))
    assert find() is None
    monkeypatch.setattr(compiled, "cache_directory", lambda: None)
    assert not compiled.is_compiled()
    compiled.note_compiled()


def test_the_order_of_a_salvaged_plan_has_a_limit() -> None:
    """A solve that failed has used its time up: where an order takes more waves than that, no pod moves."""
    heard: list[Progress] = []
    made = plan_for(CLUSTER, OFFERS, now=NOW, settings=EXACT, stop=WorkStop(1000), progress=heard.append)
    incumbent = next(one for news in reversed(heard) if (one := incumbent_report(1, news)) is not None)

    def salvaged(stop: StopRule) -> Plan:
        request = Request(CLUSTER, OFFERS, NOW, EXACT, "reschedule", stop)
        return plan_from(request, incumbent=incumbent, solve=made.solve)

    assert salvaged(SalvageStop()).moves
    assert not salvaged(SalvageStop(1)).moves
