"""Base of every event body."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from kinema_core.events.frozen import FrozenMap
from kinema_core.events.objects import Wire

Figures: TypeAlias = FrozenMap[int | float | str]
"""The numbers behind a decision, by name; names end in their unit (`_usd_per_hour`, `_seconds`)."""


class Body(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Base of event bodies."""

    TYPE: ClassVar[str]
    FAMILY: ClassVar[str]
