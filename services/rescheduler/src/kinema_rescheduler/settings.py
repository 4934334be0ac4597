"""What an operator can set for the rescheduler."""

from __future__ import annotations

import msgspec

from kinema_core.runtime.settings import RuntimeSettings
from kinema_rescheduler.logic.limits import Limits


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the rescheduler; the same names stand in the chart's values."""

    runtime: RuntimeSettings
    limits: Limits = Limits()
    kubeconfig: str = ""
    """Kubeconfig file; empty: the pod's own service account."""
    provider_url: str = "http://127.0.0.1:8001"
    """Where the simulated cloud listens."""
    provider_token: str = ""
    provider_token_file: str = ""
    """File that holds the token; takes the place of `provider_token`."""
    request_seconds: float = 10.0
    """Real seconds for one request to the cluster or the provider."""
    lease_seconds: float = 9.0
    """Real seconds after which another process may take over; whole seconds, at least 3."""
    tick_seconds: float = 0.2
    """Real seconds between two looks at the streams."""
    grace_seconds: float = 5.0
    """Real seconds that running effects have to end when the service is told to stop."""
    max_state_age_seconds: float = 900.0
    """Cluster seconds without any observation after which nothing more is decided. A quiet cluster's observer tells
    usage every 15 seconds and, where there is no metrics API, restates the cluster every ten minutes."""
    catalog_seconds: float = 300.0
    """Cluster seconds between two looks at the provider's catalog."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.lease_seconds < 3:
            message = f"lease_seconds is {self.lease_seconds}: give 3 or more"
            raise ValueError(message)
        for name in ("request_seconds", "tick_seconds", "catalog_seconds", "max_state_age_seconds"):
            if getattr(self, name) <= 0:
                message = f"{name} is {getattr(self, name)}: it must be above 0"
                raise ValueError(message)
