"""`kinema up`: the five services as processes of this machine, on a cluster of yours."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from socket import gethostname

from kinema_cli.admin.setup import INSTALLED, ONLY_AFTER_RESTART, Steering, setup_call, steer
from kinema_cli.broker import AddressError, settings_for
from kinema_cli.doctor.examine import Subject, examine
from kinema_cli.doctor.node_markers import GO_ON, marks_in
from kinema_cli.inputs import InputError, UsageError, kubeconfig_file
from kinema_cli.local.directory import clear_own, exclusive_lock
from kinema_cli.local.incomplete_moves import half_moved
from kinema_cli.local.nats_server import ServerError
from kinema_cli.local.pipeline import SERVICES, LocalPipeline, PipelineOptions
from kinema_cli.local.processes import Child, stop_event
from kinema_cli.local.providers import provider_setting
from kinema_cli.local.service_settings import read_service_settings
from kinema_cli.output import complain, counted
from kinema_cli.status.execution import unended
from kinema_core.runtime.bus import BusError
from kinema_core.runtime.yaml_files import current_context, kubeconfig_files
from kinema_rescheduler.errors import EffectError
from kinema_rescheduler.kubernetes.client import connect
from kinema_rescheduler.leadership.claim import ClusterClaim
from kinema_rescheduler.names import CLAIMED

CONFLICT = 4
LOOK_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """What to run on."""

    kubeconfig: Path | None
    """None: kubectl's own place."""
    context: str = ""
    """In the kubeconfig; empty: its current one."""
    provider: str
    """`KIND=WHERE`."""
    cluster: str
    out: Path
    settings: Path | None = None
    """Settings of services that differ from the defaults."""
    nats: str = ""
    """A broker that was set up; empty: one of its own."""
    workers: int = 0
    steering: bool = True
    """Whether new pods are steered to the planned nodes; needs the right to make an admission policy."""


def run_up(options: UpOptions) -> int:
    """Run until interrupted; 0 then, 1 when it cannot, 2 for wrong arguments, 4 where another Kinema acts."""
    try:
        pipeline = _pipeline_options(options)
    except (UsageError, AddressError) as error:
        complain(str(error))
        return 2
    except InputError as error:
        complain(str(error))
        return 1
    try:
        return asyncio.run(_up(pipeline))
    except (BusError, ServerError, OSError, InputError) as error:
        complain(str(error))
        return 1


def _pipeline_options(options: UpOptions) -> PipelineOptions:
    kubeconfig = kubeconfig_file(options.kubeconfig)
    if options.workers < 0:
        raise UsageError(f"--workers {options.workers}: give 0 or more")
    provider = provider_setting(options.provider)
    supplied: dict[str, dict[str, object]] = {"rescheduler": {"provider": provider, "steering": options.steering}}
    given = read_service_settings(options.settings, supplied) if options.settings is not None else {}
    own = {"steering": options.steering, "instance_name": instance_name(options.out)}
    rescheduler = {**own, **given.get("rescheduler", {})}
    return PipelineOptions(
        directory=options.out,
        cluster=options.cluster,
        kubeconfig=_from_anywhere(kubeconfig),
        context=options.context or current_context(kubeconfig),
        provider=provider,
        settings={**given, "rescheduler": rescheduler},
        nats=settings_for(options.nats, options.cluster) if options.nats else None,
        workers=options.workers,
    )


def _from_anywhere(kubeconfig: Path) -> Path:
    """The same file or files by their whole paths; not where links lead to, as certificates may lie beside the link."""
    return Path(os.pathsep.join(str(file.expanduser().absolute()) for file in kubeconfig_files(kubeconfig)))


def instance_name(directory: Path) -> str:
    """What people are told of where this Kinema runs."""
    return f"`kinema up --out {directory.resolve()}` on {gethostname()} (process {getpid()})"


async def _up(options: PipelineOptions) -> int:
    if not await _is_well(options):
        complain("nothing was started: what fails above would fail later; `kinema doctor` looks at it again")
        return 1
    with exclusive_lock(options.directory):
        return await _run(options)


async def _run(options: PipelineOptions) -> int:
    """Start everything, look after it until interrupted, and end it."""
    clear_own(options.directory / "settings")
    pipeline = LocalPipeline(options)
    stopping = stop_event()
    try:
        await pipeline.open()
        await _claim(options, await pipeline.bus.identity())
        steering = await _steered(options) if options.settings["rescheduler"]["steering"] else ""
        if steering:
            complain(steering)
        await pipeline.start()
        complain(f"{_what_runs(options)}; logs in {options.directory / 'logs'}; Ctrl-C ends them")
        operator = pipeline.runtime("operator")
        address = operator.nats_url.replace("nats://", f"nats://{operator.nats_user}:{operator.nats_password}@")
        complain(f"kinema status --nats {address} --cluster {options.cluster}")
        code = await _looked_after(pipeline, stopping)
        await pipeline.supervisor.stop()  # what is told below stays as it is
        complain(await _last_words(pipeline, steers=steering.startswith(INSTALLED)))
    except EffectError as error:
        complain(f"nothing was started: {error.detail}")
        return CONFLICT if error.reason == CLAIMED else 1
    else:
        return code
    finally:
        await pipeline.stop()


def _what_runs(options: PipelineOptions) -> str:
    workers = [counted(options.workers, "worker")] if options.workers else []
    own = ["a broker"] if options.nats is None else []
    *some, last = [counted(len(SERVICES), "service"), *workers, *own]
    on = f" on the broker {options.nats.nats_url}" if options.nats is not None else ""
    return f"{', '.join(some)}{' and ' if some else ''}{last} run{on}"


async def _looked_after(pipeline: LocalPipeline, stopping: asyncio.Event) -> int:
    """Keep everything running until interrupted; 0 then, 1 where a service keeps ending."""
    while not stopping.is_set():
        looping = pipeline.supervisor.crash_looping()
        if looping is not None:
            return _gave_up(looping)
        await _keep_broker(pipeline)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), LOOK_SECONDS)
    return 0


async def _last_words(pipeline: LocalPipeline, *, steers: bool) -> str:
    """What is left in the cluster once the services have ended, and what to do about it."""
    options = pipeline.options
    try:
        plan = await unended(pipeline.bus)
        marks = await marks_in(options.kubeconfig, context=options.context)
        moved = await half_moved(pipeline.bus, plan, options.kubeconfig, context=options.context) if plan else ""
    except (BusError, EffectError) as error:
        return f"ended; whether a plan is half done could not be read: {error}; `kinema doctor` finds nodes it closed"
    if plan:
        where = f"--out {options.directory}" if options.nats is None else f"--nats {options.nats.nats_url}"
        found = "; ".join(part for part in (marks.told, moved) if part)
        left = f": {found}" if found else ""
        return (
            f"ended in the middle of plan {plan}{left}. `kinema up` with the same {where} goes on with it; to give it "
            "up, start that, `kinema abort`, and end it only when `kinema plans` says that the plan has ended"
        )
    if marks:
        return f"ended; {marks.told}: {GO_ON}; {marks.by_hand}"
    if not steers:
        return "ended"
    return (
        "ended; the admission policy stays, and does nothing while no plan is carried out: leave it for the next time. "
        f"Only where Kinema goes for good, `{_undo(options)}` removes it: {ONLY_AFTER_RESTART}"
    )


async def _claim(options: PipelineOptions, holder: str) -> None:
    """Claim the cluster for the rescheduler to come, which keeps it; raises EffectError where it cannot be had."""
    api = await connect(str(options.kubeconfig), context=options.context)
    try:
        await ClusterClaim(api, holder, process=instance_name(options.directory)).take()
    finally:
        await api.close()


async def _keep_broker(pipeline: LocalPipeline) -> None:
    """Start a broker of our own that has died again, on its port and files; raises ServerError where that is vain."""
    if pipeline.options.nats is not None or pipeline.server.pid is not None:
        return
    await pipeline.start_server()
    complain(
        f"the nats-server had ended and was started again at {pipeline.server.url}; its log: {pipeline.server.log}"
    )


async def _is_well(options: PipelineOptions) -> bool:
    """Look before anything is started, and tell what is not well; False when something would not work."""
    given = options.settings.get("rescheduler", {}).get("provider", options.provider)
    assert isinstance(given, dict)  # checked when the settings were read
    subject = Subject(
        kubeconfig=str(options.kubeconfig),
        context=options.context,
        provider=given,
        nats=options.nats,
        steering=False,  # it is installed later, or not wanted
    )
    found = await examine(subject)
    worse = [finding for finding in found if finding.level != "ok"]
    for finding in worse:
        complain(f"{finding.level}: {finding.check}: {finding.said}{f' → {finding.do}' if finding.do else ''}")
    return all(finding.level != "fail" for finding in worse)


def _undo(options: PipelineOptions) -> str:
    """What takes out of the cluster what stays there when all has ended."""
    return setup_call(str(options.kubeconfig), options.context, "--no-steering")


async def _steered(options: PipelineOptions) -> str:
    """Put steering into force; without it everything works, with more pods elsewhere than planned."""
    try:
        return await steer(Steering(options.kubeconfig, on=True, context=options.context))
    except EffectError as error:
        return f"steering: not installed ({error}); pods land where they land"


def _gave_up(child: Child) -> int:
    complain(f"{child.name} keeps ending; its log {child.log} ends:\n{child.tail()}")
    return 1
