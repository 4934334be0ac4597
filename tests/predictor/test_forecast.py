"""Requests from usage: what may fall and what may not, floors, bounded step, risk, and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.builders import MIB, NOW, cluster, deployed, node, stateful
from tests.support.usage_steps import days, many, step

from kinema_core.events import (
    Autoscaler,
    AutoscalerMetric,
    ContainerRequests,
    ForecastMade,
    ForecastRefused,
    FrozenMap,
    Namespace,
    Recommendation,
    UsageResampled,
    Workload,
    WorkloadForecast,
    WorkloadJudged,
)
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_predictor.logic.forecast import Memory, Rules, forecasts, stepped
from kinema_predictor.logic.history import History, remember

TENTH = Rules(max_change=Fraction(1, 10))


def shop(*, cpu: int = 400, memory: int = 500, on: tuple[str, ...] = ("n1", "n1"), **more: object) -> Cluster:
    """One Deployment `web`; requests in millicores and MiB."""
    return cluster(node("n1"), deployed("web", list(on), cpu=cpu, memory=memory, **more))  # type: ignore[arg-type]  # builders take what a test says


def beside(state: Cluster, *objects: object) -> Cluster:
    """The same cluster with more objects."""
    return from_objects([*all_objects(state), *objects], version=state.version)  # type: ignore[list-item]  # of any kind


def of(steps: Iterable[UsageResampled]) -> History:
    """The history that steps fold to."""
    history = History()
    for one in steps:
        history = remember(history, one, keep=timedelta(days=21))
    return history


CALM = of(days(1.1, 100, 450))
"""A day and a tenth at 100 millicores and 450 MiB."""


def made(state: Cluster, history: History = CALM, rules: Rules | None = None, now: datetime = NOW) -> ForecastMade:
    """What is answered."""
    return forecasts(state, history, now, rules or TENTH)


def only(state: Cluster, history: History = CALM, rules: Rules | None = None) -> WorkloadForecast:
    """The one forecast that is made."""
    found = made(state, history, rules)
    assert not found.refused
    assert len(found.forecasts) == 1
    return found.forecasts[0]


def judged(state: Cluster, history: History = CALM, rules: Rules | None = None) -> WorkloadJudged:
    """The one judgement."""
    (found,) = made(state, history, rules).judged
    return found


def refusal(state: Cluster, history: History = CALM, rules: Rules | None = None) -> ForecastRefused:
    """The one refusal."""
    found = made(state, history, rules)
    assert not found.forecasts
    assert len(found.refused) == 1
    return found.refused[0]


def test_request_moves_towards_the_need_by_at_most_a_tenth() -> None:
    """400m with a need of 100m becomes 360m: a bound on the step, not a factor."""
    forecast = only(shop())
    assert forecast.predicted["cpu"] == 100
    assert forecast.samples == 288
    assert forecast.requests_after["cpu"] == 360
    assert forecast.recommended["cpu"] == 100, "to where such steps lead"


def test_request_grows_by_at_most_a_tenth() -> None:
    """400m with a need of 1000m becomes 440m, though the history is an hour old: a raise waits for nothing."""
    assert only(shop(), of(days(1 / 24, 1000, 450))).requests_after["cpu"] == 440


def test_request_meets_a_need_within_the_step() -> None:
    """A need less than a step away is taken as it is."""
    assert only(shop(), of(days(1.1, 385, 450))).requests_after["cpu"] == 385


def test_requests_that_keep_the_risk_are_not_raised() -> None:
    """The need has a reserve for days unlike the known ones; pods do not restart for the reserve alone.

    Nor for less than a hundredth that the request lacks without the reserve.
    """
    usage = of([step(at, 100 + at * 37 % 101, 450) for at in reversed(range(320))])
    band = next(one for one in judged(shop(), usage).bands if one.resource == "cpu")
    assert band.enough is not None
    assert band.enough < band.need
    assert judged(shop(cpu=band.enough), usage).recommended["cpu"] == band.enough
    assert (band.enough, band.need) == (185, 186)
    assert judged(shop(cpu=184), usage).recommended["cpu"] == 184
    assert judged(shop(cpu=183), usage).recommended["cpu"] == 186


def test_a_request_does_not_rise_by_less_than_a_hundredth_beside_one_that_falls() -> None:
    """Memory a thousandth above would make of a plan that has to save one that raises requests, whatever it costs."""
    slight = only(shop(memory=500), of(days(1.1, 100, 455)))
    assert slight.requests_after["cpu"] == 360
    assert slight.requests_after["memory"] == slight.recommended["memory"] == 500 * MIB
    assert only(shop(memory=500), of(days(1.1, 100, 460))).requests_after["memory"] == 506 * MIB


def test_memory_stays_a_tenth_above_the_largest_sample_of_a_day() -> None:
    """A peak of 23 hours ago keeps the recommendation above 1.1 times itself, though memory is low now."""
    usage = [step(at, 400, 440 if at == 23 * 12 else 200) for at in reversed(range(320))]
    assert judged(shop(), of(usage)).recommended["memory"] == 484 * MIB


def test_memory_is_raised_to_its_floor_at_once() -> None:
    """The floor holds even where the bounded step would end below it: no pod is put in reach of the killer."""
    assert only(shop(memory=100), of(days(1.1, 400, 200))).requests_after["memory"] == 220 * MIB


def test_cpu_never_falls_below_ten_millicores() -> None:
    """Idle pods keep 10m."""
    assert only(shop(cpu=11), of(days(1.1, 0, 450))).requests_after["cpu"] == 10


def test_changes_below_one_percent_are_left_alone() -> None:
    """A restart for 3m of 400m is not worth it: the forecast equals the current requests; 4m are."""
    slight = only(shop(memory=500), of(days(1.1, 397, 454)))
    assert slight.requests_after == slight.recommended == slight.requests_before
    assert only(shop(memory=500), of(days(1.1, 396, 454))).requests_after["cpu"] == 396


@pytest.mark.parametrize("hours", [1, 6, 23])
def test_nothing_falls_before_a_day_is_known(hours: int) -> None:
    """Neither CPU nor memory falls on 23 hours of usage; the judgement says why."""
    found = judged(shop(), of(days(hours / 24, 100, 100)))
    assert dict(found.recommended) == {"cpu": 400, "memory": 500 * MIB}
    assert dict(found.kept) == {"cpu": "young", "memory": "young"}


def test_nothing_falls_where_a_third_of_the_samples_is_missing() -> None:
    """With 66% of the steps requests stay, with 75% they fall."""
    for every, reason in ((3, {"cpu": "sparse", "memory": "sparse"}), (4, {})):
        steps = [one for at, one in enumerate(days(1.2, 100, 100)) if at % every or at == 0]
        assert dict(judged(shop(), of(steps)).kept) == reason


def test_a_guaranteed_pod_stays_guaranteed() -> None:
    """Requests that equal their limits do not fall."""
    top, *rest = deployed("web", ["n1", "n1"], cpu=400, memory=500)
    assert isinstance(top, Workload)
    state = cluster(node("n1"), replace(top, template_ceiling=FrozenMap(cpu=400, memory=500 * MIB)), *rest)
    assert dict(judged(state, of(days(1.1, 100, 100))).kept) == {"cpu": "guaranteed", "memory": "guaranteed"}


def test_cpu_of_an_autoscaled_workload_stays() -> None:
    """An autoscaler holds CPU near a share of the request: memory is sized, CPU is left to it, up as down."""
    scaler = Autoscaler(
        name="web",
        namespace="shop",
        uid="a",
        target_kind="Deployment",
        target_name="web",
        metrics=(AutoscalerMetric(name="cpu", current=500, target=600),),
    )
    for cpu in (100, 900):
        found = judged(beside(shop(), scaler), of(days(1.1, cpu, 100)))
        assert dict(found.kept) == {"cpu": "autoscaled"}
        assert found.recommended == {"cpu": 400, "memory": 110 * MIB}


def vertical(mode: str, *, hours: float = 25) -> Recommendation:
    """A VerticalPodAutoscaler of `web` that recommends 250m within 200m to 240m, and 300 MiB."""
    return Recommendation(
        name="web",
        namespace="shop",
        uid="v",
        target_kind="Deployment",
        target_name="web",
        target=FrozenMap(cpu=250, memory=300 * MIB),
        lower=FrozenMap(cpu=200),
        upper=FrozenMap(cpu=240),
        mode=mode,
        created=NOW - timedelta(hours=hours),
    )


def test_a_vpa_of_a_day_stands_in_for_a_history_that_is_too_short() -> None:
    """Its target, clamped to its bounds, is what is recommended; a younger one counts for nothing."""
    short = of(days(0.5, 100, 100))
    assert judged(beside(shop(), vertical("Off")), short).recommended == {"cpu": 240, "memory": 300 * MIB}
    assert judged(beside(shop(), vertical("Off", hours=23)), short).recommended["cpu"] == 400
    assert judged(beside(shop(), vertical("Off"))).recommended["cpu"] == 100


def test_what_a_vpa_changes_is_left_to_it() -> None:
    """Two that resize the same pods would undo each other's work."""
    assert refusal(beside(shop(), vertical("Recreate"))).reason == "vpa-acts"


def test_the_allowed_share_of_steps_lies_above_the_request() -> None:
    """With bursts in one step of fifty, 5% risk sizes for the calm; 1% risk sizes for the bursts."""
    steps = [step(at, 500 if at % 50 == 0 else 100, 450) for at in reversed(range(6 * 288))]
    assert judged(shop(cpu=800), of(steps)).recommended["cpu"] < 300
    careful = shop(cpu=800, annotations={"kinema.io/rightsizing-risk": "1%"})
    assert judged(careful, of(steps)).recommended["cpu"] >= 480


@pytest.mark.parametrize("text", ["none", "0", "0.6", "-1%", "1/0"])
def test_an_invalid_risk_is_refused_by_name(text: str) -> None:
    """No default is guessed for an annotation that cannot be read."""
    found = refusal(shop(annotations={"kinema.io/rightsizing-risk": text}))
    assert (found.reason, found.figures["value"]) == ("invalid-risk", text)


def test_modes_hold_by_workload_then_namespace_then_setting() -> None:
    """The nearest wish counts: off judges nothing, recommend changes nothing, apply does."""
    recommend = Rules(max_change=Fraction(1, 10), mode="recommend")
    assert refusal(shop(), rules=recommend).reason == "recommend-only"
    assert len(made(shop(), rules=recommend).judged) == 1
    named = Namespace(name="shop", uid="ns", labels=FrozenMap({"kinema.io/rightsizing": "off"}))
    off = made(beside(shop(), named))
    assert (off.refused[0].reason, off.judged) == ("turned-off", ())
    apply = beside(shop(annotations={"kinema.io/rightsizing": "apply"}), named)
    assert only(apply, rules=recommend).requests_after["cpu"] == 360
    wrong = refusal(shop(annotations={"kinema.io/rightsizing": "yes"}))
    assert (wrong.reason, wrong.figures["value"]) == ("invalid-mode", "yes")


def test_the_annotation_overrides_the_setting() -> None:
    """`kinema.io/rightsizing-max-step: 0.5` lets a request halve in one step."""
    state = shop(annotations={"kinema.io/rightsizing-max-step": "0.5"})
    assert only(state).requests_after["cpu"] == 200


def test_a_largest_change_of_zero_turns_forecasts_off() -> None:
    """A workload with `kinema.io/rightsizing-max-step: 0` gets a refusal with that reason."""
    assert refusal(shop(annotations={"kinema.io/rightsizing-max-step": "0"})).reason == "turned-off"


@pytest.mark.parametrize("text", ["ten", "nan", "-0.1", "1.5", "1/0"])
def test_an_invalid_largest_change_is_refused_by_name(text: str) -> None:
    """No default is guessed for an annotation that cannot be read."""
    found = refusal(shop(annotations={"kinema.io/rightsizing-max-step": text}))
    assert (found.reason, found.figures["value"]) == ("invalid-max-step", text)


def test_no_data_is_refused() -> None:
    """Without any step, or without one of this workload, there is no forecast."""
    assert refusal(shop(), History()).reason == "no-data"
    assert refusal(shop(), of([step(0, key="Deployment/shop/other")])).reason == "no-data"


def test_few_steps_are_refused() -> None:
    """Seven steps are too few to judge anything on; eight are enough to raise."""
    found = refusal(shop(), of(step(at) for at in reversed(range(7))))
    assert (found.reason, found.figures["steps"]) == ("few-samples", 7)
    assert judged(shop(), of(step(at) for at in reversed(range(8)))).kept["cpu"] == "young"


def test_a_metric_that_stops_moves_nothing() -> None:
    """Four steps without a sample, while others have some: its usage is unknown."""
    other = [step(at, key="Deployment/shop/other") for at in reversed(range(4))]
    found = refusal(shop(), of([*(step(at + 4) for at in reversed(range(300))), *other]))
    assert (found.reason, found.figures["silent_seconds"]) == ("stale", 1200.0)


@pytest.mark.parametrize("steps_ago", [1, 3, 12, 20, 200])
@pytest.mark.parametrize(
    ("cpu", "memory", "resource"), [(100_000, 10, "cpu"), (100, 10_000, "memory"), (0, 10, "cpu"), (100, 0, "memory")]
)
def test_a_metric_that_breaks_moves_nothing(cpu: int, memory: int, resource: str, steps_ago: int) -> None:
    """A thousand times the usage of before, or none at all: a broken metric from its first step on, for a day."""
    wrong = (step(at, cpu, memory) for at in reversed(range(steps_ago)))
    right = (step(at, 100, 10) for at in reversed(range(steps_ago, 520)))
    state = cluster(node("n1", cpu=64_000, memory=16_000), deployed("web", ["n1", "n1"], cpu=400, memory=20))
    found = refusal(state, of([*right, *wrong]))
    assert (found.reason, found.figures["resource"]) == ("level-broken", resource)


def test_one_wrong_step_does_not_raise_memory() -> None:
    """A single sample decides on memory: one of a thousand times the usage is not followed, also when it is over."""
    steps = [step(at, 100, 10_000 if at == 5 else 10) for at in reversed(range(520))]
    state = cluster(node("n1", memory=16_000), deployed("web", ["n1", "n1"], cpu=400, memory=20))
    assert refusal(state, of(steps)).figures["resource"] == "memory"


def test_a_last_good_judgement_holds_until_it_is_too_old() -> None:
    """Without usage for an hour the forecast of before stands; a day later it does not."""
    good = made(shop())
    memory = Memory().with_answer(NOW, good)
    later = forecasts(shop(), History(), NOW + timedelta(hours=2), TENTH, memory)
    assert later.forecasts == good.forecasts
    old = forecasts(shop(), History(), NOW + timedelta(hours=25), TENTH, memory)
    assert old.forecasts == ()
    assert old.refused[0].reason == "no-data"


def test_the_oldest_judgements_are_made_again_first() -> None:
    """An iteration judges as many as it may, those never judged before the others; the rest keeps its judgement."""
    names = ["a", "b", "c"]
    state = cluster(node("n1"), *(deployed(name, ["n1"], cpu=400, memory=500) for name in names))
    history = of(
        one for at in reversed(range(300)) for one in [step_of(at, {f"Deployment/shop/{name}": 100 for name in names})]
    )
    rules = Rules(max_change=Fraction(1, 10), batch=2)
    memory, seen = Memory(), []
    for turn in range(3):
        now = NOW + turn * timedelta(minutes=1)
        answer = forecasts(state, history, now, rules, memory)
        memory = memory.with_answer(now, answer)
        seen.append([one.workload[-1] for one in answer.judged])
    assert seen == [["a", "b"], ["c"], []]
    assert len(answer.forecasts) == 3
    again = forecasts(state, history, NOW + timedelta(hours=1), rules, memory)
    assert [one.workload[-1] for one in again.judged] == ["a", "b"]


def step_of(at: int, cpu: dict[str, int]) -> UsageResampled:
    """A step of several workloads with 450 MiB each."""
    return many(at, {key: (amount, 450) for key, amount in cpu.items()})


def test_a_judgement_says_what_led_to_it() -> None:
    """Models, offsets, calibration and history are in the event: a reader needs no more to see why."""
    found = judged(shop())
    assert [band.resource for band in found.bands] == ["cpu", "memory"]
    cpu = found.bands[0]
    assert (cpu.need, cpu.quantile, cpu.coverage, cpu.days) == (100, 0.95, 1.0, 1.0)
    assert len(cpu.models) == len(cpu.offsets) > 0
    assert found.pods == 2


def test_a_restart_within_the_interval_is_refused() -> None:
    """A pod whose container ended abnormally a minute ago says nothing about need; an hour ago is long enough."""
    assert refusal(shop(last_restart=NOW - timedelta(minutes=1))).reason == "restarted"
    assert only(shop(last_restart=NOW - timedelta(hours=1))).requests_after["cpu"] == 360


def test_only_deployments_are_changed() -> None:
    """A StatefulSet gets a recommendation, and a refusal with its type instead of a forecast."""
    state = cluster(node("n1"), stateful("web", ["n1", "n1"]))
    found = made(state, of(step(at, 50, 50, key="StatefulSet/shop/web") for at in reversed(range(320))))
    assert [(one.workload, one.reason) for one in found.refused] == [("StatefulSet/shop/web", "not-a-deployment")]
    assert found.judged[0].recommended["cpu"] == 50


def test_pods_that_differ_from_their_template_are_refused() -> None:
    """While a roll-out is under way the template does not say what the pods have."""
    top, set_, *pods = deployed("web", ["n1", "n1"], cpu=400)
    _, _, other, *_ = deployed("web", ["n1"], cpu=300)
    state = cluster(node("n1"), top, set_, other, *pods[1:])
    assert refusal(state).reason == "requests-differ-from-template"


def test_a_pod_without_requests_is_refused() -> None:
    """Where nothing is requested there is nothing to adjust."""
    assert refusal(shop(cpu=0, memory=0)).reason == "no-requests"


def asking(*containers: ContainerRequests) -> Cluster:
    """`web` with a template that states its containers; its pods ask for 400 millicores and 500 MiB."""
    top, *rest = deployed("web", ["n1", "n1"], cpu=400, memory=500)
    assert isinstance(top, Workload)
    return cluster(node("n1"), replace(top, template_containers=containers), *rest)


def asks(name: str, cpu: int, memory: int, *, init: bool = False) -> ContainerRequests:
    """What one container asks for, in millicores and MiB."""
    return ContainerRequests(name=name, requests=FrozenMap(cpu=cpu, memory=memory * MIB), init=init)


def test_only_what_the_containers_ask_for_is_changed() -> None:
    """An init container that asks for more memory than they keeps the pod's where it is: only their CPU is forecast."""
    state = asking(asks("main", 300, 100), asks("log", 100, 50), asks("migrate", 10, 500, init=True))
    found = only(state, of(days(1.1, 100, 50)))
    assert found.requests_after == {**found.requests_before, "cpu": 360}


@pytest.mark.parametrize(("ceiling", "after"), [({"memory": 500 * MIB}, 500), ({"memory": 510 * MIB}, 510), ({}, 528)])
def test_requests_grow_up_to_the_limits(ceiling: dict[str, int], after: int) -> None:
    """A peak of 480 MiB asks for a tenth more; where the limits say less, it is that; at them nothing is changed."""
    top, *rest = deployed("web", ["n1", "n1"], cpu=400, memory=500)
    assert isinstance(top, Workload)
    state = cluster(node("n1"), replace(top, template_ceiling=FrozenMap(ceiling)), *rest)
    found = only(state, of(days(1.1, 400, 480)))
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
    assert refusal(state, of(days(1.1, 100, 50))).reason == "requests-not-of-containers"


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
