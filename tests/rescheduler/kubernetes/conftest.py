"""Single effects beside the simulated cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.rescheduler.effect_bench import Bench, bench_in


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Serve the tiny cluster."""
    async with bench_in(tmp_path) as found:
        yield found
