"""The example applications under load: users wait for an answer, think, and ask again; busy services answer slowly."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec

from kinema_sim.load.meter import Usage

MIB = 1024**2
_ROUNDS = 60
_FULL = 0.999
"""Share of a service's CPU that can be used at most."""


@dataclass(frozen=True)
class Profile:
    """A piecewise-linear number of users.

    Attributes:
        points: (seconds since the start, users), by rising time; outside, the first and last value hold.
    """

    points: tuple[tuple[int, int], ...]

    def users(self, ms: int) -> int:
        """Give the users at a time in milliseconds since the start, rounded down."""
        times = [seconds * 1000 for seconds, _ in self.points]
        after = bisect_right(times, ms)
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (start, low), (end, high) = self.points[after - 1], self.points[after]
        return low + (high - low) * (ms - start * 1000) // ((end - start) * 1000)


def _steps(*steps: tuple[int, int]) -> Profile:
    """Build a profile from (duration, users at its end), starting with no users."""
    points = [(0, 0)]
    for duration, users in steps:
        points.append((points[-1][0] + duration, users))
    return Profile(tuple(points))


LINEAR = _steps((600, 1500), (600, 0))
"""Up to 1500 users in ten minutes, and down to none in ten."""

SPIKE = _steps((60, 100), (360, 100), (60, 500), (300, 500), (30, 50), (540, 50))
"""100 users, then 500 for five minutes, then within half a minute 50. (Rises without a given length take a minute.)"""

RANDOM = _steps((240, 300), (60, 50), (600, 1000), (360, 0))
"""300, 50, 1000 and no users, one after the other. (The first fall has no given length and takes a minute.)"""

PROFILES = {"linear": LINEAR, "spike": SPIKE, "random": RANDOM}


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One service of an application.

    Attributes:
        name: workload name and `app` label of its pods.
        cpu_m: CPU request.
        memory_mi: memory request.
        cpu_limit_m: CPU limit, all that one pod can use.
        memory_limit_mi: memory limit.
        calls_per_1000: calls that it gets per thousand user requests.
        cpu_us_per_call: CPU time of one call in microseconds.
        base_cpu_m: CPU that a pod uses without any call.
        base_memory_mi: memory that a pod uses without any call.
        memory_ki_per_rps: memory per call and second.
        ready_seconds: from start to Ready.
        min: fewest replicas.
        max: most replicas; equal to `min` for services that do not scale.
    """

    name: str
    cpu_m: int
    memory_mi: int
    cpu_limit_m: int
    memory_limit_mi: int
    calls_per_1000: int
    cpu_us_per_call: int
    base_cpu_m: int
    base_memory_mi: int
    memory_ki_per_rps: int
    ready_seconds: int
    min: int
    max: int


class Application(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An application under load.

    Attributes:
        name: its name.
        namespace: where its pods are.
        think_ms: pause of a user between an answer and the next request.
        sources: where the figures come from.
        services: its services.
    """

    name: str
    namespace: str
    think_ms: int
    sources: dict[str, str]
    services: tuple[Service, ...]


@cache
def load_application(name: str) -> Application:
    """Read an application that comes with the package: `online-boutique` or `teastore`.

    Raises:
        FileNotFoundError: there is no such application.
    """
    text = resources.files("kinema_sim").joinpath(f"data/{name}.json").read_bytes()
    return msgspec.json.decode(text, type=Application)


@dataclass(frozen=True)
class Flow:
    """Throughput of an application under a number of users.

    Attributes:
        requests_per_1000s: user requests per thousand seconds.
        response_us: mean response time of a user request in microseconds; 0 without users.
    """

    requests_per_1000s: int
    response_us: int


def solve(app: Application, users: int, ready: Mapping[str, float]) -> Flow:
    """Find the throughput at which users, think time and response time agree.

    Args:
        app: the application.
        users: virtual users.
        ready: ready pods by service, one that has half of its CPU as a half; a service without any stops everything.
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


def _capacity(app: Application, ready: Mapping[str, float]) -> float:
    """Requests per second at which the first service is full."""
    return min(
        _FULL
        * ready[service.name]
        * service.cpu_limit_m
        * 1_000_000
        / (service.calls_per_1000 * service.cpu_us_per_call)
        for service in app.services
    )


def _response(app: Application, rate: float, ready: Mapping[str, float]) -> float:
    """Seconds that a user request takes: every call takes longer the busier its service is."""
    total = 0.0
    for service in app.services:
        calls = service.calls_per_1000 / 1000
        work = service.cpu_us_per_call / 1_000_000
        busy = rate * calls * work * 1000 / (ready[service.name] * service.cpu_limit_m)
        total += calls * work / (1 - min(busy, _FULL))
    return total


def usage_of(service: Service, flow: Flow, ready: int) -> Usage:
    """Give what each of a service's ready pods uses, the calls being spread evenly."""
    calls_per_million_s = flow.requests_per_1000s * service.calls_per_1000
    cpu_nano = service.base_cpu_m * 1_000_000 + calls_per_million_s * service.cpu_us_per_call // (1000 * ready)
    memory = service.base_memory_mi * 1024**2 + calls_per_million_s * service.memory_ki_per_rps * 1024 // (
        10**6 * ready
    )
    most = service.cpu_limit_m * 1_000_000
    return Usage(min(cpu_nano, most), min(memory, service.memory_limit_mi * 1024**2))
