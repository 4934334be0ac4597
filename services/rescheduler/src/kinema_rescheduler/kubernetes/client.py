"""Requests to a Kubernetes API server: the official client for configuration, authentication and transport.

Bodies are plain JSON: the client's models refuse whole answers over one odd field that means nothing to us.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import aiohttp
import msgspec
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import OpenApiException

from kinema_core.runtime.yaml_files import kubeconfig_error, kubeconfig_fault
from kinema_rescheduler.errors import EffectError, FinalError, PassingError
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.names import FENCING, PLAN

Json: TypeAlias = dict[str, Any]

FIELD_MANAGER: Final = "kinema"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
"""Server-side apply of objects that are ours alone: whatever somebody else set in them is set back."""
_JSON: Final = "application/json"
_TRIES: Final = 5
"""How often a read-change-write is begun anew when somebody else wrote in between."""
_VETO: Final = re.compile(r"denied (the )?request")
"""How an API server tells that an admission webhook or policy forbids a write, whatever status that has chosen."""

_COLLECTIONS: Final = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers",
}


class ConflictError(PassingError):
    """Somebody else wrote the object in between."""


class NotFoundError(FinalError):
    """There is no such object (any more)."""


async def connect(
    kubeconfig: str, *, context: str = "", timeout_seconds: float = 10.0, fence: Fence | None = None
) -> KubernetesApi:
    """A connection by a kubeconfig file, or by the pod's own service account where none is named.

    `context` is the current one of the file where none is named. `fence` is asked before every write; without one, all
    pass.

    Raises:
        FinalError: `invalid`, the configuration cannot be used.
    """
    configuration = await _loaded(kubeconfig, context)

    async def renew() -> None:
        now = await _loaded(kubeconfig, context)
        if now.host != configuration.host:  # the same objects are not what they were there
            raise FinalError("invalid", f"kubeconfig {kubeconfig} leads to another cluster by now: {now.host}")
        configuration.api_key, configuration.refresh_api_key_hook = now.api_key, now.refresh_api_key_hook

    connection = client.ApiClient(configuration)
    return KubernetesApi(connection, timeout_seconds=timeout_seconds, fence=fence or Fence(), renew=renew)


async def _loaded(kubeconfig: str, context: str) -> client.Configuration:
    configuration = client.Configuration()
    where = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's service account"
    if kubeconfig and (fault := await asyncio.to_thread(kubeconfig_fault, Path(kubeconfig), context)):
        raise FinalError("invalid", f"{where}: {fault}")
    try:
        if kubeconfig:
            await config.load_kube_config(  # type: ignore[no-untyped-call]  # the client's config part has no types
                config_file=kubeconfig,
                context=context or None,
                client_configuration=configuration,
                persist_config=False,
            )
        else:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the same
    except (config.ConfigException, OSError, ValueError) as error:
        raise FinalError("invalid", f"{where}: {kubeconfig_error(error, kubeconfig)}") from error
    return configuration


class KubernetesApi:
    """Reads and writes single objects, and says in our own errors what went wrong."""

    def __init__(
        self,
        api_client: client.ApiClient,
        *,
        timeout_seconds: float,
        fence: Fence,
        renew: Callable[[], Awaitable[None]],
    ) -> None:
        """`renew` reads the credentials again: tokens of a kubeconfig's plugin end after minutes."""
        self._client = api_client
        self._timeout = timeout_seconds
        self._fence = fence
        self._renew = renew
        self._renewing = asyncio.Lock()

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()  # type: ignore[no-untyped-call]  # the client has no types here

    async def pause(self, seconds: float) -> None:
        """Give the controllers time to act, in the cluster's own time."""
        await asyncio.sleep(seconds)

    async def get(self, path: str, **query: str) -> Json:
        """Read an object or a list."""
        return await self._request("GET", path, query=query)

    async def items(self, path: str, **query: str) -> list[Json]:
        """Read a list in pages."""
        found: list[Json] = []
        following = ""
        while True:
            page = await self.get(path, limit="500", **query, **({"continue": following} if following else {}))
            found += page.get("items") or []
            following = (page.get("metadata") or {}).get("continue") or ""
            if not following:
                return found

    async def create(self, path: str, body: Json) -> Json:
        """Create an object."""
        return await self._request("POST", path, body=body, content_type=_JSON, query={"fieldManager": FIELD_MANAGER})

    async def delete(self, path: str, uid: str, *, version: str = "") -> None:
        """Delete an object if it is the one with this uid, and as it was at this resource version."""
        conditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
        await self._request("DELETE", path, body={"preconditions": conditions}, content_type=_JSON)

    async def evict(self, path: str, body: Json) -> Json:
        """Post to a pod's eviction subresource."""
        return await self._request("POST", path, body=body, content_type=_JSON)

    async def patch(self, path: str, body: Json, content_type: str = MERGE) -> Json:
        """Patch an object, or make it by applying it."""
        query = {"fieldManager": FIELD_MANAGER, **({"force": "true"} if content_type == APPLY else {})}
        return await self._request("PATCH", path, body=body, content_type=content_type, query=query)

    async def modify(
        self, path: str, change: Callable[[Json], Json | None], *, content_type: str = MERGE
    ) -> tuple[Json, bool]:
        """Read an object, patch it as `change` says (None: it is well as it is), anew if somebody else wrote meanwhile.

        Returns the object and whether it was changed. Whatever `change` raises ends it.
        """
        for _ in range(_TRIES - 1):
            try:
                return await self._modify(path, change, content_type)
            except ConflictError:
                continue
        return await self._modify(path, change, content_type)

    async def disown(self, path: str) -> None:
        """Give up what an object's `managedFields` say is ours, once its values are its owner's again.

        The API server takes each value that we write from its owner. Whoever applies another one later (server-side, as
        Helm does) would meet a conflict with us. Not to have given it up harms nobody: nothing is raised.
        """

        def change(current: Json) -> Json | None:
            entries = current["metadata"].get("managedFields") or []
            others = [entry for entry in entries if entry.get("manager") != FIELD_MANAGER]
            # An empty list would be taken for no wish at all; one empty entry resets it.
            return {"metadata": {"managedFields": others or [{}]}} if len(others) < len(entries) else None

        with suppress(EffectError):
            await self.modify(path, change)

    async def _modify(self, path: str, change: Callable[[Json], Json | None], content_type: str) -> tuple[Json, bool]:
        current = await self.get(path)
        patch = change(current)
        if patch is None:
            return current, False
        self._fence.check(annotations_of(current).get(FENCING, ""))
        metadata = {**patch.get("metadata", {}), "resourceVersion": current["metadata"]["resourceVersion"]}
        if PLAN in metadata.get("annotations", {}):  # our token comes and goes with the mark of the plan
            token = str(self._fence.revision) if metadata["annotations"][PLAN] is not None else None
            metadata["annotations"] = {**metadata["annotations"], FENCING: token}
        return await self.patch(path, {**patch, "metadata": metadata}, content_type), True

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        content_type: str = "",
        query: dict[str, str] | None = None,
    ) -> Json:
        headers = {"Accept": _JSON, **({"Content-Type": content_type} if content_type else {})}
        token = self._token()
        status, told = await self._sent(method, path, body=body, headers=headers, query=query or {})
        if status == 401:  # it was not carried out: to ask again is safe
            await self._renewed(token, f"{method} {path}")
            status, told = await self._sent(method, path, body=body, headers=headers, query=query or {})
        if status >= 400:
            raise error_of(f"{method} {path}", status, told)
        return told

    async def _sent(
        self, method: str, path: str, *, body: Json | None, headers: dict[str, str], query: dict[str, str]
    ) -> tuple[int, Json]:
        """Status and body of one answer."""
        if method != "GET":
            self._fence.check()
        try:
            request = await self._client.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self._client.call_api(*request, _request_timeout=self._timeout)
            data: bytes = await response.read()  # type: ignore[no-untyped-call]  # the client has no types here
        except (aiohttp.ClientError, TimeoutError, OSError, OpenApiException) as error:
            raise PassingError("unavailable", f"{method} {path}: {type(error).__name__} {error}") from error
        try:
            return response.status, msgspec.json.decode(data, type=dict[str, Any]) if data else {}
        except msgspec.DecodeError:
            return response.status, {"message": data[:200].decode(errors="replace")}

    def _token(self) -> str:
        return str(self._client.configuration.api_key.get("BearerToken", ""))

    async def _renewed(self, refused: str, what: str) -> None:
        """Read the credentials again, once for all requests that came back with the same token."""
        async with self._renewing:
            if self._token() != refused:
                return
            try:
                await self._renew()
            except FinalError as error:
                raise PassingError("unavailable", f"{what}: 401, and no other credentials: {error.detail}") from error


def error_of(what: str, status: int, told: Json) -> EffectError:
    """What an answer of the API server means for us."""
    text = f"{what}: {status} {told.get('message') or told.get('reason') or ''}".strip()
    if status == 404 and (told.get("kind"), told.get("reason")) == ("Status", "NotFound"):
        return NotFoundError("gone", text)
    if status == 409:
        return ConflictError("conflict", text)
    if status == 429:
        causes = (told.get("details") or {}).get("causes") or []
        budget = any(cause.get("reason") == "DisruptionBudget" for cause in causes)
        return PassingError("budget" if budget else "throttled", text)
    # 404: of a proxy or load balancer; 410: the rest of a list that was read in pages is forgotten.
    if status >= 500 or status in {404, 410}:
        return PassingError("unavailable", text)
    if status == 422 or _VETO.search(text):  # this object cannot be so; others can
        return FinalError("refused", text)
    return FinalError("denied" if status in {401, 403} else "invalid", text)


# --- paths and readings


def node_path(name: str) -> str:
    """Path of a node."""
    return f"/api/v1/nodes/{quote(name, safe='')}"


def pods_path(namespace: str) -> str:
    """Path of a namespace's pods."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


def pod_path(pod: Json) -> str:
    """Path of a pod as it was read."""
    return f"{pods_path(pod['metadata']['namespace'])}/{quote(pod['metadata']['name'], safe='')}"


def workload_path(target: str) -> str:
    """Path of a workload named `Type/namespace/name`; FinalError `invalid` for a kind that cannot be written."""
    kind, namespace, name = target.split("/", 2)
    if kind not in _COLLECTIONS:
        raise FinalError("invalid", f"{target}: pods of a {kind} cannot be moved this way")
    return f"{_COLLECTIONS[kind].format(quote(namespace, safe=''))}/{quote(name, safe='')}"


def has_controller_path(target: str) -> bool:
    """Whether the workload is of a kind that we can read."""
    return target.split("/", 1)[0] in _COLLECTIONS


def annotations_of(item: Json) -> dict[str, str]:
    """Annotations of an object."""
    return item["metadata"].get("annotations") or {}


def labels_of(item: Json) -> dict[str, str]:
    """Labels of an object."""
    return item["metadata"].get("labels") or {}


def uid(item: Json) -> str:
    """Uid of an object."""
    return str(item["metadata"]["uid"])


def generation(item: Json) -> int:
    """Generation of an object's spec."""
    return int(item["metadata"].get("generation") or 0)


def terminating(item: Json) -> bool:
    """Whether an object is being deleted."""
    return bool(item["metadata"].get("deletionTimestamp"))


def finished(pod: Json) -> bool:
    """Whether a pod has ended."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def pod_ready(pod: Json) -> bool:
    """Whether a pod is Ready and stays."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
    return ready and not terminating(pod)


def resident(pod: Json) -> bool:
    """Whether a pod goes with its node: a daemon set's, or a static pod's mirror."""
    owners: Iterable[Json] = pod["metadata"].get("ownerReferences") or []
    daemon = any(owner.get("controller") and owner.get("kind") in {"DaemonSet", "Node"} for owner in owners)
    return daemon or "kubernetes.io/config.mirror" in annotations_of(pod)


def selector_text(workload: Json) -> str:
    """A workload's selector as a query: `a=b,c in (d,e),f,!g`."""
    spec = workload["spec"]
    selector = spec.get("selector") or {}
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for item in selector.get("matchExpressions") or []:
        key, operator, values = item["key"], item["operator"], ",".join(item.get("values") or [])
        written = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append(written.get(operator, f"!{key}"))
    return ",".join(parts)
