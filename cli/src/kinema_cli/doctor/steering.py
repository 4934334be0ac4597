"""Whether new pods are steered to the planned nodes: is the admission policy installed that `kinema setup` installs?"""

from __future__ import annotations

from typing import Final

from kinema_cli.doctor.finding import Finding
from kinema_core.runtime.kubernetes_rights import Right
from kinema_observer.adapters.kubernetes import Api
from kinema_observer.errors import ApiDeniedError, ApiError, ApiMissingError
from kinema_rescheduler.names import STEERING_NAME

_GROUP: Final = "admissionregistration.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1")
"""In which the policy is installed, the first that is served."""
_POLICIES: Final = "mutatingadmissionpolicies"
_PARTS: Final = {"policy": _POLICIES, "binding": "mutatingadmissionpolicybindings"}
_CHECK: Final = "steering"


async def steering(api: Api, command: str) -> Finding:
    """Whether policy and binding are there; `command` installs them.

    That takes the right to get them, of whoever asks: no service has or needs it.
    """
    try:
        version = await _version(api)
        if version is None:
            said = "this Kubernetes has no mutating admission policies (1.36 has); pods land where they land"
            return Finding(_CHECK, "ok", said)
        missing = [part for part, plural in _PARTS.items() if not await _is_there(api, version, plural)]
    except ApiDeniedError as error:
        rights = " and ".join(str(Right("get", _GROUP, plural, "", STEERING_NAME)) for plural in _PARTS.values())
        return Finding(_CHECK, "warn", _unknown(error), f"look as somebody who may {rights}")
    except ApiError as error:
        return Finding(_CHECK, "warn", _unknown(error))
    if missing:
        lost = "new pods land where they land, more of them elsewhere than planned"
        said = f"not installed: admission {' and '.join(missing)}; without, {lost}"
        return Finding(_CHECK, "warn", said, command)
    return Finding(_CHECK, "ok", f"the admission policy is installed ({version})")


def _unknown(error: ApiError) -> str:
    return f"it is unknown whether the admission policy is installed: {error}"


async def _version(api: Api) -> str | None:
    """The version in which the server has such policies."""
    for version in _VERSIONS:
        if _POLICIES in await api.served(f"/apis/{_GROUP}/{version}"):
            return version
    return None


async def _is_there(api: Api, version: str, plural: str) -> bool:
    try:
        await api.get(f"/apis/{_GROUP}/{version}/{plural}/{STEERING_NAME}", {})
    except ApiMissingError:
        return False
    return True
