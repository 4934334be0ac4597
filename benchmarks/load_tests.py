"""The thesis's six load tests under several policies, all from one version: `python -m benchmarks.load_tests --help`.

Each run is written as soon as it is there, and is not repeated for the same version: the command may be ended and
started again.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kinema_cli.inputs import UsageError, policy_named
from kinema_optimizer.settings import PolicyName
from kinema_sim.simulate.course import Figures
from kinema_sim.simulate.run import Result, run
from kinema_sim.simulate.scenario import read_scenario

ROOT: Final = Path(__file__).parent.parent
TESTS: Final = tuple(
    f"{app}-{load}" for app in ("teastore", "online-boutique") for load in ("linear", "spike", "random")
)
POLICIES: Final[tuple[PolicyName, ...]] = (
    "none",
    "cluster-autoscaler",
    "optimize-utilization",
    "metric-descheduler",
    "trimaran",
    "karpenter",
    "thesis",
    "kinema",
)
HEADER: Final = (
    "| test | policy | RPS | mean under load | mean after | least | CPU after | memory after | most nodes | evicted | "
    "disrupted | processor s |"
)


class Run(msgspec.Struct, frozen=True):
    """One load test under one policy."""

    test: str
    policy: str
    version: str
    work: int
    whole: Figures
    load: Figures
    after: Figures
    evictions: int
    disruptions: int
    booted: int
    deleted: int
    notes: dict[str, int]
    processor_seconds: float


def row_of(one: Run) -> str:
    """Return a row of the table."""
    least = min(one.load.min_usd_per_hour, one.after.min_usd_per_hour)
    cells = (
        one.test,
        one.policy,
        f"{one.load.mean_rps:.1f}",
        f"${one.load.mean_usd_per_hour:.3f}",
        f"${one.after.mean_usd_per_hour:.3f}",
        f"${least:.2f}",
        f"{one.after.cpu_used_percent:.1f}%",
        f"{one.after.memory_used_percent:.1f}%",
        str(one.whole.max_nodes),
        str(one.evictions),
        str(one.disruptions),
        f"{one.processor_seconds:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def runs(tests: Sequence[str], policies: Sequence[PolicyName], *, version: str, work: int, out: Path) -> Iterator[Run]:
    """Yield all runs, the quick policies first; those that are there already are read."""
    for policy in sorted(policies, key=lambda one: one in ("kinema", "thesis")):
        for test in tests:
            file = out / f"{test}.{policy}.json"
            if file.exists():
                known = msgspec.json.decode(file.read_bytes(), type=Run)
                if (known.version, known.work) == (version, work):
                    yield known
                    continue
            result, seconds = run(read_scenario(ROOT / "docs/experiments" / f"{test}.yaml"), policy, work=work)
            made = _run(test, result, version, work, seconds)
            file.write_bytes(msgspec.json.format(msgspec.json.encode(made)))
            yield made


def _run(test: str, result: Result, version: str, work: int, seconds: float) -> Run:
    return Run(
        test=test,
        policy=result.policy,
        version=version,
        work=work,
        whole=result.whole,
        load=result.phases["load"],
        after=result.phases["after"],
        evictions=result.evictions,
        disruptions=result.disruptions,
        booted=result.booted,
        deleted=result.deleted,
        notes=result.notes,
        processor_seconds=round(seconds, 1),
    )


def version_of_checkout() -> str:
    """Return the short id of the commit that is checked out."""
    command = ["/usr/bin/env", "git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - fixed command
    return done.stdout.strip()


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load_tests", description=__doc__)
    parser.add_argument("--test", action="append", choices=TESTS, help="may be repeated; default: all six")
    parser.add_argument("--policy", action="append", help=f"may be repeated; default: {', '.join(POLICIES)}")
    parser.add_argument("--work", type=int, default=10, help="iterations of each phase of Kinema's solves")
    parser.add_argument("--out", type=Path, default=Path("out/load-tests"))
    parser.add_argument("--version", default="", help="what is measured; default: the commit of the checkout")
    given = parser.parse_args()
    try:
        policies = tuple(policy_named(name) for name in given.policy or POLICIES)
    except UsageError as error:
        parser.error(str(error))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    given.out.mkdir(parents=True, exist_ok=True)
    version = given.version or version_of_checkout()
    print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n", flush=True)
    for one in runs(given.test or TESTS, policies, version=version, work=given.work, out=given.out):
        print(row_of(one), flush=True)


if __name__ == "__main__":
    main()
