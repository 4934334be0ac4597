"""Random plans by the hundred: `python -m tests.history simulated --plans 2000`, `python -m tests.history real`.

Each seed is a small cluster for which the product makes a plan and carries it out; the history checker and the auditor
judge it. Figures go to `out/random-plans`, and the whole history of every run that went wrong beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import structlog
from benchmarks.steering import SCENES
from tests.controlplane.flags import PROGRAMS
from tests.controlplane.plane import ControlPlane, Options, running
from tests.history import real, simulated
from tests.history.continued import continued
from tests.history.environments import foreign_cluster
from tests.history.random_clusters import RandomCluster, random_cluster
from tests.history.verdict import NothingToDoError, UnsettledError, Verdict, by_feature, summary

from kinema_cli.admin.steering_policy import install
from kinema_kubernetes.client import connect
from kinema_optimizer.search import kernels

OUT: Final = Path("out/random-plans")
_NEVER_MORE: Final = 10
"""Clusters tried for each plan wanted: some have nothing to gain."""


def main() -> int:
    """Run as many plans as asked for; 1 if anything was wrong with any."""
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("where", choices=("simulated", "real"))
    parser.add_argument("--plans", type=int, default=0, help="plans to carry out; 2,000 simulated or 300 real ones")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2, help="side by side; real ones have a control plane each")
    parser.add_argument("--foreign", action="store_true", help="in environments that Kinema did not build")
    parser.add_argument("--scheduler", choices=sorted(SCENES), default="default", help="of a real control plane")
    parser.add_argument("--resume", action="store_true", help="go on after what an interrupted run has written")
    asked = parser.parse_args()
    work = partial(_simulated, foreign=asked.foreign, resume=asked.resume)
    if asked.where == "real":
        work = partial(_real, foreign=asked.foreign, scheduler=asked.scheduler, resume=asked.resume)
    plans = asked.plans or (2000 if asked.where == "simulated" else 300)
    share = -(-plans // asked.processes)
    kernels.warm(3)  # once and not by each process, which begins with what is loaded here
    began = time.monotonic()
    with ProcessPoolExecutor(asked.processes) as pool:
        parts = [pool.submit(work, asked.first + i, asked.processes, share) for i in range(asked.processes)]
        found = [part.result() for part in parts]
    verdicts = sorted((one for part, _, _ in found for one in part), key=lambda one: one.seed)
    idle, unsettled = sum(part[1] for part in found), sum(part[2] for part in found)
    told = summary(verdicts, without_plan=idle, unsettled=unsettled)
    told["wall_seconds"] = round(time.monotonic() - began, 1)
    wrong = [{"seed": one.seed, "ended": one.ended, "flaws": one.flaws} for one in verdicts if one.wrong]
    OUT.mkdir(parents=True, exist_ok=True)
    if asked.foreign:
        told["by_feature"] = by_feature(verdicts)
    name = f"{'foreign-' if asked.foreign else ''}{asked.where}"
    (OUT / f"{name}.json").write_text(json.dumps({**told, "wrong": wrong}, indent=2) + "\n")
    print(json.dumps({**told, "wrong": wrong}, indent=2))
    return 1 if wrong else 0


Part = tuple[list[Verdict], int, int]
"""Plans that were carried out, clusters without a better one, and clusters that never came to rest."""


def _simulated(first: int, step: int, plans: int, *, foreign: bool, resume: bool) -> Part:
    quiet()

    def one(seed: int) -> Verdict:
        if foreign:
            return continued(foreign_cluster(seed), 0.0)[0]
        return simulated.carried_out(random_cluster(seed))

    name = "foreign-simulated" if foreign else "simulated"
    return _judged(plans, first, step, one, name=name, resume=resume)


def _real(first: int, step: int, plans: int, *, foreign: bool, scheduler: str, resume: bool) -> Part:
    quiet()
    with tempfile.TemporaryDirectory() as folder, steered_plane(Path(folder), scheduler, instant=not foreign) as plane:

        def one(seed: int) -> Verdict:
            made = foreign_real_cluster(seed, scheduler) if foreign else real_cluster(seed)
            return real.carried_out(plane, made, Path(folder))

        return _judged(plans, first, step, one, name="foreign-real" if foreign else "real", resume=resume)


def real_cluster(seed: int) -> RandomCluster:
    """One that a real control plane has built in seconds."""
    return random_cluster(seed, f"plans-{seed}", most_nodes=5, most_workloads=4)


def foreign_real_cluster(seed: int, scheduler: str) -> RandomCluster:
    """One of the same size, in an environment that Kinema did not build."""
    return foreign_cluster(seed, f"plans-{seed}", scheduler=scheduler, most_nodes=5, most_workloads=4)


@contextmanager
def steered_plane(folder: Path, scheduler: str = "default", *, instant: bool = True) -> Iterator[ControlPlane]:
    """A control plane with the admission policy that steers pods, which start and end at once by default."""
    only = tuple(name for name in PROGRAMS if name != "metrics-server")
    options = Options(instant_pods=instant, only=only, scheduling=SCENES[scheduler] or None)
    with running(folder / "plane", options) as plane:
        asyncio.run(_steering(plane, folder))
        yield plane


async def _steering(plane: ControlPlane, folder: Path) -> None:
    api = await connect(str(plane.admin.write_kubeconfig(folder / "admin")))
    try:
        await install(api)
    finally:
        await api.close()


def _judged(plans: int, first: int, step: int, carry_out: Callable[[int], Verdict], *, name: str, resume: bool) -> Part:
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}-{first}.jsonl"
    if not resume:
        path.unlink(missing_ok=True)
    verdicts = [Verdict.of_line(line) for line in path.read_text().splitlines()] if path.exists() else []
    idle = unsettled = 0
    begin = verdicts[-1].seed + step if verdicts else first
    for seed in _seeds(begin, step, plans * _NEVER_MORE):
        if len(verdicts) >= plans:
            break
        try:
            verdict = carry_out(seed)
        except NothingToDoError:
            idle += 1
            continue
        except UnsettledError:
            unsettled += 1
            continue
        except Exception:  # noqa: BLE001 - whatever the product raises is this plan's flaw, and the others go on
            verdict = Verdict.of_error(seed, traceback.format_exc())
        verdicts.append(verdict.judged(OUT / name))
        with path.open("a") as lines:  # what is known so far, should this be interrupted
            lines.write(verdicts[-1].line() + "\n")
    return verdicts, idle, unsettled


def _seeds(first: int, step: int, most: int) -> Iterator[int]:
    return (seed for seed, _ in zip(count(first, step), range(most), strict=False))


def quiet() -> None:
    """Let the services log nothing."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


if __name__ == "__main__":
    raise SystemExit(main())
