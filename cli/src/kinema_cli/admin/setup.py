"""`kinema setup`: make what the services need on the broker, and the admission policy that steers new pods."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from socket import gethostname
from typing import Final

from rich.console import Console

from kinema_cli.broker import AddressError, settings_for
from kinema_cli.doctor.node_markers import GO_ON, marks_in
from kinema_core.runtime.bus import BusError
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, SetupReport, setup
from kinema_rescheduler.errors import EffectError
from kinema_rescheduler.kubernetes.client import KubernetesApi, NotFoundError, annotations_of, connect, uid
from kinema_rescheduler.kubernetes.steering import install, remove, was_in_use
from kinema_rescheduler.leadership.claim import PATH, ClusterClaim
from kinema_rescheduler.names import CLAIM_NAME, CLAIMED, PROCESS, STEERING_NAMESPACE

REPLICAS: Final = (1, 3, 5)
_NOTHING: Final = (
    "nothing to set up: give --nats and --cluster for streams on a broker, --kubeconfig for the admission policy in a "
    "cluster (with --no-steering to remove it), or all of them"
)

INSTALLED: Final = "steering: installed"
ONLY_AFTER_RESTART: Final = (
    "installed again, it steers nothing before the API server was restarted, which managed clusters do not let you do"
)
_UNTIL_RESTART: Final = "it steers nothing until that is restarted; plans are carried out with more pods elsewhere"
_STAYS: Final = "stays, as "
_IN_GOOD_ORDER: Final = "a plan is being carried out: let it end or `kinema abort` it, end that Kinema, run this again"


@dataclass(frozen=True)
class Steering:
    """Whether new pods of a cluster shall be given a preference for the planned nodes."""

    kubeconfig: Path
    on: bool
    context: str = ""
    """In the kubeconfig; empty: its current one."""


def run_setup(*, nats: str, clusters: list[str], replicas: int, steering: Steering | None = None) -> int:
    """Create streams, consumers and the lease bucket; put steering into force on a cluster or take it away.

    With an empty `nats` only the latter: no broker is needed for it.

    Returns:
        0 done, 1 refused, 2 wrong arguments, 4 something is there, but otherwise, or marks of a plan stay on nodes.
    """
    try:
        every = _brokers(nats, clusters, replicas)
    except AddressError as error:
        return _failed(2, str(error))
    if not every and steering is None:
        return _failed(2, _NOTHING)
    report = SetupReport(created=(), drift=())
    try:
        if every:
            report = asyncio.run(setup(every[0], Layout(clusters=tuple(clusters), replicas=replicas)))
            _print(report)
        in_the_way = steering is not None and asyncio.run(_steer_or_leave(steering))
    except (BusError, EffectError) as error:
        return _failed(1, str(error))
    return 4 if report.drift or in_the_way else 0


def _brokers(nats: str, clusters: list[str], replicas: int) -> list[RuntimeSettings]:
    """How each cluster's administrator connects, none without a broker; raises AddressError."""
    if replicas not in REPLICAS:
        raise AddressError(f"--replicas is {replicas}: use 1, 3 or 5")
    if clusters and not nats:
        raise AddressError("--cluster names whose streams are made: give their broker, too, as --nats")
    if nats and not clusters:
        raise AddressError("--nats is given without --cluster: name the cluster whose streams shall be made there")
    return [settings_for(nats, cluster) for cluster in clusters]


def _failed(code: int, said: str) -> int:
    Console(stderr=True).print(said, markup=False, soft_wrap=True)
    return code


async def _steer_or_leave(wish: Steering) -> bool:
    """Carry out the wish; who takes steering away is about to leave, so the claim goes with it where it is free.

    Returns whether marks of a plan stay on nodes then.
    """
    Console().print(await steer(wish), markup=False, soft_wrap=True)
    if wish.on:
        return False
    claim = await leave(wish.kubeconfig, context=wish.context)
    Console().print(claim, markup=False, soft_wrap=True)
    marks = await marks_in(wish.kubeconfig, context=wish.context)
    if marks:
        _failed(4, f"{marks.told}: {_IN_GOOD_ORDER if _STAYS in claim else f'{GO_ON}; {marks.by_hand}'}")
    return bool(marks)


async def leave(kubeconfig: Path, seconds: float = 15.0, *, context: str = "") -> str:
    """Delete the Lease that says which Kinema acts on a cluster, unless one does; says what came of it.

    It is taken before it is deleted, so that no other one takes it in between. A holder that does not renew it within
    the `seconds` that it has claimed is dead.

    Raises:
        EffectError: the cluster refused it, or cannot be reached.
    """
    what = f"Lease {STEERING_NAMESPACE}/{CLAIM_NAME}"
    api = await connect(str(kubeconfig), context=context)
    try:
        await api.get(PATH)
        own = f"kinema setup on {gethostname()} (process {getpid()})"
        await ClusterClaim(api, own, process=own, seconds=seconds).take()
        await api.delete(PATH, uid(await api.get(PATH)))
    except NotFoundError:
        return f"{what}: absent"
    except EffectError as error:
        if error.reason != CLAIMED:
            raise
        return f"{what}: {_STAYS}{await _holder(api)} acts on this cluster; run this again when that has ended"
    finally:
        await api.close()
    return f"{what}: removed"


async def _holder(api: KubernetesApi) -> str:
    found = await api.get(PATH)
    return annotations_of(found).get(PROCESS) or str((found.get("spec") or {}).get("holderIdentity"))


async def steer(wish: Steering) -> str:
    """Install or remove the admission policy of one cluster; says what came of it.

    Raises:
        EffectError: the cluster refused it, or cannot be reached.
    """
    api = await connect(str(wish.kubeconfig), context=wish.context)
    try:
        anew = wish.on and await was_in_use(api)
        found = await (install(api) if wish.on else remove(api))
    finally:
        await api.close()
    if found == "absent" and wish.on:
        return "steering: this Kubernetes has no mutating admission policies (1.36 has); pods land where they land"
    if found == "removed":
        return f"steering: removed; {ONLY_AFTER_RESTART}"
    if anew:
        return f"{INSTALLED}, anew: if somebody has removed it since the API server started, {_UNTIL_RESTART}"
    return f"steering: {found}"


def setup_call(kubeconfig: str, context: str, *options: str) -> str:
    """What somebody types to steer the new pods of a context's cluster; with `--no-steering`, to end that."""
    named = ["--context", context] if context else []
    return shlex.join(["kinema", "setup", "--kubeconfig", kubeconfig, *named, *options])


def _print(report: SetupReport) -> None:
    console = Console()
    for what in report.created:
        console.print(f"created {what}", markup=False)
    for what in report.drift:
        console.print(f"differs: {what}", markup=False)
    if not report.created and not report.drift:
        console.print("everything is there already")
