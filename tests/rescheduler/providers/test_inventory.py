"""The inventory file and the commands in it: what is refused, what it sells, and how commands are run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kinema_core.model.catalog import offers_from
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.errors import EffectError, PermanentError, TransientError
from kinema_rescheduler.providers.static.commands import run
from kinema_rescheduler.providers.static.inventory import filled, read_inventory

MACHINE: dict[str, Any] = {"name": "rack1-1", "machine_type": "r640", "vcpus": 16, "memory_gib": 64, "watts": 250}
FILE: dict[str, Any] = {
    "schema": "kinema.inventory/v1",
    "machines": [MACHINE, {**MACHINE, "name": "rack1-2"}, {**MACHINE, "name": "rack2-1", "zone": "b"}],
    "power_on": ["ipmitool", "-H", "{address}", "power", "on"],
    "power_off": ["ipmitool", "-H", "{address}", "power", "off"],
    "power_status": ["ipmitool", "-H", "{address}", "power", "status"],
    "usd_per_kwh": 0.3,
}


def written(directory: Path, **changes: Any) -> Path:
    """An inventory file."""
    path = directory / "inventory.json"
    path.write_text(json.dumps({**FILE, **changes}), encoding="utf-8")
    return path


def test_machines_that_are_alike_are_one_row(tmp_path: Path) -> None:
    """Rows count the machines that are off; the price is that of the electricity and what else an hour costs."""
    inventory = read_inventory(written(tmp_path))
    rows = inventory.rows(frozenset({"rack1-2", "rack2-1"}))
    assert [(row.zone, row.available, row.micro_usd_per_hour, row.watts) for row in rows] == [
        ("-", 1, 75_000, 250),
        ("b", 1, 75_000, 250),
    ]
    offers = offers_from(rows, Cluster())
    sold = [[machine.name for machine in inventory.machines if inventory.sold_as(machine, offer)] for offer in offers]
    assert sold == [["rack1-1", "rack1-2"], ["rack2-1"]]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"power_on": []}, "power_on is empty"),
        ({"power_off": ["x", "{host}"]}, "power_off has {host}"),
        ({"machines": [MACHINE, MACHINE]}, "machine rack1-1 stands there twice"),
        ({"machines": [{**MACHINE, "name": "--help"}]}, "machine name '--help'"),
        ({"machines": [{**MACHINE, "address": "-o evil"}]}, "address '-o evil'"),
        ({"machines": [{**MACHINE, "watts": 0}]}, "rack1-1 costs nothing"),
        ({"machines": [{**MACHINE, "vcpus": 0}]}, "vcpus and memory_gib must be above 0"),
        ({"machines": [{**MACHINE, "watts": -1}]}, "must not be below 0"),
        ({"machines": [{**MACHINE, "taints": ["a:b:c:d"]}]}, "machine rack1-1, taints"),
        ({"machines": [{**MACHINE, "wats": 1}]}, "unknown field `wats`"),
        ({"schema": "v2"}, "schema"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_error(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    """The error names the file, the machine and the field."""
    path = written(tmp_path, **changes)
    with pytest.raises(PermanentError) as caught:
        read_inventory(path)
    assert caught.value.reason == "invalid"
    assert told in caught.value.detail
    assert str(path) in caught.value.detail


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """No file, no traceback."""
    with pytest.raises(PermanentError, match="nowhere"):
        read_inventory(tmp_path / "nowhere")


def test_words_of_commands_stay_words(tmp_path: Path) -> None:
    """Name and address are filled in word by word; a machine without an address is asked by its name."""
    machines = [MACHINE, {**MACHINE, "name": "rack1-2", "address": "10.0.0.2"}]
    inventory = read_inventory(written(tmp_path, machines=machines, power_on=["on", "{machine}@{address}"]))
    assert [filled(inventory.power_on, machine)[1] for machine in inventory.machines] == [
        "rack1-1@rack1-1",
        "rack1-2@10.0.0.2",
    ]


@pytest.mark.parametrize(
    ("script", "kind", "reason"),
    [
        ("echo no; exit 77", PermanentError, "permission"),
        ("echo busy; exit 75", TransientError, "transient"),
        ("kill -9 $$", TransientError, "transient"),
        ("exec sleep 30", TransientError, "time-out"),
    ],
)
async def test_how_a_command_ends_becomes_our_error(script: str, kind: type[EffectError], reason: str) -> None:
    """A missing right is final; failures and commands that do not end pass."""
    with pytest.raises(kind) as caught:
        await run(("/bin/sh", "-c", script), 0.5)
    assert caught.value.reason == reason


def runs(noted: Path) -> bool:
    """Whether the process whose id was noted has not ended."""
    process = noted.read_text(encoding="utf-8").strip()
    try:
        return Path("/proc", process, "cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("script", ["sleep 300 & echo $! > {}; wait", "sleep 300 & echo $! > {}"])
async def test_what_a_command_started_ends_with_it(tmp_path: Path, script: str) -> None:
    """A script's own command neither goes on past the deadline nor holds us up, whether or not the script waits."""
    noted = tmp_path / "pid"
    async with asyncio.timeout(60):
        with pytest.raises(TransientError, match="did not end"):
            await run(("/bin/sh", "-c", script.format(noted)), 2)
        while runs(noted):  # noqa: ASYNC110 - a killed process tells nobody when it is gone
            await asyncio.sleep(0.02)


async def test_a_program_that_is_not_there_is_named() -> None:
    """A command that cannot be started is a mistake in the file."""
    with pytest.raises(PermanentError, match="/nowhere/power"):
        await run(("/nowhere/power", "on"), 1)


@pytest.mark.parametrize("end", ["exit 1", "exit 77", "exec sleep 30"])
async def test_words_of_a_command_are_not_shown(end: str) -> None:
    """An error of a command names its program; neither its words nor what it printed of them get into the text."""
    script = f'echo "cannot log in with $0 at bmc"; {end}'
    with pytest.raises(EffectError) as caught:
        await run(("/bin/sh", "-c", script, "hunter22"), 0.5)
    assert "hunter22" not in str(caught.value)
    assert "/bin/sh" in str(caught.value)


async def test_commands_meet_no_shell() -> None:
    """What looks like shell code is one word of the command."""
    assert await run(("/bin/echo", "$(id)", "; id", "*"), 5) == "$(id) ; id *"
