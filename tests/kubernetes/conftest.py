"""The client's tests run on the loop that the observer runs on, some against a scripted API server."""

from __future__ import annotations

from tests.observer.conftest import pytest_asyncio_loop_factories, server

__all__ = ["pytest_asyncio_loop_factories", "server"]
