"""Building the stages that a replay runs, from the settings that were recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kinema_core.runtime.stage import Stage
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.settings import Settings as RescheduleSettings

T = TypeVar("T")


class RecordedSettingsError(Exception):
    """A service was started with settings that this version does not understand; the text names both."""


def maker(name: str) -> Callable[[str | None], Stage[Any]]:
    """Return a function that builds the stage `name` from the JSON of its settings; None stands for its defaults."""
    if name == "predictor":
        from kinema_predictor.service import Predictor
        from kinema_predictor.settings import Settings as PredictorSettings

        return lambda text: Predictor(_settings(name, PredictorSettings, text))
    if name == "optimizer":
        from kinema_optimizer.service import Optimizer
        from kinema_optimizer.settings import Settings as OptimizerSettings

        return lambda text: Optimizer(_settings(name, OptimizerSettings, text))
    if name == "decider":
        from kinema_decider.service import Decider
        from kinema_decider.settings import Settings as DeciderSettings

        return lambda text: Decider(_settings(name, DeciderSettings, text))
    message = f"no stage is called {name!r}"
    raise ValueError(message)


def rescheduler_limits(text: str | None) -> Limits:
    """Return the rescheduler's limits from the JSON of its settings; None stands for the defaults."""
    return _settings("rescheduler", RescheduleSettings, text).limits


def _settings(name: str, kind: type[T], text: str | None) -> T:
    """Return settings as they were recorded; the runtime section, which decides nothing, is not part of a recording."""
    runtime = msgspec.Raw(b'{"cluster":"replay"}')
    try:
        fields = msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw])
        return msgspec.json.decode(msgspec.json.encode({**fields, "runtime": runtime}), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"the recorded settings of the {name} cannot be used: {error}: replay with the version that recorded"
        raise RecordedSettingsError(message) from error
