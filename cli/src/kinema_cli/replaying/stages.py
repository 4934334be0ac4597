"""Building the stages that a replay runs, from the settings that were recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kinema_core.runtime.stage import Stage
from kinema_rescheduler.logic.limits import Limits
from kinema_rescheduler.settings import Settings as RescheduleSettings

T = TypeVar("T")


def maker(name: str) -> Callable[[str | None], Stage[Any]]:
    """A function that builds the stage `name` from the JSON of its settings; None stands for its defaults."""
    if name == "predictor":
        from kinema_predictor.service import Predictor
        from kinema_predictor.settings import Settings as PredictorSettings

        return lambda text: Predictor(_settings(PredictorSettings, text))
    if name == "optimizer":
        from kinema_optimizer.service import Optimizer
        from kinema_optimizer.settings import Settings as OptimizerSettings

        return lambda text: Optimizer(_settings(OptimizerSettings, text))
    if name == "decider":
        from kinema_decider.service import Decider
        from kinema_decider.settings import Settings as DeciderSettings

        return lambda text: Decider(_settings(DeciderSettings, text))
    message = f"no stage is called {name!r}"
    raise ValueError(message)


def rescheduler_limits(text: str | None) -> Limits:
    """The rescheduler's limits from the JSON of its settings; None stands for the defaults."""
    return _settings(RescheduleSettings, text).limits


def _settings(kind: type[T], text: str | None) -> T:
    """Settings as they were recorded; the runtime section, which decides nothing, is not part of a recording."""
    fields = msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw])
    runtime = msgspec.Raw(b'{"cluster":"replay"}')
    return msgspec.json.decode(msgspec.json.encode({**fields, "runtime": runtime}), type=kind)
