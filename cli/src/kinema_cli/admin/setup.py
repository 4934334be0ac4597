"""`kinema setup`: streams on the broker, and the admission policy that places new pods."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from socket import gethostname
from typing import Final

from kinema_cli.admin.steering_policy import UNSERVED, install, is_installed, remove
from kinema_cli.broker import settings_for
from kinema_cli.inputs import InputError, UsageError, fail, kubeconfig_file
from kinema_cli.leftovers import GO_ON, markers_in
from kinema_cli.output import Format, cell, emit, print_error
from kinema_core.runtime.bus import BusError
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, SetupReport, setup
from kinema_kubernetes.claim import CLAIM_NAME, NAMESPACE, PATH, PROCESS, ClaimedError, ClusterClaim
from kinema_kubernetes.client import Client, connect
from kinema_kubernetes.credentials import is_in_pod
from kinema_kubernetes.errors import KubernetesError, NotFoundError
from kinema_kubernetes.kubeconfig import current_context
from kinema_kubernetes.objects import annotations_of, uid

REPLICAS: Final = (1, 3, 5)
_SIZE: Final = re.compile(r"([1-9][0-9]*)(Mi|Gi)")
_NOTHING: Final = (
    "nothing to set up; give --nats and --cluster-name for streams on a broker, --context or --kubeconfig for the "
    "placement policy of a cluster (with --no-placement-policy to remove it), or all of them"
)

INSTALLED: Final = "placement policy: installed"
ONLY_AFTER_RESTART: Final = (
    "installed again, it has no effect until the API server restarts, which managed clusters do not allow"
)
_UNTIL_RESTART: Final = "it has no effect until the API server restarts; plans run with more pods elsewhere"
_STAYS: Final = "stays, as "
_POLICY_STAYS: Final = "placement policy: not removed"
_IN_GOOD_ORDER: Final = "a plan is running; let it end or `kinema abort` it, end that Kinema, run this again"


@dataclass(frozen=True)
class StreamOptions:
    """Copies and sizes of the streams, as an operator writes them."""

    replicas: int = 1
    state: str = "2Gi"
    log: str = "2Gi"
    usage: str = "1Gi"
    update: bool = False
    """Change what is there and differs."""


@dataclass(frozen=True)
class Steering:
    """Wish to give new pods of a cluster a preference for the planned nodes, or to end that."""

    kubeconfig: Path | None
    """None: the account of the pod in which this runs."""
    on: bool
    context: str = ""
    """In the kubeconfig; empty: its current one."""


def run_setup(
    *,
    nats: str,
    clusters: list[str],
    streams: StreamOptions,
    kubeconfig: Path | None = None,
    context: str = "",
    policy: bool | None = None,
    output: Format = Format.TABLE,
) -> int:
    """Create streams, consumers and the lease bucket; install the placement policy of a cluster or remove it.

    With an empty `nats` only the latter: no broker is needed for it.

    Returns:
        0 done, 1 refused, 2 wrong arguments, 4 something differs from what it should be, or markers of a plan stay.
        After an update only those differences count with which services would do wrong: not sizes, copies and times.
    """
    report, lines, in_the_way = SetupReport(), [], ""
    try:
        every, layout = _brokers(nats, clusters), _layout(clusters, streams)
        wish = _policy_wish(kubeconfig, context, policy)
        if not every and wish is None:
            return fail(UsageError(_NOTHING))
        if every:
            report = asyncio.run(setup(every[0], layout, update=streams.update))
            lines += [f"created {what}" for what in report.created]
            lines += [f"changed {what}" for what in report.changed]
            lines += [f"{'unsafe' if what in report.unsafe else 'differs'}: {what}" for what in report.drift]
            lines += [] if lines else ["everything exists already"]
        if wish is not None:
            done, in_the_way = asyncio.run(_apply(wish))
            lines += done
    except (UsageError, InputError, BusError, KubernetesError) as error:
        return fail(error)
    made = {"created": report.created, "changed": report.changed, "differs": report.drift, "messages": lines}
    emit(made, output, lambda: map(cell, lines))
    if in_the_way:
        print_error(in_the_way)
    return 4 if in_the_way or (report.unsafe if streams.update else report.drift) else 0


def _policy_wish(kubeconfig: Path | None, context: str, policy: bool | None) -> Steering | None:
    """Return what to do with the placement policy; None where no option asks for it."""
    if kubeconfig is None and not context and policy is None:
        return None
    if kubeconfig is None and not context and policy and is_in_pod():
        return Steering(None, on=True)
    path = kubeconfig_file(kubeconfig)
    return Steering(path, policy is not False, context or current_context(path))


def _brokers(nats: str, clusters: list[str]) -> list[RuntimeSettings]:
    """Return how each cluster's administrator connects, none without a broker; raises UsageError."""
    if clusters and not nats:
        raise UsageError("--cluster-name names the cluster whose streams are made; give their broker with --nats")
    if nats and not clusters:
        raise UsageError("--nats is given without --cluster-name; name the cluster whose streams are made there")
    return [settings_for(nats, cluster) for cluster in clusters]


def _layout(clusters: list[str], streams: StreamOptions) -> Layout:
    """Return what is to be on the broker; raises UsageError."""
    if streams.replicas not in REPLICAS:
        raise UsageError(f"--replicas is {streams.replicas}; use 1, 3 or 5")
    return Layout(
        clusters=tuple(clusters),
        replicas=streams.replicas,
        state_bytes=size_in_bytes("--state-size", streams.state),
        log_bytes=size_in_bytes("--log-size", streams.log),
        usage_bytes=size_in_bytes("--usage-size", streams.usage),
    )


def size_in_bytes(option: str, text: str) -> int:
    """Return what a size such as 512Mi means; raises UsageError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"{option} is {text!r}; write a size such as 512Mi or 4Gi")
    return int(found[1]) << {"Mi": 20, "Gi": 30}[found[2]]


async def _apply(wish: Steering) -> tuple[list[str], str]:
    """Install the policy; or remove the Lease of a Kinema that is gone, and the policy where no plan left markers.

    Returns what was done, and what is in the way of a removal.
    """
    if wish.on or wish.kubeconfig is None:
        return [await steer(wish)], ""
    claim = await release_cluster(wish.kubeconfig, context=wish.context)
    marks = await markers_in(wish.kubeconfig, context=wish.context)
    if marks:
        advice = _IN_GOOD_ORDER if _STAYS in claim else f"{GO_ON}; {marks.by_hand}"
        return [claim, _POLICY_STAYS], f"{marks.text}: {advice}"
    if _STAYS in claim:
        return [_POLICY_STAYS], claim
    return [await steer(wish), claim], ""


async def release_cluster(kubeconfig: Path, seconds: float = 15.0, *, context: str = "") -> str:
    """Delete the Lease of the Kinema that acts on a cluster, unless it is renewed; returns what was done.

    It is taken before it is deleted, so that no other instance takes it in between. A holder that does not renew it
    within the `seconds` that it has claimed is dead.

    Raises:
        KubernetesError: the cluster refused it, or cannot be reached.
    """
    what = f"Lease {NAMESPACE}/{CLAIM_NAME}"
    api = await connect(str(kubeconfig), context=context)
    try:
        await api.get(PATH)
        own = f"kinema setup on {gethostname()} (process {getpid()})"
        await ClusterClaim(api, own, process=own, seconds=seconds).take()
        await api.delete(PATH, uid(await api.get(PATH)))
    except NotFoundError:
        return f"{what}: absent"
    except ClaimedError:
        return f"{what}: {_STAYS}{await _holder(api)} acts on this cluster; run this again when that has ended"
    finally:
        await api.close()
    return f"{what}: removed"


async def _holder(api: Client) -> str:
    found = await api.get(PATH)
    return annotations_of(found).get(PROCESS) or str((found.get("spec") or {}).get("holderIdentity"))


async def steer(wish: Steering) -> str:
    """Install or remove the placement policy of a cluster; returns what was done.

    Raises:
        KubernetesError: the cluster refused it, or cannot be reached.
    """
    api = await connect(str(wish.kubeconfig or ""), context=wish.context)
    try:
        is_new = wish.on and not await is_installed(api)
        found = await (install(api) if wish.on else remove(api))
    finally:
        await api.close()
    if found == "absent" and wish.on:
        return f"placement policy: {UNSERVED}"
    if found == "removed":
        return f"placement policy: removed; {ONLY_AFTER_RESTART}"
    if is_new:  # the API server does not show whether it had one before
        return f"{INSTALLED}; if one was removed after the API server started, {_UNTIL_RESTART}"
    return f"placement policy: {found}"


def setup_call(kubeconfig: str, context: str, *options: str) -> str:
    """Return the command that installs the placement policy of a context's cluster."""
    named = ["--context", context] if context else []
    return shlex.join(["kinema", "setup", "--kubeconfig", kubeconfig, *named, *options])
