"""Check of the placement policy: the admission policy that `kinema setup` installs."""

from __future__ import annotations

from typing import Final

from kinema_cli.doctor.finding import Finding
from kinema_kubernetes.client import Client
from kinema_kubernetes.errors import DeniedError, KubernetesError, NotFoundError
from kinema_kubernetes.rights import Right
from kinema_rescheduler.names import STEERING_NAME

_GROUP: Final = "admissionregistration.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1")
"""Versions in order; the policy is installed in the first that is served."""
_POLICIES: Final = "mutatingadmissionpolicies"
_PARTS: Final = {"policy": _POLICIES, "binding": "mutatingadmissionpolicybindings"}
_CHECK: Final = "placement policy"


async def steering(api: Client, command: str) -> Finding:
    """Check that policy and binding exist; `command` installs them.

    It takes the user's right to get them: no service has or needs it.
    """
    try:
        version = await _version(api)
        if version is None:
            lost = "kube-scheduler places pods without Kinema's preference"
            return Finding(_CHECK, "ok", f"this Kubernetes has no mutating admission policies (1.36 has); {lost}")
        missing = [part for part, plural in _PARTS.items() if not await _is_there(api, version, plural)]
    except DeniedError as error:
        rights = " and ".join(str(Right("get", _GROUP, plural, "", STEERING_NAME)) for plural in _PARTS.values())
        return Finding(_CHECK, "warn", _unknown(error), f"check as a user with the right to {rights}")
    except KubernetesError as error:
        return Finding(_CHECK, "warn", _unknown(error))
    if missing:
        lost = "more new pods land elsewhere than planned"
        said = f"not installed: admission {' and '.join(missing)}; {lost}"
        return Finding(_CHECK, "warn", said, command)
    return Finding(_CHECK, "ok", f"the admission policy is installed ({version})")


def _unknown(error: KubernetesError) -> str:
    return f"it is unknown whether the admission policy is installed: {error}"


async def _version(api: Client) -> str | None:
    """Return the version in which the server has such policies."""
    for version in _VERSIONS:
        if _POLICIES in await api.served(f"/apis/{_GROUP}/{version}"):
            return version
    return None


async def _is_there(api: Client, version: str, plural: str) -> bool:
    try:
        await api.read(f"/apis/{_GROUP}/{version}/{plural}/{STEERING_NAME}")
    except NotFoundError:
        return False
    return True
