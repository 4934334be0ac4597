"""Rules that recommend requests, worked by hand, and policies that place beside them or together with them."""

from __future__ import annotations

from datetime import timedelta
from math import pi, sin
from pathlib import Path

import numpy as np
import pytest

from kinema_sim.controllers.resizing import Resizes
from kinema_sim.simulate.build import build
from kinema_sim.simulate.run import Result, chosen, run
from kinema_sim.simulate.scenario import Loaded, load_scenario
from kinema_sim.simulate.sizing import Known, Krr, Line, Vpa, Wanted, bucket_end
from kinema_sim.simulate.usage import past_of

MIB = 2**20
OLD = timedelta(days=1)
DAY = 288


def known(cpu: list[float], memory: list[float], kills: tuple[tuple[float, int], ...] = ()) -> Known:
    """Usage in steps of five minutes, memory in MiB."""
    return Known(np.array(cpu, dtype=float), np.array(memory, dtype=float) * MIB, 300.0, kills)


@pytest.mark.parametrize(("value", "end"), [(0, 10), (9.9, 10), (10, 20.5), (20.4, 20.5), (20.5, 31.525), (31, 31.525)])
def test_buckets_grow_by_a_twentieth(value: float, end: float) -> None:
    """10, then 10.5 wide, then 11.025."""
    assert bucket_end(value, 10) == pytest.approx(end)


def test_vpa_takes_a_percentile_of_cpu_and_the_largest_memory_of_a_day() -> None:
    """A day at 100m with 5% of it at 1000m: p90 is in 100m's bucket, which ends at 110.3m; plus 15%."""
    cpu = [1000.0 if step % 20 == 0 else 100.0 for step in range(DAY)]
    memory = [500.0] * (DAY - 1) + [800.0]
    found = Vpa()(known(cpu, memory), Wanted(1000, 2000 * MIB), OLD)
    assert found is not None
    assert found.cpu == round(1.15 * bucket_end(100, 10)) == 127
    assert found.memory == round(1.15 * bucket_end(800 * MIB, 10**7))
    assert 1.15 * 800 * MIB < found.memory < 1.15 * 1.05 * 810 * MIB


def test_vpa_has_floors_and_patience() -> None:
    """25m and 250 MB at least; within the bounds a change below a tenth, or half a day after the last, is not made."""
    steady = known([100.0] * DAY, [500.0] * DAY)
    target = Vpa()(steady, Wanted(1000, 2000 * MIB), OLD)
    assert target is not None
    assert Vpa()(steady, Wanted(target.cpu + 5, target.memory), OLD) is None, "4% are not worth it"
    assert Vpa()(steady, Wanted(target.cpu + 40, target.memory), OLD) is not None
    assert Vpa()(steady, Wanted(target.cpu + 40, target.memory), timedelta(hours=1)) is None, "within the bounds"
    tiny = Vpa()(known([1.0] * DAY, [10.0] * DAY), Wanted(1000, 2000 * MIB), OLD)
    assert tiny == Wanted(25, 250 * 10**6)


def test_vpa_gives_more_after_a_kill() -> None:
    """600 MiB at the kill count as a fifth more, on the day of the kill."""
    steady = [500.0] * DAY
    calm = Vpa()(known([100.0] * DAY, steady), Wanted(100, 100 * MIB), OLD)
    killed = Vpa()(known([100.0] * DAY, steady, ((10.0, 600 * MIB),)), Wanted(100, 100 * MIB), OLD)
    assert calm is not None
    assert killed is not None
    assert killed.memory == round(1.15 * bucket_end(max(1.2 * 600 * MIB, 600 * MIB + 10**8), 10**7)) > calm.memory


def test_krr_takes_p95_and_the_maximum_as_request_and_limit() -> None:
    """Of 1m to 200m the 95th percentile is 190.05m; 400 MiB and 15% are the limit, too. Too few points say nothing."""
    cpu = [float(n) for n in range(1, 201)]
    found = Krr()(known(cpu, [300.0] * 199 + [400.0]), Wanted(1000, 1000 * MIB), OLD)
    assert found == Wanted(191, round(1.15 * 400 * MIB), memory_limit=True)
    assert Krr()(known(cpu[:99], [300.0] * 99), Wanted(1000, 1000 * MIB), OLD) is None


def test_the_thesis_follows_a_line_by_a_tenth() -> None:
    """100, 200, 300 go on to 500 in the middle of the next quarter; a tenth of the request is all that is given."""
    rising = known([0.0] * 10 + [100.0, 200.0, 300.0], [100.0] * 13)
    assert Line()(rising, Wanted(480, 110 * MIB), OLD) == Wanted(500, 110 * MIB)
    assert Line()(rising, Wanted(430, 110 * MIB), OLD) == Wanted(473, 110 * MIB)
    assert Line()(rising, Wanted(1000, 1000 * MIB), OLD) == Wanted(900, 900 * MIB)
    assert Line()(rising, Wanted(100, 50 * MIB), OLD) == Wanted(110, round(110 * MIB)), (
        "memory: the day's peak plus 10%"
    )
    assert Line()(known([100.0] * 3, [100.0] * 3, ((1.0, 1),)), Wanted(100, 100 * MIB), OLD) is None, "after a kill"


# --- beside a policy


def declared_too_much(hours: int = 2, *, in_place: bool = False) -> Loaded:
    """Six workloads of two pods on three nodes; they request four times what they use, as is known for two days."""
    sources, lines = {}, []
    for index in range(6):
        steps = range(0, (48 + hours) * 3600, 300)
        rows = [f"{at},{round(200 + 50 * sin(2 * pi * (at / 86_400 + index / 6)))},400" for at in steps]
        sources[f"{index}.csv"] = "\n".join(["seconds,cpu_m,memory_mi", *rows]).encode()
        lines.append(f"  - {{name: w{index}, cpu: 1000m, memory: 2Gi, replicas: 2, usage: {index}.csv}}")
    head = (
        f"name: much\nduration: {hours}h\npast: 2d\nresize_in_place: {'true' if in_place else 'false'}\n"
        "cloud: {types: [e2-standard-2, e2-standard-4, e2-standard-8]}\n"
    )
    text = head + "nodes: [{type: e2-standard-8, count: 3}]\nworkloads:\n" + "\n".join(lines) + "\n"
    sources["much.yaml"] = text.encode()
    return load_scenario("much.yaml", sources.__getitem__, Path("much.yaml"))


def simulated(name: str, max_change: str = "") -> Result:
    """The result of a policy."""
    return run(declared_too_much(), name, work=2, max_change=max_change)[0]


def test_the_past_of_the_series_is_known() -> None:
    """Two days of steps of all workloads, in whole rows and single steps, without a gap."""
    loaded = declared_too_much()
    sim = build(loaded, 0)
    past = past_of(loaded, sim)
    steps = sum(getattr(body, "steps", 1) for body in past if body.TYPE == "usage-resampled.v1")
    rows = [body for body in past if body.TYPE == "usage-compacted.v1"]
    assert len(rows) == 2
    assert past[0].start.timestamp() == sim.loop.now_ms / 1000 // 86_400 * 86_400 - 2 * 86_400
    assert steps == sim.loop.now_ms // 300_000 % 288
    assert past[0].workloads == tuple(f"Deployment/shop/w{index}" for index in range(6))


@pytest.mark.parametrize("sizing", ["vpa", "krr"])
def test_smaller_requests_save_where_a_policy_places_by_them(sizing: str) -> None:
    """All twelve pods get other requests, and nodes go that were needed for the declared ones."""
    declared, sized = simulated("karpenter"), simulated(f"karpenter+{sizing}")
    assert declared.resized == 0
    assert sized.policy == f"karpenter+{sizing}"
    assert sized.resized >= 12
    assert sized.evictions >= sized.resized
    assert sized.samples[-1].usd_per_hour < declared.samples[-1].usd_per_hour
    assert sized.samples[-1].requested_cpu < declared.samples[-1].requested_cpu / 2
    assert (sized.samples[-1].pending, sized.samples[-1].missing) == (0, 0)


def test_kinema_sizes_and_places_in_the_same_plans() -> None:
    """The predictor's own judgements lead to plans that lower requests and to fewer or cheaper nodes."""
    declared, sized = simulated("kinema"), simulated("kinema+kinema", max_change="1")
    assert declared.resized == 0
    assert sized.resized >= 6
    assert sized.samples[-1].usd_per_hour < declared.samples[-1].usd_per_hour
    assert sized.whole.killed == 0
    again = simulated("kinema+kinema", max_change="1")
    assert again == sized, "a run can be repeated"


def test_pods_that_kubelets_resize_are_not_restarted() -> None:
    """The same plans' requests reach pods that run on; only those that move for a cheaper cluster are replaced."""
    rolled = simulated("kinema+kinema", max_change="1")
    sized = run(declared_too_much(in_place=True), "kinema+kinema", work=2, max_change="1")[0]
    assert sized.resized >= 6
    assert sized.evictions < rolled.evictions
    assert sized.samples[-1].usd_per_hour <= rolled.samples[-1].usd_per_hour
    assert (sized.disruptions, sized.whole.killed) == (0, 0)


def test_pods_count_as_restarted_where_kubelets_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten that a plan does not count, as they were to run on, are rolled all the same: beside 15 in plans, 25."""
    monkeypatch.setattr(Resizes, "_refusal", lambda _self, _pod: "Infeasible")
    sized = run(declared_too_much(1, in_place=True), "kinema+kinema", work=2, max_change="1")[0]
    assert sized.evictions >= 20
    assert sized.samples[-1].requested_cpu < 12_000


@pytest.mark.parametrize("name", ["nobody", "kinema+nobody", "karpenter+kinema", "kinema+"])
def test_unknown_names_are_refused(name: str) -> None:
    """What can be chosen is said."""
    with pytest.raises(ValueError, match="choose from"):
        chosen(name)
