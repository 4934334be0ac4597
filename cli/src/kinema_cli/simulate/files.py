"""Files of a simulation: results as JSON, figures and samples as CSV, and the page."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kinema_cli.simulate.page import build_page

if TYPE_CHECKING:
    from kinema_cli.simulate.command import SimulateOptions
    from kinema_sim.simulate.run import Result
    from kinema_sim.simulate.scenario import Loaded

SCHEMA: Final = "kinema.simulation/v1"


def write_files(loaded: Loaded, results: Sequence[Result], options: SimulateOptions) -> None:
    """Write all of them into the directory, none of them by half; the same results give the same bytes.

    `results.json` holds everything, `figures.csv` a row for each policy and phase, `samples.csv` one for each change,
    `report.html` the comparison; the scenario and its files lie beside them, so that the run can be repeated.
    """
    out = options.out
    for name, data in loaded.sources.items():
        target = out / "scenario" / name
        if target.resolve().is_relative_to((out / "scenario").resolve()):
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, data)
    whole = {"schema": SCHEMA, "scenario": loaded.scenario.name, "seed": options.seed, "results": results}
    page = build_page(loaded, results, command_of(options))
    _write(out / "results.json", msgspec.json.format(msgspec.json.encode(whole, order="sorted"), indent=1) + b"\n")
    _write(out / "figures.csv", _figures(results).encode())
    _write(out / "samples.csv", _samples(results).encode())
    _write(out / "report.html", page.encode())


def _write(target: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, whenever an interrupt comes."""
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def command_of(options: SimulateOptions) -> str:
    """Return the command that repeats the run."""
    policies = [part for name in options.policies for part in ("--policy", name)]
    work = [] if options.work is None else ["--work", str(options.work)]
    words = [
        "kinema",
        "simulate",
        *(["--from-recording", options.recording.name] if options.recording else []),
        *([options.scenario.name] if options.scenario else []),
        *policies,
        "--seed",
        str(options.seed),
        *work,
        "--out",
        "again",
    ]
    return shlex.join(words)


def _figures(results: Sequence[Result]) -> str:
    names = list(results[0].whole.__struct_fields__) if results else []
    rows = [
        [result.policy, phase, *(getattr(found, name) for name in names)]
        for result in results
        for phase, found in (("whole", result.whole), *result.phases.items())
    ]
    return _csv(["policy", "phase", *names], rows)


def _samples(results: Sequence[Result]) -> str:
    names = [name for name in results[0].samples[0].__struct_fields__ if name != "zones"] if results else []
    rows = [[one.policy, *(getattr(sample, name) for name in names)] for one in results for sample in one.samples]
    return _csv(["policy", *names], rows)


def _csv(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()
