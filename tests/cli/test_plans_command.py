"""`kinema plans`: which plans it lists, and what it says became of them."""

from __future__ import annotations

import json

import pytest
from tests.cli.test_status import PLAN, Told

from kinema_cli import plans_command
from kinema_cli.output import Format
from kinema_cli.plans import PlanLine, read_plans
from kinema_cli.plans_command import run_plans
from kinema_core.events import AnyBody, ExecutionAborted, ExecutionFinished, PlanAccepted, PlanHeld, PlanRefused
from kinema_core.runtime.settings import RuntimeSettings

HELD = PlanHeld(plan="e1", version=7, rule="approval", reason="asks first", would_change="approve")
REFUSED = PlanRefused(plan="e1", version=7, rule="saving", reason="too little", would_change="more")
ACCEPTED = PlanAccepted(plan="e1", version=7)


@pytest.mark.parametrize(
    ("bodies", "fate", "why"),
    [
        ((), "undecided", ""),
        ((HELD,), "held", "asks first"),
        ((REFUSED,), "refused", "too little"),
        ((HELD, ACCEPTED), "accepted", ""),
        ((ACCEPTED, ExecutionFinished(plan="e1", fencing=1)), "carried out", ""),
        (
            (ACCEPTED, ExecutionAborted(plan="e1", fencing=1, reason="stock-out", detail="no e2 left")),
            "aborted",
            "stock-out: no e2 left",
        ),
    ],
)
async def test_fate_is_the_last_word(bodies: tuple[AnyBody, ...], fate: str, why: str) -> None:
    """A plan's fate follows from the newest event about it; of others it says nothing."""
    told = await Told().say(PLAN, *bodies, PLAN)
    first, second = await read_plans(told.bus, 9)
    assert (first.id, first.fate, first.why) == ("e1", fate, why)
    assert (first.usd_per_hour_before, first.usd_per_hour_after, first.moves) == (1.7, 0.56, 12)
    assert second.fate == "undecided"


async def test_the_newest_are_listed() -> None:
    """Of more plans than asked for the oldest are left out, the order stays."""
    told = await Told().say(PLAN, PLAN, PLAN, PLAN)
    assert [line.id for line in await read_plans(told.bus, 2)] == ["e3", "e4"]


@pytest.mark.parametrize("known", [True, False])
def test_exit_codes(known: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """3 with one line of advice where nothing was proposed yet, else 0 and JSON with every plan."""

    async def found(_: RuntimeSettings, limit: int) -> tuple[PlanLine, ...]:
        return await read_plans((await Told().say(*([PLAN] if known else []))).bus, limit)

    monkeypatch.setattr(plans_command, "_read", found)
    assert run_plans(nats="nats://host", cluster="demo", limit=5, output=Format.JSON) == (0 if known else 3)
    said = capsys.readouterr()
    if known:
        assert [line["status"] for line in json.loads(said.out)["plans"]] == ["optimal"]
        assert run_plans(nats="nats://host", cluster="demo", limit=5, output=Format.TABLE) == 0
        assert "1.7000 → 0.5600" in capsys.readouterr().out
    else:
        assert "kinema status" in said.err
