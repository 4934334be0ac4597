"""The five services as processes on a real control plane, until there is nothing more to do."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tests.controlplane.access import Access, RefusedError
from tests.history.record import History, recorded
from tests.pipeline.pipeline_harness import Strikes, followed

from kinema_cli.local.demo import Progress
from kinema_cli.local.pipeline import SERVICES, LocalPipeline, PipelineOptions
from kinema_cli.local.settings import UNATTENDED, layered
from kinema_cli.replay.recording import record_to
from kinema_kubernetes.rights import Rule, account, manifests
from kinema_observer import rights as observer_rights
from kinema_observer.adapters.source import RESOURCES
from kinema_rescheduler.kubernetes import rights as rescheduler_rights

CLUSTER: Final = "e2e"
SECONDS: Final = 600.0
"""Real seconds until a run counts as stuck."""
SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "observer": {"stabilization_window_seconds": 8.0, "reschedule_interval_seconds": 8.0, "usage_seconds": 5.0},
    "optimizer": {"planning": {"time_limit_seconds": 15.0}},
}

_HOME: Final = "kinema-system"
"""Namespace of the services' accounts."""


@dataclass(frozen=True)
class Run:
    """What the services did."""

    progress: Progress
    struck: bool
    """Whether what was to be done to it was done."""
    seconds: float
    """From their start until nothing was left to do."""
    recording: Path
    """What they said."""

    @cached_property
    def history(self) -> History:
        """The same, read by who shares no code with the services."""
        return recorded(self.recording)

    def replayed(self) -> str:
        """What `kinema replay` finds to be decided differently now; empty where nothing is."""
        command = [str(Path(sys.executable).with_name("kinema")), "replay", str(self.recording), "--assert"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"


def catalog(folder: Path, sold: Sequence[str] = ()) -> Path:
    """Prices of the machines on sale (none named: all), as a file: the simulator's, without its remarks."""
    lines = (resources.files("kinema_sim.data") / "gke-e2-europe-west3.csv").read_text().splitlines()
    if sold:
        lines = [line for line in lines if line.startswith(("machine_type,", *(f"{name}," for name in sold)))]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "catalog.csv"
    path.write_text("\n".join(line for line in lines if not line.startswith("#")) + "\n")
    return path


def cost(nodes: Iterable[Mapping[str, Any]], folder: Path) -> float:
    """USD per hour of nodes."""
    lines = catalog(folder).read_text().splitlines()
    prices = {row["machine_type"]: float(row["usd_per_hour"]) for row in csv.DictReader(lines)}
    return sum(prices[node["metadata"]["labels"]["node.kubernetes.io/instance-type"]] for node in nodes)


def listed(access: Access, path: Path) -> Path:
    """Write all that is there of the kinds that Kinema reads into one List, as kubectl prints it."""
    items = []
    for resource in RESOURCES:
        try:
            found = access.request("GET", resource.path)
        except RefusedError as error:
            if error.status != 404 or resource.essential:
                raise
            continue  # a kind that this cluster does not have
        version, kind = found["apiVersion"], found["kind"].removesuffix("List")
        items += [{"apiVersion": version, "kind": kind, **item} for item in found["items"]]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def optimum(access: Access, folder: Path, prices: str = "") -> Any:
    """What `kinema plan` says of the cluster as it is, as JSON: told by a listing, without any service.

    Its rules are those of `UNATTENDED`, as otherwise its bound would be none for what the services do. `prices` is the
    file of what is on sale; without it, it is all that the simulator has.
    """
    listing = listed(access, folder / "listing.json")
    command = [
        "plan",
        "--snapshot",
        str(listing),
        "--catalog",
        prices or str(catalog(folder)),
        "-o",
        "json",
        "--time-limit",
        "30",
        "--no-redundancy",
        "--headroom",
        "0",
    ]
    done = subprocess.run(
        [Path(sys.executable).with_name("kinema"), *command], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def carried_out(
    folder: Path,
    access: Mapping[str, Access],
    *,
    settings: Mapping[str, Mapping[str, object]] = SETTINGS,
    strikes: Strikes | None = None,
    until: Callable[[Progress], bool] = lambda _: True,
    sold: Sequence[str] = (),
    seconds: float = SECONDS,
    provider: Mapping[str, object] | None = None,
) -> Run:
    """Run the services until they have carried out what they accepted and found nothing more to do.

    Args:
        folder: for settings, logs and streams.
        access: of observer and rescheduler to the cluster.
        settings: by service.
        strikes: what is done to the pipeline or the cluster meanwhile.
        until: what else must hold before it is over.
        sold: machine types on sale; none named: all.
        seconds: real ones after which it counts as stuck.
        provider: the rescheduler's provider of nodes; none: KWOK's, with the machine types on sale.
    """
    began, strikes = time.monotonic(), strikes or Strikes()
    wanted = layered(UNATTENDED, settings)
    files = {name: str(one.write_kubeconfig(folder / f"{name}.kubeconfig")) for name, one in access.items()}
    pipeline = LocalPipeline(
        PipelineOptions(
            directory=folder,
            cluster=CLUSTER,
            kubeconfig=Path(files["observer"]),
            environment=strikes.environment,
            provider=provider or {"kind": "kwok", "catalog": str(catalog(folder, sold)), "boot_seconds": 3.0},
            settings={
                name: {**wanted.get(name, {}), **({"kubeconfig": files[name]} if name in files else {})}
                for name in SERVICES
            },
        )
    )
    try:
        await pipeline.start()
        progress = await followed(pipeline, strikes, seconds, until=until)
        took = time.monotonic() - began
        recording = folder / "recording.jsonl.zst"
        await record_to(pipeline.bus, cluster=CLUSTER, out=recording)
    finally:
        await pipeline.stop()
    return Run(progress, strikes.over, took, recording)


def own_rights(admin: Access, provider: str = "kwok") -> dict[str, Access]:
    """Accounts of observer and rescheduler with exactly the rights that they state."""
    stated = {"observer": observer_rights.RULES, "rescheduler": rescheduler_rights.rules(provider)}
    return {service: _account(admin, service, rules) for service, rules in stated.items()}


def _account(admin: Access, service: str, rules: Sequence[Rule]) -> Access:
    """As `kubectl apply` of the manifests would make it, with a token."""
    for space in sorted({rule.namespace for rule in rules} - {""} | {_HOME}):
        admin.ensure("/api/v1/namespaces", {"metadata": {"name": space}})
    for made in manifests(service, rules, namespace=_HOME):
        version, space = made["apiVersion"], made["metadata"].get("namespace")
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        place = f"{root}{f'/namespaces/{space}' if space else ''}/{made['kind'].lower()}s"
        kind = {key: made[key] for key in ("apiVersion", "kind")}
        content = {key: value for key, value in made.items() if key not in kind}
        admin.apply(f"{place}/{made['metadata']['name']}", kind, **content)
    path = f"/api/v1/namespaces/{_HOME}/serviceaccounts/{account(service)}/token"
    token = admin.request("POST", path, {"spec": {"expirationSeconds": 7200}})["status"]["token"]
    return replace(admin, token=token)
