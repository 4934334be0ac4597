"""The metrics API, as `kubectl top` reads it."""

from __future__ import annotations

from typing import Final

from kinema_kubernetes.client import Client
from kinema_kubernetes.errors import ProtocolError
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.usage import Usage, usage_of

PATH: Final = "/apis/metrics.k8s.io/v1beta1/pods"


class MetricsApi:
    """Usage of all pods."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self) -> Usage | None:
        """One reading; None when there is none yet.

        Raises:
            KubernetesError: the API is not served, denied, or does not answer.
        """
        answer = await self._client.read(PATH)
        try:
            return usage_of(answer.body)
        except UnreadableListError as error:
            raise ProtocolError(f"GET {PATH}", str(error)) from error
