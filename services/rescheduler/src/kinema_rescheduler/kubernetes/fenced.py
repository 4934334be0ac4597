"""Requests of the rescheduler: under its fence, and with the errors of effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kinema_kubernetes import client
from kinema_kubernetes.client import FIELD_MANAGER, MERGE, Client
from kinema_kubernetes.errors import KubernetesError
from kinema_kubernetes.objects import Json, annotations_of
from kinema_rescheduler.errors import EffectError, effect_error
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.names import FENCING, PLAN


class FencedClient:
    """A connection that writes only while the fence allows it, and leaves its token on what it marks.

    Its methods are those of `Client`; they raise EffectError.
    """

    def __init__(self, unfenced: Client, fence: Fence) -> None:
        """The client's `guard` is the fence's check."""
        self.client = unfenced
        self._fence = fence

    async def close(self) -> None:
        """Close all connections."""
        await self.client.close()

    async def pause(self, seconds: float) -> None:
        """Give the controllers time to act, in the cluster's own time."""
        await self.client.pause(seconds)

    async def get(self, path: str, **query: str) -> Json:
        """Read an object or a list."""
        with _effects():
            return await self.client.get(path, **query)

    async def items(self, path: str, **query: str) -> list[Json]:
        """Read a list in pages."""
        with _effects():
            return await self.client.items(path, **query)

    async def served(self, prefix: str) -> frozenset[str]:
        """Return the resources that are served under `/api/v1` or `/apis/GROUP/VERSION`."""
        with _effects():
            return await self.client.served(prefix)

    async def create(self, path: str, body: Json, *, manager: str = FIELD_MANAGER) -> Json:
        """Create an object or a subresource."""
        with _effects():
            return await self.client.create(path, body, manager=manager)

    async def delete(self, path: str, uid: str, *, version: str = "") -> None:
        """Delete an object if it is the one with this uid, and as it was at this resource version."""
        with _effects():
            await self.client.delete(path, uid, version=version)

    async def patch(self, path: str, body: Json, content_type: str = MERGE) -> Json:
        """Patch an object, or create it by applying it."""
        with _effects():
            return await self.client.patch(path, body, content_type)

    async def modify(
        self, path: str, change: Callable[[Json], Json | None], *, content_type: str = MERGE
    ) -> tuple[Json, bool]:
        """Read and patch as `Client.modify` does, but nothing that a later leader has written."""

        def fenced(current: Json) -> Json | None:
            patch = change(current)
            if patch is None:
                return None
            self._fence.check(annotations_of(current).get(FENCING, ""))
            metadata = patch.get("metadata", {})
            if PLAN in metadata.get("annotations", {}):  # the token comes and goes with the mark of the plan
                token = str(self._fence.revision) if metadata["annotations"][PLAN] is not None else None
                metadata = {**metadata, "annotations": {**metadata["annotations"], FENCING: token}}
            return {**patch, "metadata": metadata}

        with _effects():
            return await self.client.modify(path, fenced, content_type=content_type)

    async def disown(self, path: str) -> None:
        """Remove Kinema from an object's `managedFields`, once its values are those of its owner again.

        The API server assigns each value that Kinema writes to Kinema. An owner who applies another one later
        (server-side, as Helm does) would meet a conflict. Errors are ignored: a field that stays assigned does no harm.
        """

        def change(current: Json) -> Json | None:
            entries = current["metadata"].get("managedFields") or []
            others = [entry for entry in entries if entry.get("manager") != FIELD_MANAGER]
            # An empty list would be taken for no change; one empty entry resets it.
            return {"metadata": {"managedFields": others or [{}]}} if len(others) < len(entries) else None

        with suppress(EffectError):
            await self.modify(path, change)


@contextmanager
def _effects() -> Iterator[None]:
    try:
        yield
    except KubernetesError as error:
        raise effect_error(error) from error


async def connect(
    kubeconfig: str, *, context: str = "", timeout_seconds: float = 10.0, fence: Fence | None = None
) -> FencedClient:
    """Connect as `kinema_kubernetes.client.connect` does; without a fence, every write passes.

    Raises:
        PermanentError: `invalid`, the configuration cannot be used.
    """
    fence = fence or Fence()
    with _effects():
        unfenced = await client.connect(kubeconfig, context=context, timeout_seconds=timeout_seconds, guard=fence.check)
    return FencedClient(unfenced, fence)
