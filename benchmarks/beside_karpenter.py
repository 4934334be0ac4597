"""The real Karpenter after a peak on a real control plane, and Kinema's plans from the very same start.

    python -m benchmarks.beside_karpenter --start deployments-0 [--seconds 10] [--out DIR] [--again] [--live]

Karpenter buys the nodes of the usual load and then those of the peak, kube-scheduler fills them, the Deployments are
scaled down again by their controllers, and what is left is kept as a snapshot. Then Karpenter consolidates it while
every change is watched from outside. The snapshot, the catalog and what was seen stay in DIR: `--again` plans from them
once more, without a cluster, and `kinema plan --snapshot … --catalog …` reads them too.

With `--live` the five services work on the same start instead, on another control plane: the nodes with the labels that
Karpenter gave them, the pods where it left them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.controlplane.plane import ControlPlane, Options, running
from tests.e2e.pipeline_run import listed

from benchmarks.after_peak import MOVE_PRICE, PROGRAMS, Wish, run_on
from benchmarks.clusters import NAMESPACE
from benchmarks.frontier import Seen, frontier
from benchmarks.karpenter import consolidate, running_karpenter
from benchmarks.machine import write_result
from benchmarks.standing import gathered, ready, workloads
from benchmarks.starts import Peak, Service, Start, at_peak, e2_catalog, e2_offers, peaks
from benchmarks.witness import Verdict, Witness
from kinema_cli.inputs import PriceChoice, prices_of
from kinema_cli.snapshot.file import load_snapshot
from kinema_core.model.catalog import parse_catalog
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_sim.scenarios.objects import namespace

QUIET_SECONDS: Final = 150.0
"""No node or pod has come or gone for so long: the end has come. Karpenter looks again after fifteen seconds, the
Cluster Autoscaler has timers of a minute."""
MOST_SECONDS: Final = 2400.0
_LOOK_SECONDS: Final = 5.0
_KUBELETS: Final = 16
_DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True)
class Files:
    """Files of a start and of the result of Karpenter."""

    folder: Path
    name: str

    @property
    def snapshot(self) -> Path:
        """The start, as kubectl prints a cluster."""
        return self.folder / f"karpenter-{self.name}-start.json"

    @property
    def catalog(self) -> Path:
        """Offers that were on sale."""
        return self.folder / "karpenter-catalog.csv"

    def seen(self, who: str = "karpenter") -> Path:
        """Changes that were seen when the real one of these worked on it."""
        return self.folder / f"{who}-{self.name}-seen.json"

    def start(self) -> Start:
        """The start as Kinema reads it."""
        found = load_snapshot(self.snapshot)
        return Start(found.cluster, prices_of(PriceChoice(self.catalog), found).offers)


def watched(peak: Peak, files: Files) -> Seen:
    """Let Karpenter live through a peak and clear up after it; leaves the files."""
    files.folder.mkdir(parents=True, exist_ok=True)
    files.catalog.write_text(e2_catalog())
    services = peak.services()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with (
            running(folder / "plane", Options(only=PROGRAMS, kubelets=_KUBELETS)) as plane,
            running_karpenter(plane, e2_offers(), folder / "karpenter"),
        ):
            verdict = asyncio.run(_lived_through(plane, services, files, peak.seed))
    seen = seen_of(verdict, "Karpenter 1.15, the real one")
    files.seen().write_text(json.dumps(msgspec.to_builtins(seen), indent=2) + "\n")
    return seen


async def _lived_through(plane: ControlPlane, services: Sequence[Service], files: Files, seed: int) -> Verdict:
    api = await connect(str(plane.admin.write_kubeconfig(plane.folder / "hand.kubeconfig")), timeout_seconds=60.0)
    try:
        await api.create("/api/v1/namespaces", namespace(NAMESPACE))
        at_rest = [replace(one, peak=one.after) for one in services]
        await gathered(api.create(path, body) for path, body in workloads(at_peak(at_rest)))
        await ready(api, sum(one.after for one in services))
        _say("the usual load stands")
        await gathered(_scale(api, one.name, one.peak) for one in services)
        await ready(api, sum(one.peak for one in services))
        _say("the peak stands")
        await gathered(_scale(api, one.name, one.after) for one in services)
        await _left(api, sum(one.after for one in services))
        await _mark(api, services, random.Random(seed))
        await asyncio.to_thread(listed, plane.admin, files.snapshot)
        _say("the peak is over")
        witness = Witness(plane.admin)
        async with witness.watching():
            await asyncio.to_thread(consolidate, plane)
            await quiet(api)
        return await asyncio.to_thread(witness.verdict)
    finally:
        await api.close()


async def _scale(api: FencedClient, name: str, replicas: int) -> None:
    await api.patch(f"{_DEPLOYMENTS}/{name}/scale", {"spec": {"replicas": replicas}})


async def _left(api: FencedClient, count: int) -> None:
    """Wait until so many pods are left, none of them about to end."""
    end = time.monotonic() + MOST_SECONDS
    while len(pods := await api.items(_PODS)) != count or any("deletionTimestamp" in one["metadata"] for one in pods):
        if time.monotonic() > end:
            raise TimeoutError(f"{len(pods)} pods are left instead of {count}")
        await asyncio.sleep(_LOOK_SECONDS)


async def _mark(api: FencedClient, services: Sequence[Service], draw: random.Random) -> None:
    """Mark as many pods of each service as it says not to be disrupted."""
    pods: defaultdict[str, list[str]] = defaultdict(list)
    for pod in await api.items(_PODS):
        pods[pod["metadata"]["labels"]["app"]].append(pod["metadata"]["name"])
    mark = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    chosen = [name for one in services for name in draw.sample(sorted(pods[one.name]), one.undisrupted)]
    await gathered(api.patch(f"{_PODS}/{name}", mark) for name in chosen)


async def quiet(api: FencedClient) -> None:
    """Wait until nothing comes or goes any more, the longest time at most."""
    began = changed = time.monotonic()
    before: Any = None
    while time.monotonic() < min(changed + QUIET_SECONDS, began + MOST_SECONDS):
        found = [await api.items(path) for path in ("/api/v1/nodes", _PODS)]
        now = [sorted(item["metadata"]["uid"] for item in items) for items in found]
        if now != before:
            before, changed = now, time.monotonic()
            _say(f"{changed - began:5.0f} s: {len(now[0])} nodes, {len(now[1])} pods")
        await asyncio.sleep(_LOOK_SECONDS)


def seen_of(verdict: Verdict, who: str) -> Seen:
    """Return the sum of the changes at the catalog's prices."""
    price = {row.machine_type: row.micro_usd_per_hour / 1e6 for row in parse_catalog(e2_catalog())}
    return Seen(
        name=who,
        cost=round(sum(price[machine] for machine in verdict.nodes.values()), 6),
        nodes=len(verdict.nodes),
        machines=dict(sorted(Counter(verdict.nodes.values()).items())),
        evictions=verdict.moved + verdict.moved_again,
        distinct=verdict.moved,
        bought=len(verdict.bought),
        bought_in_vain=len(verdict.thrown_away),
        most_missing=verdict.most_missing,
        seconds=round(verdict.last_change, 1),
        saved_by_a_third=verdict.saved_by(1 / 3, price),
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Entry point of `python -m benchmarks.beside_karpenter`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", choices=list(peaks()), default="deployments-0")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each of Kinema's plans")
    parser.add_argument("--again", action="store_true", help="plan from what an earlier run left, without a cluster")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    parser.add_argument("--live", action="store_true", help="let the services carry their plans out")
    moves = parser.add_mutually_exclusive_group()
    moves.add_argument("--default-price", action="store_true", help=f"with --live, instead of ${MOVE_PRICE} for a move")
    moves.add_argument("--max-moves", type=int, help="with --live, in each plan, instead of a price of a move")
    given = parser.parse_args()
    files = Files(given.out, given.start)
    if given.again:
        seen = msgspec.json.decode(files.seen().read_bytes(), type=Seen)
    else:
        seen = watched(peaks()[given.start], files)
    name = f"karpenter-{given.start}{'-live' if given.live else ''}"
    if given.live:
        wish = Wish(max_moves=given.max_moves, move_price=None if given.default_price else MOVE_PRICE)
        beside = {"karpenter": msgspec.to_builtins(seen)}
        result = {**run_on(files.start(), wish, Options(only=PROGRAMS)), **beside}
        print(json.dumps(result, indent=2))
    else:
        result = frontier(name, files.start(), seconds=given.seconds, out=given.out, seen=[seen])
    write_result(name, result, given.out / f"{name}.json")


if __name__ == "__main__":
    main()
