"""The claim on a cluster: of several Kinemas, each with a broker of its own, one acts there.

A Lease object holds the name of that one. Any process of the same Kinema may renew it; the lease on their broker
decides which of those processes acts. No process trusts another machine's clock: a holder counts as dead when its Lease
has not changed for the time that the Lease states, on the reader's clock, and as alive as soon as it has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import ceil, inf
from typing import Final

from kinema_core.runtime.clock import SystemClock
from kinema_kubernetes.client import Client
from kinema_kubernetes.errors import KubernetesError, NotFoundError, PermanentError, UnavailableError
from kinema_kubernetes.objects import Json, annotations_of

NAMESPACE: Final = "kube-system"
CLAIM_NAME: Final = "kinema"
PROCESS: Final = "kinema.io/process"
"""Annotation of the Lease: where the process runs that renewed it last, for people."""
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PATH: Final = f"{_LEASES}/{CLAIM_NAME}"
_TURNS: Final = 5
"""How often it is renewed while it would last."""
_UNKNOWN: Final = UnavailableError(f"GET {PATH}", "it is not known yet which Kinema acts on this cluster")


class ClaimedError(PermanentError):
    """Another Kinema acts on the cluster."""


class ClusterClaim:
    """One Kinema's claim on a cluster, as one of its processes sees it."""

    def __init__(self, api: Client, holder: str, *, process: str, seconds: float = 15.0) -> None:
        """`holder` names the Kinema (`Bus.identity`), `process` the place where it runs; `seconds` are real seconds.

        The fence of `api` must not ask this claim.
        """
        self._api = api
        self._holder = holder
        self._process = process
        self._seconds = seconds
        self._since = -inf
        """The time just before the last request that succeeded in taking or renewing the claim."""
        self._seen: tuple[object, float] = (None, 0.0)
        """What the Lease of another holder said, and since when."""
        self._refusal: KubernetesError = _UNKNOWN

    def check(self) -> None:
        """Let a write pass while this Kinema holds the claim, with a third of its time to spare.

        Raises:
            ClaimedError: another Kinema acts there. KubernetesError: it is not known which does.
        """
        if time.monotonic() - self._since >= self._seconds * 2 / 3:
            raise self._refusal.with_traceback(None)

    async def take(self) -> None:
        """Take it now, and wait for the end of a holder that is silent.

        Raises:
            ClaimedError: another Kinema acts there. KubernetesError: the API server refuses it or does not answer.
        """
        await self._turn()
        while self._since == -inf:
            if isinstance(self._refusal, ClaimedError):
                self.check()
            await asyncio.sleep(self._seconds / _TURNS)
            await self._turn()

    async def keep(self, report: Callable[[str | None], None]) -> None:
        """Renew the claim forever, and take it whenever it is free; `report` gets what is wrong, or None."""
        while True:
            try:
                await self._turn()
                self.check()
            except KubernetesError as error:
                self._refusal = error
                report(str(error))
            else:
                report(None)
            await asyncio.sleep(self._seconds / _TURNS)

    async def release(self) -> None:
        """Release the claim if this Kinema holds it; raise KubernetesError where the API server does not answer."""
        self._since = -inf
        await self._api.modify(
            PATH, lambda found: {"spec": {"holderIdentity": None}} if self._is_holder(found) else None
        )

    async def _turn(self) -> None:
        """Take or renew the claim unless another holder may be alive, and note the holder."""
        asked = time.monotonic()
        try:
            found, _ = await self._api.modify(PATH, self._renewed)
        except NotFoundError:
            metadata = {"name": CLAIM_NAME, "namespace": NAMESPACE}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
            await self._api.create(_LEASES, body)
            found, _ = await self._api.modify(PATH, self._renewed)
        if self._is_holder(found):
            self._since, self._seen, self._refusal = asked, (None, 0.0), _UNKNOWN

    def _renewed(self, found: Json) -> Json | None:
        """Return the change that takes or renews the claim; None where another holder may be alive."""
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in {"", self._holder} and self._may_live(found, holder):
            return None
        now = SystemClock().now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        begun = {} if holder == self._holder else {"acquireTime": now}
        renewed = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": ceil(self._seconds),
            "renewTime": now,
            **begun,
        }
        return {"metadata": {"annotations": {PROCESS: self._process}}, "spec": renewed}

    def _may_live(self, found: Json, holder: str) -> bool:
        """Return whether another holder's time has not run out as seen from here."""
        said, now = found["spec"], time.monotonic()
        before, since = self._seen
        if said == before:
            return now - since <= (said.get("leaseDurationSeconds") or self._seconds)
        if before is not None:
            who = annotations_of(found).get(PROCESS, holder)
            detail = f"another Kinema acts on this cluster: {who}, as Lease {NAMESPACE}/{CLAIM_NAME} says"
            self._refusal = ClaimedError(f"GET {PATH}", f"{detail}; end one of the two")
        self._seen = (said, now)
        return True

    def _is_holder(self, found: Json) -> bool:
        return bool((found.get("spec") or {}).get("holderIdentity") == self._holder)
