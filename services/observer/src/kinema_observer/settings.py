"""Settings of the observer."""

from __future__ import annotations

from typing import Final

from kinema_core.runtime.settings import RuntimeSettings
from kinema_observer.logic.settings import LoopSettings

_DAY: Final = 86_400


class Settings(LoopSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the observer."""

    runtime: RuntimeSettings
    kubeconfig: str = ""
    """File with the cluster's address and credentials; empty: the service account of the observer's pod."""
    context: str = ""
    """Context in the kubeconfig; empty: its current one."""
    lease_seconds: float = 9.0
    """Real seconds after which another process may take over; whole seconds, at least 3."""
    tick_seconds: float = 1.0
    """Interval at which changes are published and the observer loop decides."""
    usage_seconds: float = 15.0
    """Interval at which the metrics API is read; 0 turns it off."""
    usage_step_seconds: float = 300.0
    """Length of the steps in which usage is kept: the time over which a pod may use more than it requests unnoticed."""
    snapshot_deltas: int = 500
    """After how many deltas a snapshot is stated again, so that readers need not go far back."""
    snapshot_seconds: float = 600.0
    """After which time a snapshot is stated again, if anything changed."""
    bookmark_seconds: float = 60.0
    """Real seconds between the API server's bookmarks; after two such times without one, a list shows whether
    the watch is dead."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        super().__post_init__()
        for name in ("tick_seconds", "snapshot_seconds", "bookmark_seconds"):
            if not 0 < getattr(self, name) <= _DAY:
                raise ValueError(f"{name} is {getattr(self, name)}: use more than 0 and at most a day ({_DAY})")
        if self.lease_seconds < 3:
            raise ValueError(f"lease_seconds is {self.lease_seconds}: use 3 or more")
        if not 0 <= self.usage_seconds <= _DAY:
            raise ValueError(f"usage_seconds is {self.usage_seconds}: use 0 (off) to a day ({_DAY})")
        if not max(1.0, self.usage_seconds) <= self.usage_step_seconds <= _DAY:
            message = f"usage_step_seconds is {self.usage_step_seconds}"
            raise ValueError(f"{message}: use 1 to a day ({_DAY}), and no less than usage_seconds")
        if self.snapshot_deltas < 1:
            raise ValueError(f"snapshot_deltas is {self.snapshot_deltas}: use 1 or more")
