"""Settings of the observer."""

from __future__ import annotations

from kinema_core.runtime.settings import RuntimeSettings
from kinema_observer.logic.settings import LoopSettings


class Settings(LoopSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that the observer is told."""

    runtime: RuntimeSettings
    kubeconfig: str = ""
    """File with the cluster's address and credentials; empty: the service account of the pod we run in."""
    context: str = ""
    """Context in the kubeconfig; empty: its current one."""
    tick_seconds: float = 1.0
    """How often changes are published and the observer loop decides."""
    usage_seconds: float = 15.0
    """How often the metrics API is read; 0 turns it off."""
    snapshot_deltas: int = 500
    """After how many deltas a snapshot is stated again, so that readers need not go far back."""
    snapshot_seconds: float = 600.0
    """After which time a snapshot is stated again, if anything changed."""
    bookmark_seconds: float = 60.0
    """Real seconds between the API server's bookmarks; after two without a sign of life a list tells whether
    the watch is dead."""
