"""`kinema up`: the five services as processes of this machine, on a cluster of yours."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from kinema_cli.pipeline import LocalPipeline, PipelineOptions
from kinema_cli.processes import Child, stop_event
from kinema_cli.setup_command import Steering, steer
from kinema_core.runtime.bus import BusError
from kinema_core.runtime.embedded import ServerError
from kinema_rescheduler.errors import EffectError

LOOK_SECONDS = 2.0
_PLACES = {"sim": "url", "kwok": "catalog", "delegate": "catalog", "static": "inventory"}
"""What each kind of provider must be told."""


@dataclass(frozen=True)
class UpOptions:
    """What to run on."""

    kubeconfig: Path
    provider: str
    """`KIND=WHERE`."""
    cluster: str
    out: Path
    steering: bool = True
    """Whether new pods are steered to the planned nodes; needs the right to make an admission policy."""


def run_up(options: UpOptions) -> int:
    """Run until interrupted; 0 then, 1 when something cannot run."""
    console = Console(stderr=True)
    if not options.kubeconfig.is_file():
        console.print(f"{options.kubeconfig}: no such file: name the kubeconfig of the cluster", markup=False)
        return 2
    provider = provider_setting(options.provider)
    if isinstance(provider, str):
        console.print(provider, markup=False)
        return 2
    try:
        return asyncio.run(_up(options, provider, console))
    except (BusError, ServerError, OSError) as error:
        console.print(str(error), markup=False, soft_wrap=True)
        return 1


def provider_setting(text: str) -> dict[str, object] | str:
    """The rescheduler's setting for `KIND=WHERE`, or what is wrong with it."""
    kind, equals, where = text.partition("=")
    if kind not in _PLACES or not equals or not where:
        forms = ", ".join(f"{kind}={place.upper()}" for kind, place in _PLACES.items())
        return f"--provider {text!r}: write one of {forms}"
    if kind == "sim":
        address = urlsplit(where)
        if address.scheme not in ("http", "https") or not address.hostname:
            return f"--provider {text!r}: {where!r} is no http or https address"
        return {"kind": kind, "url": where}
    if not Path(where).is_file():
        return f"--provider {text!r}: there is no file {where}"
    return {"kind": kind, _PLACES[kind]: str(Path(where).resolve())}


async def _up(options: UpOptions, provider: dict[str, object], console: Console) -> int:
    shutil.rmtree(options.out / "settings", ignore_errors=True)
    pipeline = LocalPipeline(
        PipelineOptions(
            directory=options.out,
            cluster=options.cluster,
            kubeconfig=options.kubeconfig.resolve(),
            provider=provider,
            settings={"rescheduler": {"steering": options.steering}},
        )
    )
    if options.steering:
        console.print(await _steered(options), markup=False, soft_wrap=True)
    stopping = stop_event()
    try:
        await pipeline.start()
        console.print(f"five services run; logs in {options.out / 'logs'}; Ctrl-C ends them", soft_wrap=True)
        operator = pipeline.runtime("operator")
        address = operator.nats_url.replace("nats://", f"nats://{operator.nats_user}:{operator.nats_password}@")
        console.print(f"kinema status --nats {address} --cluster {options.cluster}", markup=False, soft_wrap=True)
        while not stopping.is_set():
            looping = pipeline.supervisor.crash_looping()
            if looping is not None:
                return _gave_up(console, looping)
            try:
                await asyncio.wait_for(stopping.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue
        return 0
    finally:
        await pipeline.stop()


async def _steered(options: UpOptions) -> str:
    """Put steering into force; without it everything works, with more pods elsewhere than planned."""
    try:
        return await steer(Steering(options.kubeconfig, on=True))
    except EffectError as error:
        return f"steering: not installed ({error}); pods land where they land"


def _gave_up(console: Console, child: Child) -> int:
    console.print(f"{child.name} keeps ending; its log {child.log} ends:\n{child.tail()}", markup=False, soft_wrap=True)
    return 1
