"""Load: profiles, the closed loop, and what pods use because of it."""

import pytest

from kinema_sim.load.model import (
    LINEAR,
    PROFILES,
    RANDOM,
    SPIKE,
    Application,
    Flow,
    Profile,
    load_application,
    solve,
    usage_of,
)

APPS = ("online-boutique", "teastore")


def _ready(app: Application, count: int) -> dict[str, int]:
    return {service.name: count for service in app.services}


@pytest.mark.parametrize(
    ("profile", "seconds", "users"),
    [
        (LINEAR, 0, 0),
        (LINEAR, 300, 750),
        (LINEAR, 600, 1500),
        (LINEAR, 1200, 0),
        (LINEAR, 9999, 0),
        (SPIKE, 60, 100),
        (SPIKE, 420, 100),
        (SPIKE, 480, 500),
        (SPIKE, 780, 500),
        (SPIKE, 810, 50),
        (RANDOM, 240, 300),
        (RANDOM, 300, 50),
        (RANDOM, 900, 1000),
        (RANDOM, 1260, 0),
    ],
)
def test_profiles_pass_through_their_points(profile: Profile, seconds: int, users: int) -> None:
    """The three profiles of the experiments have the users that the source names at the times it names."""
    assert profile.users(seconds * 1000) == users
    assert profile in PROFILES.values()


@pytest.mark.parametrize("name", APPS)
def test_throughput_is_limited_by_thinking_users(name: str) -> None:
    """With idle services, users ask once per think time plus response time."""
    app = load_application(name)
    flow = solve(app, 100, _ready(app, 50))
    cycle_us = app.think_ms * 1000 + flow.response_us
    assert flow.requests_per_1000s * cycle_us == pytest.approx(100 * 10**9, rel=1e-3)


@pytest.mark.parametrize("name", APPS)
def test_busy_services_answer_slowly_and_cap_the_throughput(name: str) -> None:
    """More users on the same pods raise the response time, and in the end not the throughput."""
    app = load_application(name)
    flows = [solve(app, users, _ready(app, 2)) for users in (10, 200, 2000, 20000)]
    assert [flow.response_us for flow in flows] == sorted({flow.response_us for flow in flows})
    assert flows[3].requests_per_1000s == pytest.approx(flows[2].requests_per_1000s, rel=0.05)


def test_one_missing_service_stops_the_application() -> None:
    """Without a ready pod of one service nothing is answered."""
    app = load_application("teastore")
    assert solve(app, 100, {**_ready(app, 2), "teastore-db": 0}) == Flow(0, 0)


def test_usage_adds_base_and_calls_and_stops_at_the_limits() -> None:
    """A pod uses its base plus its share of the calls, and never more than its limits."""
    service = load_application("online-boutique").services[0]
    assert service.name == "frontend"
    idle = usage_of(service, Flow(0, 0), 1)
    assert idle.cpu_nano == service.base_cpu_m * 1_000_000
    assert idle.memory_bytes == service.base_memory_mi * 1024**2
    ten_per_second = usage_of(service, Flow(10_000, 0), 2)
    assert ten_per_second.cpu_nano - idle.cpu_nano == 5 * service.cpu_us_per_call * 1000
    full = usage_of(service, Flow(10**9, 0), 1)
    assert full.cpu_nano == service.cpu_limit_m * 1_000_000
    assert full.memory_bytes == service.memory_limit_mi * 1024**2


def test_the_data_covers_both_applications() -> None:
    """Online Boutique has its eleven workloads, TeaStore its seven, and all figures name their source."""
    assert [len(load_application(name).services) for name in APPS] == [11, 7]
    assert all(load_application(name).sources for name in APPS)
