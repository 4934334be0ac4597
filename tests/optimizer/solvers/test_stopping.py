"""Where a solve stops: counted callbacks, and replays that end where the clock ended the original."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest
from tests.optimizer.instances import boutique
from tests.support.builders import NOW

from kinema_core.events import Solve, Stop
from kinema_optimizer.exact.aggregated import solve_aggregated
from kinema_optimizer.exact.first_fit import starts
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import Solution
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import ModelResult
from kinema_optimizer.solvers import stopping
from kinema_optimizer.solvers.mip import Model, solve
from kinema_optimizer.solvers.stopping import (
    BEGIN,
    BUILD,
    DRAIN,
    KERNELS,
    LOAD,
    ORDER,
    PRICING,
    WAVE,
    ClockStop,
    Deadline,
    RecordedStop,
    StopRule,
    WorkStop,
)


@pytest.fixture(scope="module")
def hard() -> Compiled:
    """240 pods on 20 nodes: takes seconds to prove."""
    state, offers = boutique(20, seed=5, nodes=20)
    return compiled(Question(state, offers, NOW, "reschedule"))


def solved(problem: Compiled, stop: StopRule) -> ModelResult[Solution]:
    """The aggregated model's answer under a rule."""
    return solve_aggregated(problem.problem, problem.unbound, starts(problem.problem), stop)


def facts(result: ModelResult[Solution]) -> object:
    """All of a result in values that compare."""
    one = result.solution
    counts = (one.keep, one.changes.matrix(99), one.boots, one.booted.matrix(99), one.unplaced)
    return [array.tolist() for array in counts], result.least, result.lower_bound, result.stops, result.method


def recorded(result: ModelResult[Solution]) -> Solve:
    """What a plan records of a solve."""
    return solve_with(result.stops)


def solve_with(stops: tuple[Stop, ...]) -> Solve:
    """A recorded solve that stopped there."""
    return Solve(seconds=1.0, first_feasible_seconds=0.1, method="", seed=0, stops=stops)


@pytest.mark.slow
@pytest.mark.parametrize("callbacks", [1, 12])
def test_stopping_at_the_same_callback_twice_gives_the_same_result(hard: Compiled, callbacks: int) -> None:
    """The same count of callbacks is the same state of the solver: solution, bound and stops are equal."""
    first, second = (solved(hard, WorkStop(callbacks)) for _ in range(2))
    assert facts(first) == facts(second)
    assert {stop.reason for stop in first.stops} >= {"work-limit"}


@pytest.mark.slow
def test_a_replay_ends_where_the_clock_ended_the_original(hard: Compiled) -> None:
    """Stopped live by the clock, then by the recorded counts: the same result, with the same reasons."""
    live = solved(hard, ClockStop(0.6))
    assert "time-limit" in {stop.reason for stop in live.stops}
    assert facts(solved(hard, RecordedStop(recorded(live)))) == facts(live)


def test_a_phase_that_ended_by_itself_is_not_stopped_in_a_replay() -> None:
    """A recorded `optimal` at callback 3 does not end a replay at callback 3."""
    stop = RecordedStop(
        Solve(
            seconds=1,
            first_feasible_seconds=None,
            method="",
            seed=0,
            stops=(
                Stop(reason="optimal", phase="cost", iteration=3),
                Stop(reason="time-limit", phase="moves", iteration=3),
            ),
        )
    )
    stop.begin("cost")
    assert [stop.ends(k) for k in (2, 3, 4)] == [None, None, None]
    stop.begin("moves")
    assert [stop.ends(k) for k in (2, 3, 4)] == [None, "time-limit", "time-limit"]


def test_the_clock_gives_every_phase_its_share() -> None:
    """A phase that used up its share leaves the next one time."""
    stop = ClockStop(0.05)
    stop.begin("cost")
    while stop.ends(1) is None:
        time.sleep(0.005)
    stop.begin("size")
    assert stop.ends(1) is None


class Clock:
    """A clock that goes on when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """See `time.monotonic`."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """See `time.sleep`."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of stop rules."""
    made = Clock()
    monkeypatch.setattr(stopping, "time", made)
    return made


def test_a_step_that_does_not_fit_into_what_is_left_is_not_begun(clock: Clock) -> None:
    """A kind of step that took 3 s is not begun with 2 s left, one that took 1 s is."""
    stop = ClockStop(10)
    stop.begin("last")
    assert stop.ends(0, "slow") is None
    clock.now = 3.0
    assert stop.ends(1, "quick") is None
    clock.now = 4.0
    assert stop.ends(2, "slow") is None
    clock.now = 7.5
    assert stop.ends(3, "quick") is None
    assert stop.ends(3, "slow") == "time-limit"


def test_a_step_of_a_new_kind_is_taken_to_be_longer_than_the_first_plan(clock: Clock) -> None:
    """After a first plan that took 1.2 s of 2 s nothing is begun; after one of 0.6 s steps are, of every kind once."""
    late, early = ClockStop(2), ClockStop(2)
    for stop in (late, early):
        stop.begin("start")
    clock.now = 0.6
    assert early.ends(0) is None
    early.begin("last")
    assert early.ends(0, "slow") is None
    clock.now = 1.05
    assert early.ends(1, "new") is None
    clock.now = 1.2
    assert late.ends(0) == "time-limit"


def test_columns_are_not_begun_before_tries_tell_that_they_fit(clock: Clock) -> None:
    """Twelve times as long as tries: after tries of 0.2 s columns are begun with 3 s left, and not with 2 s."""
    for left, begun in ((3.0, None), (2.0, "time-limit")):
        stop = ClockStop(left + 0.2)
        stop.begin("last")
        assert stop.ends(0, "tries") is None
        clock.now += 0.2
        assert stop.ends(1, "columns of a neighborhood") == begun


def test_time_is_left_to_price_rules() -> None:
    """The search may use up all that it is given: what rules cost is still worked out."""
    stop = ClockStop(3600, pricing=1.0)
    stop.begin("last")
    assert stop.ends(1) == "time-limit"
    stop.begin(PRICING)
    assert stop.ends(1) is None


def test_rules_are_not_priced_after_the_limit(clock: Clock) -> None:
    """A search that took too long leaves no time to price rules: that belongs to the limit, too."""
    stop = ClockStop(10, pricing=0.1)
    stop.begin("last")
    clock.now = 10.1
    assert stop.ends(1) == "time-limit"
    stop.begin(PRICING)
    assert stop.ends(0, PRICING) == "time-limit"


def test_the_limit_counts_from_when_the_command_began(clock: Clock) -> None:
    """A command that took 4 of 10 s to read its input has 6 s left, and keeps 1 s to print."""
    clock.now = 104.0
    deadline = Deadline(10, began=100.0)
    assert deadline.left() == 6.0
    stop = ClockStop(deadline)
    stop.begin("last")
    clock.now = 106.0
    assert stop.ends(1) is None
    clock.now = 109.0
    assert stop.ends(2) == "time-limit"


def test_a_search_leaves_time_to_order_and_check_its_plan(clock: Clock) -> None:
    """What comes after a search takes longer the longer the model took to build: three times that is kept for it."""
    stop = ClockStop(10)
    stop.begin(BUILD)
    clock.now = 2.0
    stop.ends(0)
    stop.begin("last")
    clock.now = 2.9
    assert stop.ends(1) is None
    clock.now = 4.0
    assert stop.ends(2) == "time-limit"


def test_no_search_begins_that_would_be_late(clock: Clock) -> None:
    """A model that took 5 s of 10 s to build is not searched, one that took 1 s is; a replay does the same."""
    for built, over in ((5.0, True), (1.0, False)):
        clock.now = 0.0
        stop = ClockStop(10)
        stop.begin(BUILD)
        clock.now = built
        stop.ends(0)
        assert stop.noted(BEGIN)(BEGIN) is over
        assert RecordedStop(solve_with(stop.notes)).noted(BEGIN)(BEGIN) is over


def test_a_stop_rule_names_the_limit_with_which_a_search_begins(clock: Clock) -> None:
    """Ten seconds to read and three to build: with this limit a search begins, with two seconds less it does not."""

    def begun(limit: float) -> tuple[bool, float]:
        clock.now = 10.0
        stop = ClockStop(Deadline(limit, began=0.0, imports=0.5))
        stop.begin(BUILD)
        clock.now = 13.0
        stop.ends(0)
        return not stop.noted(BEGIN)(LOAD), stop.wanted

    tried, wanted = begun(20.0)
    assert not tried
    assert begun(wanted + 0.01) == (True, wanted)
    assert begun(wanted - 2.0) == (False, wanted)


def test_beside_a_plan_nothing_begins_that_ends_late(clock: Clock) -> None:
    """A search that would end half a second after the limit begins where there is no plan, and not beside one."""
    stop = ClockStop(10)
    stop.begin(BUILD)
    clock.now = 1.0
    stop.ends(0)
    clock.now = 5.0
    with stop.punctual():
        assert stop.noted(BEGIN)(BEGIN)
    assert not stop.noted(BEGIN)(BEGIN)


def test_an_order_without_which_nothing_is_done_may_be_late(clock: Clock) -> None:
    """Three seconds after the limit none begins, unless it is for that; ten seconds after it none does."""
    stop = ClockStop(1)
    for now, begun in ((4.5, True), (12.0, False)):
        clock.now = now
        assert stop.noted(ORDER)(ORDER)
        with stop.patient():
            assert stop.noted(ORDER)(ORDER) is not begun


@pytest.mark.parametrize("phase", [BEGIN, DRAIN])
def test_what_is_found_in_time_can_be_ordered(clock: Clock, phase: str) -> None:
    """A phase that ends at its limit, or half of what building took later, leaves an order the time to begin."""
    stop = ClockStop(30)
    stop.begin(BUILD)
    clock.now = 2.0
    stop.ends(0)
    over = stop.noted(phase)
    while not over(""):
        clock.now += 0.01
    clock.now += 0.95
    assert not stop.noted(ORDER)(ORDER)


def test_a_search_that_has_to_load_its_kernels_takes_longer_to_begin(clock: Clock) -> None:
    """Of 10 s 8 are over: kernels are loaded where imports took 1.9 s of them, and not where they took 2.1 s."""
    clock.now = 8.0
    for imports, coming, over in ((2.1, LOAD, True), (2.1, BEGIN, False), (1.9, LOAD, False)):
        stop = ClockStop(Deadline(10, began=0.0, imports=imports))
        stop.begin(BUILD)
        stop.ends(0)
        assert stop.noted(BEGIN)(coming) is over


def test_an_order_ends_where_the_recorded_one_ended(clock: Clock) -> None:
    """Of two orders that the clock ends in different waves, each ends in its wave in a replay, and stays over."""
    stop = ClockStop(10)
    waves = []
    for begins in (0.0, 11.0):
        clock.now = begins
        over = stop.noted(ORDER)
        count = 0
        while not over(WAVE):
            clock.now += 2.0
            count += 1
        assert over(WAVE)
        waves.append(count)
    assert waves[0] > waves[1]
    replay = RecordedStop(solve_with(stop.notes))
    for wave in waves:
        over = replay.noted(ORDER)
        assert [over(WAVE) for _ in range(wave + 2)] == [False] * wave + [True] * 2


def test_what_is_not_ready_is_waited_for_only_for_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After eight of ten seconds a solve goes on without; a replay goes on without, too, though all is ready there."""
    clock = Clock()
    monkeypatch.setattr(stopping, "time", clock)
    late, soon = ClockStop(10), ClockStop(10)
    assert not late.waits(KERNELS, lambda: clock.now > 8.5)
    assert clock.now == pytest.approx(8, abs=0.1)
    clock.now = 0.0
    assert soon.waits(KERNELS, lambda: clock.now > 3)
    assert not RecordedStop(solve_with(late.notes)).waits(KERNELS, lambda: True)
    assert RecordedStop(solve_with(soon.notes)).waits(KERNELS, lambda: True)


def test_a_cancelled_solve_ends_at_its_next_callback(hard: Compiled) -> None:
    """Canceled before it begins, every phase ends at its first callback."""
    stop = ClockStop(3600)
    stop.cancel()
    result = solved(hard, stop)
    assert {stop.reason for stop in result.stops} == {"time-limit"}
    assert max(stop.iteration for stop in result.stops) <= 1


@pytest.mark.slow
async def test_the_event_loop_beats_while_the_solver_works(hard: Compiled) -> None:
    """HiGHS lets go of the interpreter: heartbeats go on in the thread that asked."""
    beats = 0
    work = asyncio.create_task(asyncio.to_thread(solved, hard, WorkStop(100)))
    while not work.done():
        await asyncio.sleep(0.001)
        beats += 1
    result = await work
    callbacks = sum(stop.iteration for stop in result.stops)
    assert beats > 20
    assert callbacks > 100
    assert threading.active_count() < 50


def test_an_infeasible_model_is_told_from_one_without_a_solution() -> None:
    """Nothing is trusted that the solver does not call feasible."""
    model = Model()
    column = model.column(1)
    model.row([(column, 1)], lower=2)
    outcome = solve(model, {column: 1.0}, phase="cost", stop=WorkStop(10), gap=0.0)
    assert (outcome.values, outcome.stop.reason) == (None, "infeasible")


def test_a_model_without_columns_costs_nothing() -> None:
    """Nothing to decide is decided at once."""
    outcome = solve(Model(), {}, phase="cost", stop=WorkStop(10), gap=0.0)
    assert outcome.values is not None
    assert (outcome.values.size, outcome.bound) == (0, 0.0)


def test_the_bound_is_lowered_by_a_tolerance() -> None:
    """A bound that floating point may have raised is not believed to the last digit."""
    model = Model()
    columns = [model.column(5) for _ in range(3)]
    model.row([(column, 1.0) for column in columns], lower=4)
    outcome = solve(model, dict.fromkeys(columns, 3.0), phase="cost", stop=WorkStop(100), gap=0.0)
    assert outcome.values is not None
    assert 3 * np.sum(outcome.values) == 12
    assert 11.999 < outcome.bound < 12


def test_a_part_of_the_time_is_what_its_phases_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tenths of ten seconds for all that comes within; after it the rest is there again."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stop = ClockStop(10)

    def lasts(phase: str) -> float:
        nonlocal now
        began = now
        stop.begin(phase)
        while stop.ends(1) is None:
            now += 0.1
        return now - began

    with stop.part(0.3):
        assert lasts("whatever comes") == pytest.approx(3, abs=0.2)
    assert lasts("what comes after") == pytest.approx(7, abs=0.2)
