"""The example applications: what each service asks for, and what a user's request costs it."""

from functools import cache
from importlib import resources

import msgspec

MIB = 1024**2


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
