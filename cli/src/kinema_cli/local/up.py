"""`kinema up`: the five services as processes of this machine, for the cluster of a kubeconfig."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from socket import gethostname

import msgspec

from kinema_cli.admin.setup import INSTALLED, ONLY_AFTER_RESTART, Steering, setup_call, steer
from kinema_cli.agreement import REMEDY
from kinema_cli.broker import environment_of, settings_for
from kinema_cli.doctor.examine import Subject, examine
from kinema_cli.inputs import InputError, UsageError, cluster_name, fail, kubeconfig_file
from kinema_cli.leftovers import GO_ON, incomplete_moves_of, markers_in
from kinema_cli.local.directory import clear_own, exclusive_lock, full_disk, state_directory
from kinema_cli.local.nats_server import ServerError
from kinema_cli.local.pipeline import SERVICES, LocalPipeline, PipelineOptions
from kinema_cli.local.processes import Child, stop_event
from kinema_cli.local.settings import (
    disagreement_of,
    layered,
    prometheus_setting,
    provider_setting,
    read_service_settings,
)
from kinema_cli.output import counted, print_error, print_hint, print_note, print_warning
from kinema_cli.status.execution import unended
from kinema_core.events import Namespace
from kinema_core.model.cluster import Cluster, contradiction, fold
from kinema_core.runtime.bus import Bus, BusError
from kinema_core.runtime.follow import Follower, StateLostError
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes.claim import ClaimedError, ClusterClaim
from kinema_kubernetes.client import connect
from kinema_kubernetes.errors import KubernetesError
from kinema_kubernetes.kubeconfig import current_context, kubeconfig_files
from kinema_kubernetes.objects import uid

CONFLICT = 4
LOOK_SECONDS = 2.0
_APPROVED = {"decider": {"limits": {"approval": "automatic"}}}


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """Options of `kinema up`."""

    kubeconfig: Path | None
    """None: as kubectl finds it."""
    context: str = ""
    """In the kubeconfig; empty: its current one."""
    provider: str
    """`KIND=WHERE`."""
    cluster: str = ""
    """Name in events; empty: derived from the context."""
    out: Path | None = None
    """None: a directory of its own for each cluster."""
    settings: Path | None = None
    """Settings of services that differ from the defaults."""
    nats: str = ""
    """A prepared broker; empty: start one."""
    yes: bool = False
    """Plans that save are executed without an operator's approval."""
    workers: int = 0
    steering: bool = True
    """Place new pods on the planned nodes; needs the right to create an admission policy."""


def run_up(options: UpOptions) -> int:
    """Run until interrupted; 0 then, 1 when it cannot, 2 for wrong arguments, 4 where another Kinema acts."""
    try:
        pipeline = _pipeline_options(options)
        return asyncio.run(_up(pipeline))
    except (UsageError, BusError, ServerError, OSError, InputError) as error:
        return fail(error)


def _pipeline_options(options: UpOptions) -> PipelineOptions:
    kubeconfig = kubeconfig_file(options.kubeconfig)
    if options.workers < 0:
        raise UsageError(f"--solver-workers {options.workers}: give 0 or more")
    provider = provider_setting(options.provider)
    supplied: dict[str, dict[str, object]] = {"rescheduler": {"provider": provider, "steering": options.steering}}
    given = read_service_settings(options.settings, supplied) if options.settings is not None else {}
    if given and (differs := disagreement_of(given)):
        print_warning(f"--settings {options.settings}: {differs}; {REMEDY}")
    cluster = cluster_name(options.cluster, kubeconfig, options.context)
    out = options.out or state_directory(cluster)
    own = {"steering": options.steering, "instance_name": instance_name(out)}
    rescheduler = {**own, **given.get("rescheduler", {})}
    return PipelineOptions(
        directory=out,
        cluster=cluster,
        kubeconfig=_from_anywhere(kubeconfig),
        context=options.context or current_context(kubeconfig),
        provider=provider,
        settings=layered(given, {"rescheduler": rescheduler}, _APPROVED if options.yes else {}),
        nats=settings_for(options.nats, cluster) if options.nats else None,
        workers=options.workers,
    )


def _from_anywhere(kubeconfig: Path) -> Path:
    """Return the file or files by absolute paths; links are kept, as certificates may lie beside the link."""
    return Path(os.pathsep.join(str(file.expanduser().absolute()) for file in kubeconfig_files(kubeconfig)))


def instance_name(directory: Path) -> str:
    """Return where this Kinema runs, for messages."""
    return f"`kinema up --out {directory.resolve()}` on {gethostname()} (process {getpid()})"


async def _up(options: PipelineOptions) -> int:
    if not await _is_well(options):
        print_error("startup aborted because of the failed checks above")
        print_hint("re-run them with `kinema doctor`")
        return 1
    with exclusive_lock(options.directory):
        return await _run(options)


async def _run(options: PipelineOptions) -> int:
    """Start everything, look after it until interrupted, and end it."""
    clear_own(options.directory / "settings")
    pipeline = LocalPipeline(options)
    stopping = stop_event()
    try:
        if options.nats is None and (full := full_disk(options.directory)):
            raise InputError(f"{full}: make room, or name another directory with --out")
        await pipeline.open()
        await _keep_to_cluster(options, pipeline.bus)
        await _claim(options, await pipeline.bus.identity())
        steering = await _steered(options) if options.settings["rescheduler"]["steering"] else ""
        if steering:
            print_note(steering)
        await pipeline.start()
        print_note(f"{_what_runs(options)}; logs in {options.directory / 'logs'}; Ctrl-C ends them")
        print_hint(f". {_write_environment(pipeline)} && kinema status")
        print_note(_what_happens(options.settings.get("decider", {})))
        code = await _looked_after(pipeline, stopping)
        await pipeline.supervisor.stop()  # what is reported below does not change any more
        print_note(await _last_words(pipeline, steers=steering.startswith(INSTALLED)))
    except KubernetesError as error:
        print_error(f"startup aborted: {error.detail}")
        return CONFLICT if isinstance(error, ClaimedError) else 1
    else:
        return code
    finally:
        await pipeline.stop()


def _write_environment(pipeline: LocalPipeline) -> Path:
    """Write a file that only this user can read, with which a shell's `kinema` finds the broker; returns its path."""
    path = pipeline.options.directory / "operator.env"
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    lines = environment_of(pipeline.runtime("operator"))
    path.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in lines.items()), encoding="utf-8")
    return path


def _what_happens(decider: Mapping[str, object]) -> str:
    """Return what happens to the cluster without an operator."""
    limits = decider.get("limits")
    automatic = isinstance(limits, Mapping) and limits.get("approval") == "automatic"
    nodes = "nodes for pending pods are booted at once; plans that save"
    return f"{nodes} are executed at once" if automatic else f"{nodes} wait for `kinema approve` (--yes: at once)"


def _what_runs(options: PipelineOptions) -> str:
    workers = [counted(options.workers, "worker")] if options.workers else []
    own = ["a broker"] if options.nats is None else []
    *some, last = [counted(len(SERVICES), "service"), *workers, *own]
    on = f" on the broker {options.nats.nats_url}" if options.nats is not None else ""
    return f"{', '.join(some)}{' and ' if some else ''}{last} run{on}"


async def _looked_after(pipeline: LocalPipeline, stopping: asyncio.Event) -> int:
    """Keep everything running until interrupted; returns 0 then, 1 where a service keeps ending."""
    while not stopping.is_set():
        looping = pipeline.supervisor.crash_looping()
        if looping is not None:
            return _gave_up(looping, pipeline.options)
        await _keep_broker(pipeline)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), LOOK_SECONDS)
    return 0


async def _last_words(pipeline: LocalPipeline, *, steers: bool) -> str:
    """Return what stays in the cluster after the services have ended, and what to do about it."""
    options = pipeline.options
    try:
        plan = await unended(pipeline.bus)
        marks = await markers_in(options.kubeconfig, context=options.context)
        moved = (
            await incomplete_moves_of(pipeline.bus, plan, options.kubeconfig, context=options.context) if plan else ""
        )
    except (BusError, KubernetesError) as error:
        return f"ended; the log could not be read for an incomplete plan: {error}; `kinema doctor` finds tainted nodes"
    if plan:
        where = f"--out {options.directory}" if options.nats is None else f"--nats {options.nats.nats_url}"
        found = "; ".join(part for part in (marks.text, moved) if part)
        left = f": {found}" if found else ""
        return (
            f"ended in the middle of plan {plan}{left}. `kinema up` with the same {where} continues it; to abort it, "
            "start that, `kinema abort`, and end it only when `kinema plans` shows that the plan has ended"
        )
    if marks:
        return f"ended; {marks.text}: {GO_ON}; {marks.by_hand}"
    if not steers:
        return "ended"
    return (
        "ended; the placement policy stays installed and has no effect without a running plan. "
        f"To uninstall Kinema, `{_undo(options)}` removes it; {ONLY_AFTER_RESTART}"
    )


async def _keep_to_cluster(options: PipelineOptions, bus: Bus) -> None:
    """Refuse streams that are about another cluster before the rescheduler executes a plan that they hold.

    Raises:
        InputError: they are. KubernetesError, BusError: it cannot be found out.
    """
    try:
        published, _ = await Follower(bus, Cluster(), fold).latest()
    except StateLostError:  # the first start, or the observer is to publish the state again
        return
    api = await connect(str(options.kubeconfig), context=options.context)
    try:
        # The observer's account may list namespaces and get none.
        spaces = (await api.get("/api/v1/namespaces"))["items"]
    finally:
        await api.close()
    for item in spaces:
        if found := contradiction(published, Namespace(name=item["metadata"]["name"], uid=uid(item))):
            where, remedy = f"--out {options.directory}", "delete it, or name another directory"
            if options.nats is not None:
                where, remedy = f"the broker {options.nats.nats_url}", "delete them, or name the cluster otherwise"
            raise InputError(
                f"{where} holds the streams of another cluster of the name {options.cluster} ({found}): {remedy}"
            )


async def _claim(options: PipelineOptions, holder: str) -> None:
    """Take the cluster's Lease for the rescheduler, which renews it; raises KubernetesError where another holds it."""
    api = await connect(str(options.kubeconfig), context=options.context)
    try:
        await ClusterClaim(api, holder, process=instance_name(options.directory)).take()
    finally:
        await api.close()


async def _keep_broker(pipeline: LocalPipeline) -> None:
    """Restart the embedded broker if it has died; raises ServerError where it keeps dying."""
    if pipeline.options.nats is not None or pipeline.server.pid is not None:
        return
    await pipeline.start_server()
    print_warning(f"the broker had ended and was restarted at {pipeline.server.url}; its log: {pipeline.server.log}")


async def _is_well(options: PipelineOptions) -> bool:
    """Run the doctor's checks and print what is not ok; returns False when a check failed."""
    given = options.settings.get("rescheduler", {}).get("provider", options.provider)
    assert isinstance(given, dict)  # checked when the settings were read
    subject = Subject(
        kubeconfig=str(options.kubeconfig),
        context=options.context,
        provider=given,
        nats=options.nats,
        runtimes=_runtimes(options),
        prometheus=prometheus_setting(options.settings),
        steering=False,  # it is installed later, or not wanted
    )
    found = await examine(subject)
    worse = [finding for finding in found if finding.level != "ok"]
    for finding in worse:
        advice = f" → {finding.remediation}" if finding.remediation else ""
        (print_error if finding.level == "fail" else print_warning)(f"{finding.check}: {finding.message}{advice}")
    return all(finding.level != "fail" for finding in worse)


def _runtimes(options: PipelineOptions) -> dict[str, RuntimeSettings]:
    """Return how the operator and each service connect to a given broker."""
    if options.nats is None:
        return {}
    given = {name: options.runtime_of(name, options.nats) for name in ("operator", *SERVICES)}
    return msgspec.convert(given, dict[str, RuntimeSettings])


def _undo(options: PipelineOptions) -> str:
    """Return the command that removes what stays in the cluster."""
    return setup_call(str(options.kubeconfig), options.context, "--no-placement-policy")


async def _steered(options: PipelineOptions) -> str:
    """Install the placement policy; without it more pods land elsewhere than planned."""
    try:
        return await steer(Steering(options.kubeconfig, on=True, context=options.context))
    except KubernetesError as error:
        return f"placement policy: not installed ({error}); kube-scheduler places pods without Kinema's preference"


def _gave_up(child: Child, options: PipelineOptions) -> int:
    print_error(f"{child.name} keeps ending; its log {child.log} ends:\n{child.tail()}")
    if options.nats is None and (full := full_disk(options.directory)):
        print_hint(f"{full}: make room")
    return 1
