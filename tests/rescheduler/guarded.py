"""A connection that has only the rights of some rules, whatever the server behind it would allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.kube_requests import right_of

from kinema_kubernetes.client import Client
from kinema_kubernetes.errors import DeniedError
from kinema_kubernetes.objects import Json
from kinema_kubernetes.rights import Right, Rule, covers
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.leadership.fence import Fence


class Guarded(Client):
    """Asks for what the rules allow, and refuses the rest as an API server would."""

    def __init__(self, inner: Client, rules: Sequence[Rule]) -> None:
        self.__dict__.update(inner.__dict__)  # the same connection
        self.rules = rules
        self.used: set[Right] = set()

    async def request(self, method: str, path: str, **more: Any) -> Json:
        """Ask the server, or refuse."""
        right = right_of(method, path, more.get("query"))
        self.used.add(right)
        if not any(covers(rule, right) for rule in self.rules):
            raise DeniedError(f"{method} {path}", f"no rule allows {right}", status=403)
        return await self.answer(method, path, **more)

    async def answer(self, method: str, path: str, **more: Any) -> Json:
        """What the server says."""
        return await super().request(method, path, **more)


def fenced(guarded: Guarded) -> FencedClient:
    """The rescheduler's client over such a connection; every write passes its fence."""
    return FencedClient(guarded, Fence())
