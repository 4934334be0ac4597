"""Settings of the decider."""

from __future__ import annotations

import msgspec

from kinema_core.runtime.settings import RuntimeSettings
from kinema_decider.logic.limits import Limits


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the decider."""

    runtime: RuntimeSettings
    limits: Limits = Limits()
