"""A connection that has only the rights of some rules, whatever the server behind it would allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.kube_requests import right_of

from kinema_core.runtime.kubernetes_rights import Right, Rule, covers
from kinema_rescheduler.errors import FinalError
from kinema_rescheduler.kubernetes.client import Json, KubernetesApi


class Guarded(KubernetesApi):
    """Asks for what the rules allow, and refuses the rest as an API server would."""

    def __init__(self, inner: KubernetesApi, rules: Sequence[Rule]) -> None:
        self.__dict__.update(inner.__dict__)  # the same connection
        self.rules = rules
        self.used: set[Right] = set()

    async def _request(self, method: str, path: str, **more: Any) -> Json:
        right = right_of(method, path, more.get("query"))
        self.used.add(right)
        if not any(covers(rule, right) for rule in self.rules):
            raise FinalError("denied", f"{method} {path}: no rule allows {right}")
        return await self.answer(method, path, **more)

    async def answer(self, method: str, path: str, **more: Any) -> Json:
        """What the server says."""
        return await super()._request(method, path, **more)
