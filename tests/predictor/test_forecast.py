"""Algorithm 5: regression, bounded step, floors and refusals."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.builders import MIB, NOW, cluster, deployed, node, stateful

from kinema_core.events import (
    ContainerRequests,
    ForecastRefused,
    FrozenMap,
    PodUsage,
    UsageSampled,
    Workload,
    WorkloadForecast,
)
from kinema_core.model.cluster import Cluster
from kinema_predictor.logic.forecast import Rules, forecasts, mean_ahead, stepped
from kinema_predictor.logic.history import History, Reach, remember

REACH = Reach(recent=timedelta(minutes=30), peaks=timedelta(hours=48))

TENTH = Rules(max_change=Fraction(1, 10))


def shop(*, cpu: int = 400, memory: int = 500, on: tuple[str, ...] = ("n1", "n1"), **more: object) -> Cluster:
    """One Deployment `web`; requests in millicores and MiB."""
    return cluster(node("n1"), deployed("web", list(on), cpu=cpu, memory=memory, **more))  # type: ignore[arg-type]  # builders take what a test says


def observed(
    state: Cluster, samples: list[tuple[float, int, int]], now: datetime = NOW, history: History | None = None
) -> History:
    """History of `web`: (minutes ago, millicores, MiB) used by each of its pods."""
    history = history or History()
    for minutes, cpu, memory in samples:
        used = tuple(
            PodUsage(pod=pod.key, uid=pod.uid, cpu=cpu, memory=memory * MIB)
            for pod in state.pods
            if pod.name.startswith("web")
        )
        event = UsageSampled(sampled=now - timedelta(minutes=minutes), window_seconds=15, pods=used)
        history = remember(history, state, event, REACH)
    return history


def constant(cpu: int, memory: int) -> list[tuple[float, int, int]]:
    """Ten readings of the same usage in the last ten minutes."""
    return [(float(minutes), cpu, memory) for minutes in range(10, 0, -1)]


def only(state: Cluster, history: History, rules: Rules | None = None, now: datetime = NOW) -> WorkloadForecast:
    """The one forecast that is made."""
    made, refused = forecasts(state, history, now, rules or TENTH)
    assert not refused
    assert len(made) == 1
    return made[0]


def refusal(state: Cluster, history: History, rules: Rules | None = None) -> ForecastRefused:
    """The one refusal."""
    made, refused = forecasts(state, history, NOW, rules or TENTH)
    assert not made
    assert len(refused) == 1
    return refused[0]


def test_a_line_is_extrapolated_to_the_middle_of_the_horizon() -> None:
    """Usage of 100 + t is predicted as its mean over the next horizon."""
    seconds = np.array([-40.0, -30.0, -20.0, -10.0])
    usage = np.array([[60.0], [70.0], [80.0], [90.0]])
    assert mean_ahead(seconds, usage, 60.0)[0] == pytest.approx(130.0)


def test_request_moves_towards_the_prediction_by_at_most_a_tenth() -> None:
    """400m with a usage of 100m becomes 360m: a bound on the step, not a factor."""
    state = shop()
    forecast = only(state, observed(state, constant(100, 450)))
    assert forecast.predicted["cpu"] == 100
    assert forecast.requests_after["cpu"] == 360


def test_request_grows_by_at_most_a_tenth() -> None:
    """400m with a usage of 1000m becomes 440m."""
    state = shop()
    assert only(state, observed(state, constant(1000, 450))).requests_after["cpu"] == 440


def test_request_meets_a_prediction_within_the_step() -> None:
    """A prediction less than a step away is taken as it is."""
    state = shop()
    assert only(state, observed(state, constant(385, 450))).requests_after["cpu"] == 385


def test_rising_usage_is_forecast_above_the_last_sample() -> None:
    """The line goes on rising over the horizon."""
    state = shop()
    history = observed(state, [(float(m), 400 - 10 * m, 450) for m in range(10, 0, -1)])
    assert only(state, history).predicted["cpu"] == 475


@settings(max_examples=40, deadline=None)
@given(cpu=st.integers(0, 10**6), memory=st.integers(0, 2**38), shift=st.integers(-(10**9), 10**9))
def test_constant_usage_is_forecast_exactly_whatever_the_time(cpu: int, memory: int, shift: int) -> None:
    """A constant is its own forecast, to the byte, at any time origin."""
    now = NOW + timedelta(microseconds=shift * 997)
    state = shop(cpu=400, memory=500)
    history = History()
    for index in range(7):
        pods = tuple(PodUsage(pod=pod.key, uid=pod.uid, cpu=cpu, memory=memory) for pod in state.pods)
        sampled = now - timedelta(seconds=13.337 * (7 - index))
        history = remember(history, state, UsageSampled(sampled=sampled, window_seconds=15, pods=pods), REACH)
    assert only(state, history, now=now).predicted == FrozenMap({"cpu": cpu, "memory": memory})


def test_memory_stays_a_tenth_above_the_largest_sample_of_a_day() -> None:
    """A peak of 23 hours ago keeps the request above 1.1 times itself, though memory is low now."""
    state = shop(memory=500)
    history = observed(state, [(23 * 60.0, 100, 440)])
    history = observed(state, constant(400, 200), history=history)
    assert only(state, history).requests_after["memory"] == 484 * MIB


def test_a_peak_older_than_a_day_is_forgotten() -> None:
    """What was used 25 hours ago does not hold memory up."""
    state = shop(memory=500)
    history = observed(state, [(25 * 60.0, 100, 440)])
    history = observed(state, constant(400, 200), history=history)
    assert only(state, history).requests_after["memory"] == 450 * MIB


def test_memory_is_raised_to_its_floor_at_once() -> None:
    """The floor holds even where the bounded step would end below it: nobody is put in reach of the killer."""
    state = shop(memory=100)
    assert only(state, observed(state, constant(400, 200))).requests_after["memory"] == 220 * MIB


def test_cpu_never_falls_below_ten_millicores() -> None:
    """Idle pods keep 10m."""
    state = shop(cpu=11)
    assert only(state, observed(state, constant(0, 450))).requests_after["cpu"] == 10


def test_changes_below_one_percent_are_left_alone() -> None:
    """A restart for 3m of 400m is not worth it: the forecast equals the current requests; 4m are."""
    state = shop(memory=500)
    slight = only(state, observed(state, constant(397, 454)))
    assert slight.predicted["cpu"] == 397
    assert slight.requests_after == slight.requests_before
    assert only(state, observed(state, constant(396, 454))).requests_after["cpu"] == 396


def test_the_annotation_overrides_the_setting() -> None:
    """`kinema.io/rightsizing-max-step: 0.5` lets a request halve in one step."""
    state = shop(annotations={"kinema.io/rightsizing-max-step": "0.5"})
    assert only(state, observed(state, constant(100, 450))).requests_after["cpu"] == 200


def test_a_largest_change_of_zero_turns_forecasts_off() -> None:
    """A workload with `kinema.io/rightsizing-max-step: 0` gets a refusal with that reason."""
    state = shop(annotations={"kinema.io/rightsizing-max-step": "0"})
    assert refusal(state, observed(state, constant(100, 450))).reason == "turned-off"


@pytest.mark.parametrize("text", ["ten", "nan", "-0.1", "1.5", "1/0"])
def test_an_invalid_largest_change_is_refused_by_name(text: str) -> None:
    """Whoever wrote the annotation meant something: no default is guessed."""
    state = shop(annotations={"kinema.io/rightsizing-max-step": text})
    found = refusal(state, observed(state, constant(100, 450)))
    assert found.reason == "invalid-max-step"
    assert found.figures["value"] == text


def test_no_data_is_refused() -> None:
    """Without samples in the learning interval there is no forecast."""
    state = shop()
    assert refusal(state, History()).reason == "no-data"
    assert refusal(state, observed(state, [(16.0, 100, 450)])).reason == "no-data"


def test_fewer_than_five_readings_are_refused() -> None:
    """One reading of many pods shows no course in time: five readings at different times are needed."""
    state = shop(on=("n1",) * 9)
    found = refusal(state, observed(state, constant(100, 450)[:4]))
    assert (found.reason, found.figures["readings"]) == ("few-samples", 4)
    assert only(state, observed(state, constant(100, 450)[:5])).samples == 45


def test_a_restart_within_the_interval_is_refused() -> None:
    """A pod whose container ended abnormally a minute ago says nothing about need; an hour ago is long enough."""
    state = shop(last_restart=NOW - timedelta(minutes=1))
    assert refusal(state, observed(state, constant(100, 450))).reason == "restarted"
    calm = shop(last_restart=NOW - timedelta(hours=1))
    assert only(calm, observed(calm, constant(100, 450))).requests_after["cpu"] == 360


def test_only_deployments_get_forecasts() -> None:
    """A StatefulSet is refused with its type."""
    state = cluster(node("n1"), stateful("web", ["n1", "n1"]))
    found = refusal(state, observed(state, constant(50, 50)))
    assert (found.workload, found.reason) == ("StatefulSet/shop/web", "not-a-deployment")


def test_pods_that_differ_from_their_template_are_refused() -> None:
    """While a roll-out is under way the template does not say what the pods have."""
    top, set_, *pods = deployed("web", ["n1", "n1"], cpu=400)
    _, _, other, *_ = deployed("web", ["n1"], cpu=300)
    state = cluster(node("n1"), top, set_, other, *pods[1:])
    assert refusal(state, observed(state, constant(100, 50))).reason == "requests-differ-from-template"


def test_a_pod_without_requests_is_refused() -> None:
    """Where nothing is requested there is nothing to adjust."""
    state = shop(cpu=0, memory=0)
    assert refusal(state, observed(state, constant(100, 50))).reason == "no-requests"


def asking(*containers: ContainerRequests) -> Cluster:
    """`web` with a template that tells its containers; its pods ask for 400 millicores and 500 MiB."""
    top, *rest = deployed("web", ["n1", "n1"], cpu=400, memory=500)
    assert isinstance(top, Workload)
    return cluster(node("n1"), replace(top, template_containers=containers), *rest)


def asks(name: str, cpu: int, memory: int, *, init: bool = False) -> ContainerRequests:
    """What one container asks for, in millicores and MiB."""
    return ContainerRequests(name=name, requests=FrozenMap(cpu=cpu, memory=memory * MIB), init=init)


def test_only_what_the_containers_ask_for_is_changed() -> None:
    """An init container that asks for more memory than they keeps the pod's where it is: only their CPU is forecast."""
    state = asking(asks("main", 300, 100), asks("log", 100, 50), asks("migrate", 10, 500, init=True))
    found = only(state, observed(state, constant(100, 50)))
    assert found.requests_after == {**found.requests_before, "cpu": 360}


@pytest.mark.parametrize(("ceiling", "after"), [({"memory": 500 * MIB}, 500), ({"memory": 510 * MIB}, 510), ({}, 528)])
def test_requests_grow_up_to_the_limits(ceiling: dict[str, int], after: int) -> None:
    """A peak of 480 MiB asks for a tenth more; where the limits say less, it is that; at them nothing is changed."""
    top, *rest = deployed("web", ["n1", "n1"], cpu=400, memory=500)
    assert isinstance(top, Workload)
    state = cluster(node("n1"), replace(top, template_ceiling=FrozenMap(ceiling)), *rest)
    found = only(state, observed(state, constant(400, 480)))
    assert found.requests_after == {**found.requests_before, "memory": after * MIB}


@pytest.mark.parametrize(
    "containers",
    [
        (asks("main", 100, 100), asks("migrate", 400, 500, init=True)),
        (asks("main", 300, 400), asks("proxy", 100, 100, init=True)),
        (asks("", 400, 500), asks("main", 400, 500)),
        (asks("main", 350, 450),),
    ],
)
def test_requests_that_are_not_of_the_containers_are_refused(containers: tuple[ContainerRequests, ...]) -> None:
    """Of init containers, sidecars, the pod as a whole, overhead: rolled to a forecast, it would ask for another."""
    state = asking(*containers)
    assert refusal(state, observed(state, constant(100, 50))).reason == "requests-not-of-containers"


@given(
    current=st.integers(1, 10**12),
    predicted=st.integers(0, 10**12),
    percent=st.integers(0, 100),
)
def test_a_step_is_bounded_and_in_the_right_direction(current: int, predicted: int, percent: int) -> None:
    """The new request lies between the old one and the prediction, and no more than the bound away."""
    after = stepped(current, predicted, Fraction(percent, 100))
    assert min(current, predicted) <= after <= max(current, predicted)
    assert abs(after - current) * 100 <= current * percent
