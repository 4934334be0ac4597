"""The metrics API, as `kubectl top` reads it."""

from __future__ import annotations

from typing import Final

from kinema_observer.adapters.kubernetes import Api
from kinema_observer.errors import ApiProtocolError, UnreadableListError
from kinema_observer.logic.usage import Usage, usage_of

PATH: Final = "/apis/metrics.k8s.io/v1beta1/pods"


class MetricsApi:
    """Usage of all pods."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def read(self) -> Usage | None:
        """One reading; None when there is none yet.

        Raises:
            ApiError: the API is not served, denied, or does not answer.
        """
        body = await self._api.get(PATH, {})
        try:
            return usage_of(body)
        except UnreadableListError as error:
            raise ApiProtocolError(PATH, str(error)) from error
