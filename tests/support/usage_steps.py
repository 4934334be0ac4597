"""Steps of usage, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from tests.support.builders import MIB, NOW

from kinema_core.events import UsageResampled
from kinema_core.model.usage import Amounts, resampled

STEP = timedelta(minutes=5)
KEY = "Deployment/shop/web"


def step(
    at: int, cpu: int = 100, memory: int = 450, *, key: str = KEY, pods: int = 2, step: timedelta = STEP
) -> UsageResampled:
    """The step that ends `at` steps before NOW; millicores and MiB of one workload."""
    return many(at, {key: (cpu, memory)}, pods=pods, step=step)


def many(
    at: int, usage: Mapping[str, tuple[int, int]], *, pods: int = 2, step: timedelta = STEP, now: datetime = NOW
) -> UsageResampled:
    """The same of several workloads."""
    rows = {key: Amounts(pods, cpu, memory * MIB) for key, (cpu, memory) in usage.items()}
    return resampled(rows, start=now - (at + 1) * step, step=step)


def days(count: float, cpu: int = 100, memory: int = 450) -> Iterable[UsageResampled]:
    """Steps of constant usage, the last of which ends at NOW."""
    return (step(at, cpu, memory) for at in reversed(range(round(count * 288))))
