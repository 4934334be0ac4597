"""`kinema simulate`: run a scenario once for each policy, and compare what came of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from kinema_cli.inputs import InputError, UsageError, fail
from kinema_cli.output import Format, cell, emit, hourly, print_error, print_note, print_warning, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kinema_sim.simulate.run import Result
    from kinema_sim.simulate.scenario import Loaded

COLUMNS = ("policy", "cost", "$/h", "least $/h", "nodes", "CPU used", "moved", "disrupted", "pod-s pending", "RPS")
"""Headings of the table: paid in all, on average, at least; mean nodes; of allocatable."""


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """Options of `kinema simulate`."""

    scenario: Path | None
    recording: Path | None = None
    """One of both."""
    policies: tuple[str, ...]
    seed: int
    work: int | None
    out: Path
    output: Format


def run_simulate(options: SimulateOptions) -> int:
    """Simulate, write the files, and print the table.

    Returns:
        The exit code: 0 done, 1 a file cannot be used or written, 2 wrong arguments, 130 interrupted; the policies that
        were done by then are written and printed as if no others had been asked for.
    """
    from kinema_cli.replay.recording import RecordingError
    from kinema_sim.simulate.scenario import ScenarioError

    try:
        names = _policies(options.policies)
        loaded = _loaded(options)
        _prepare(options.out)
    except (ScenarioError, RecordingError) as error:
        return fail(InputError(str(error)))
    except (InputError, UsageError) as error:
        return fail(error)
    with _silence(), _interruptible():
        results = _simulate(loaded, names, options)
    missing = names[len(results) :]
    if missing:
        print_error(f"interrupted: not simulated to the end: {', '.join(missing)}")
    if not results:
        return 130
    from kinema_cli.simulate.files import write_files

    write_files(loaded, results, options)
    emit(
        _as_value(results),
        options.output,
        lambda: [_table(loaded, results), cell(f"report: {options.out}/report.html")],
    )
    return 130 if missing else 0


def _loaded(options: SimulateOptions) -> Loaded:
    from kinema_cli.replay.recording import read
    from kinema_sim.simulate.recorded import recorded_scenario
    from kinema_sim.simulate.scenario import read_scenario

    if options.scenario is not None and options.recording is None:
        return read_scenario(options.scenario)
    if options.recording is None or options.scenario is not None:
        raise UsageError("name a SCENARIO, or a recording with --from-recording, one of both")
    recording = read(options.recording)
    streams = (recording.state, recording.log, recording.usage)
    return recorded_scenario(recording.cluster, [(item.stream, item.event) for part in streams for item in part])


def _policies(given: Sequence[str]) -> tuple[str, ...]:
    from kinema_sim.simulate.run import chosen

    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--policy is missing; name one or more")
    again = next((name for name in names if names.count(name) > 1), None)
    if again is not None:
        raise UsageError(f"--policy {again} is given twice")
    for name in names:
        try:
            chosen(name)
        except ValueError as error:
            raise UsageError(f"--policy {name}: {error}") from error
    return tuple(names)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the services from logging each of their steps within the block: thousands in a virtual hour."""
    import logging

    import structlog

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**before)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let an interrupt end the block where it is; asyncio's own handling waits for the end of a solve."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _prepare(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / "results.json"
        is_new = not probe.exists()
        with probe.open("ab"):
            pass
        if is_new:
            probe.unlink()
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror}; name a directory that can be written") from error


def _simulate(loaded: Loaded, names: Sequence[str], options: SimulateOptions) -> tuple[Result, ...]:
    """Return the results in the order of the names; fewer where an interrupt came before the last was done."""
    from kinema_sim.simulate.run import run
    from kinema_sim.simulate.scenario import milliseconds

    hours = milliseconds(loaded.scenario.duration) / 3_600_000
    found = []
    for name in names:
        try:
            result, seconds = run(loaded, name, seed=options.seed, work=options.work)
        except KeyboardInterrupt:
            break
        pace = hours * 3600 / seconds if seconds else 0.0
        print_note(f"{name}: {hours:g} h in {seconds:.1f} s of processor time, {pace:,.0f} simulated hours an hour")
        found.append(result)
    for text in dict.fromkeys(text for result in found for text in result.unread):
        print_warning(f"{text} cannot be read, so the requests of this workload stay; docs/rightsizing.md")
    return tuple(found)


def _as_value(results: Sequence[Result]) -> list[dict[str, object]]:
    import msgspec

    found = []
    for result in results:
        value = msgspec.to_builtins(result)
        del value["samples"]
        found.append(value)
    return found


def _table(loaded: Loaded, results: Sequence[Result]) -> RenderableType:
    rows = [
        (
            one.policy,
            f"${one.whole.usd:,.2f}",
            hourly(one.whole.mean_usd_per_hour),
            hourly(one.whole.min_usd_per_hour),
            f"{one.whole.mean_nodes:.2f}",
            f"{one.whole.cpu_used_percent:.1f}%",
            f"{one.evictions:,}",
            f"{one.disruptions:,}",
            f"{one.whole.pending_pod_seconds:,.0f}",
            f"{one.whole.mean_rps:,.1f}",
        )
        for one in results
    ]
    return table(f"Scenario {loaded.scenario.name}, {loaded.scenario.duration}", COLUMNS, rows, numbers=COLUMNS[1:])
