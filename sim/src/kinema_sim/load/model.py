"""The closed loop: users wait for an answer, think, and ask again; busy services answer slowly."""

from collections.abc import Mapping
from dataclasses import dataclass

from kinema_sim.load.apps import Application, Service

_ROUNDS = 60
_FULL = 0.999
"""Share of a service's CPU that can be used at most."""


@dataclass(frozen=True)
class Flow:
    """What a number of users makes of an application.

    Attributes:
        requests_per_1000s: user requests per thousand seconds.
        response_us: mean response time of a user request in microseconds; 0 without users.
    """

    requests_per_1000s: int
    response_us: int


@dataclass(frozen=True)
class PodUsage:
    """What one ready pod of a service uses."""

    cpu_nano: int
    memory_bytes: int


def solve(app: Application, users: int, ready: Mapping[str, int]) -> Flow:
    """Find the throughput at which users, think time and response time agree.

    Args:
        app: the application.
        users: virtual users.
        ready: ready pods by service; a service without any stops everything.
    """
    if users <= 0 or any(ready.get(service.name, 0) <= 0 for service in app.services):
        return Flow(0, 0)
    think = app.think_ms / 1000
    low, high = 0.0, min(users / think, _capacity(app, ready))
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if middle * (think + _response(app, middle, ready)) > users:
            high = middle
        else:
            low = middle
    # Beyond saturation requests queue up: Little's law says for how long, whatever the services themselves take.
    waited = max(_response(app, low, ready), users / low - think)
    return Flow(round(low * 1000), round(waited * 1_000_000))


def _capacity(app: Application, ready: Mapping[str, int]) -> float:
    """Requests per second at which the first service is full."""
    return min(
        _FULL
        * ready[service.name]
        * service.cpu_limit_m
        * 1_000_000
        / (service.calls_per_1000 * service.cpu_us_per_call)
        for service in app.services
    )


def _response(app: Application, rate: float, ready: Mapping[str, int]) -> float:
    """Seconds that a user request takes: every call takes longer the busier its service is."""
    total = 0.0
    for service in app.services:
        calls = service.calls_per_1000 / 1000
        work = service.cpu_us_per_call / 1_000_000
        busy = rate * calls * work * 1000 / (ready[service.name] * service.cpu_limit_m)
        total += calls * work / (1 - min(busy, _FULL))
    return total


def usage_of(service: Service, flow: Flow, ready: int) -> PodUsage:
    """Give what each of a service's ready pods uses, the calls being spread evenly."""
    calls_per_million_s = flow.requests_per_1000s * service.calls_per_1000
    cpu_nano = service.base_cpu_m * 1_000_000 + calls_per_million_s * service.cpu_us_per_call // (1000 * ready)
    memory = service.base_memory_mi * 1024**2 + calls_per_million_s * service.memory_ki_per_rps * 1024 // (
        10**6 * ready
    )
    most = service.cpu_limit_m * 1_000_000
    return PodUsage(min(cpu_nano, most), min(memory, service.memory_limit_mi * 1024**2))
