"""The stages of a replay: those built from recorded settings, and the rescheduler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from kinema_cli.local.settings import layered
from kinema_cli.replay.engine import NO_CAUSE, NO_STATE, Causes, Checked, Skipped, StateLine, compare, doubted
from kinema_cli.replay.recording import Recorded, Recording
from kinema_core.events import Event, ServiceStarted
from kinema_core.model.cluster import Cluster, fold
from kinema_core.runtime.stage import Stage
from kinema_rescheduler.journal.decisions import NAME, DecisionReplay, is_decision
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.settings import Settings as RescheduleSettings

T = TypeVar("T")
_STAGES: Final = {"predictor": "Predictor", "optimizer": "Optimizer", "decider": "Decider"}
"""Service → its stage; each is imported when it is replayed."""
_Key = tuple[datetime, int]
_AS_RECORDED: Final[Mapping[str, object]] = MappingProxyType({})
_RUNTIME: Final = {"runtime": {"cluster": "replay"}}


class RecordedSettingsError(Exception):
    """A service was started with settings that this version does not understand; the text names both."""


def maker(name: str, changed: Mapping[str, object] = _AS_RECORDED) -> Callable[[str | None], Stage[Any]]:
    """Return a function that builds the stage `name` from the JSON of its settings; None stands for its defaults.

    `changed` are settings that take the place of those recorded.
    """
    settings = import_module(f"kinema_{name}.settings").Settings
    build = getattr(import_module(f"kinema_{name}.service"), _STAGES[name])
    return lambda text: build(_settings(name, settings, text, changed))


def rescheduler_limits(text: str | None, changed: Mapping[str, object] = _AS_RECORDED) -> Limits:
    """Return the rescheduler's limits from the JSON of its settings; None stands for the defaults."""
    if text is None and not changed:
        return Limits()
    provider = {} if text is not None else {"provider": {"kind": "sim", "url": "http://127.0.0.1:1"}}
    return _settings("rescheduler", RescheduleSettings, text, layered(provider, changed)).limits


def _settings(name: str, kind: type[T], text: str | None, changed: Mapping[str, object]) -> T:
    """Return settings as they were recorded; the runtime section, which decides nothing, is not part of a recording."""
    try:
        fields = layered(msgspec.json.decode(text or "{}", type=dict[str, Any]), changed, _RUNTIME)
        policy = fields.get("policy", {})
        if "shadow" in policy:  # in charge now
            fields["policy"] = {**policy, "shadow": [one for one in policy["shadow"] if one != policy.get("name")]}
        return msgspec.convert(fields, kind)
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"the recorded settings of the {name} cannot be used: {error}: replay with the version that recorded"
        raise RecordedSettingsError(message) from error


class RescheduleReplay:
    """Makes the rescheduler's recorded decisions again, each with the log, the state and the time that it had.

    With settings that are `changed`, the steps before each decision are still those that were executed.
    """

    def __init__(self, recording: Recording, changed: Mapping[str, object] = _AS_RECORDED) -> None:
        self._recording = recording
        self._changed = changed
        self._replay = DecisionReplay(rescheduler_limits(None, changed))
        self._groups = self._grouped()
        self._states = StateLine(Cluster(), fold, recording.state)
        self._causes = Causes(recording)
        self._plans = {item.event.id: item.event.cause for item in recording.log}

    def _grouped(self) -> dict[_Key, list[Recorded]]:
        """Group decisions made together: same time, same state. Outcomes of effects may be stored in between."""
        groups: dict[_Key, list[Recorded]] = defaultdict(list)
        for item in self._recording.log:
            if _is_ours(item.event):
                groups[item.event.time, item.event.state].append(item)
        return groups

    async def run(self, start: int = 1, end: int | None = None) -> AsyncIterator[Checked | Skipped]:
        """Repeat the decisions on LOG events from `start` to `end`."""
        decided: set[_Key] = set()
        whole = self._causes.whole
        for item in self._recording.log:
            if end is not None and item.sequence > end:
                return
            event = item.event
            if isinstance(event.body, ServiceStarted) and event.body.service == NAME:
                self._replay.limits = rescheduler_limits(event.body.settings, self._changed)
                whole = True
            key = (event.time, event.state)
            if _is_ours(event) and key not in decided:
                decided.add(key)
                if item.sequence >= start:
                    for checked in self._again(self._groups[key]):
                        yield checked if whole else doubted(checked)
            self._replay.recall(event)

    def _again(self, group: list[Recorded]) -> Sequence[Checked | Skipped]:
        first = group[0].event
        # What is carried out is a plan and its acceptance: both must be there.
        if self._causes.before(first.cause) or self._causes.before(self._plans.get(first.cause, first.cause)):
            return [Skipped(NAME, item.sequence, NO_CAUSE) for item in group]
        cluster = self._states.at(first.state)
        if cluster is None:
            return [Skipped(NAME, item.sequence, NO_STATE) for item in group]
        made = list(self._replay.again(first, cluster))
        if self._cut_short(group):
            # The process died while it published: the rest of this decision was never stored.
            recorded = {item.event.id for item in group}
            made = [event for event in made if event.id in recorded]
        return compare(NAME, group[0].sequence, group, made)

    def _cut_short(self, group: list[Recorded]) -> bool:
        """Return whether no process, or only another one, decided after this group."""
        fencing = getattr(group[-1].event.body, "fencing", 0)
        later = (
            item.event.body
            for items in self._groups.values()
            for item in items[:1]
            if item.sequence > group[-1].sequence
        )
        return getattr(next(later, None), "fencing", None) != fencing


def _is_ours(event: Event) -> bool:
    return event.id.startswith(f"{event.cause}/{NAME}/") and is_decision(event.body)
