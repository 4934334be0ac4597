"""Settings of the observer."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kinema_core.ranges import between, check_ranges
from kinema_core.runtime.settings import LeaseSeconds, RuntimeSettings
from kinema_observer.logic.settings import LoopSettings

_DAY: Final = 86_400
_Interval: TypeAlias = Annotated[float, between(0, _DAY, above=True)]
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class PrometheusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server with the HTTP API of Prometheus; it keeps the kubelet's metrics of containers."""

    url: str = ""
    """Its address, with the path before `/api/v1` where there is one: `http://prometheus.monitoring:9090`."""
    matchers: dict[str, str] = {}
    """Labels that series must have, such as `{"cluster": "shop"}` where the server keeps several clusters."""
    tenant: str = ""
    """Value of the header `X-Scope-OrgID`, for servers of several tenants; empty: none is sent."""
    token_file: str = ""
    """File with a bearer token, read again for every query; empty: none is sent."""
    ca_file: str = ""
    """File with the authority of the server's certificate; empty: the authorities of the machine."""
    timeout_seconds: _Interval = 60.0
    """Real seconds that a query may take; after that a shorter span of time is asked for."""
    lookback_seconds: Annotated[float, between(0, 31 * _DAY)] = 1_814_400.0
    """How far back usage is read when none is known yet: a new installation learns from the past at once."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)
        if self.url and not re.match(r"https?://[^/?#\s]+[^?#\s]*$", self.url):
            raise ValueError(f'url is {self.url!r}: give an address such as "http://prometheus.monitoring:9090"')
        for name in self.matchers:
            if not _LABEL.fullmatch(name):
                raise ValueError(f"matchers has {name!r}: a label's name has letters, digits and _ only")


class Settings(LoopSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the observer."""

    runtime: RuntimeSettings
    kubeconfig: str = ""
    """File with the cluster's address and credentials; empty: the service account of the observer's pod."""
    context: str = ""
    """Context in the kubeconfig; empty: its current one."""
    lease_seconds: LeaseSeconds = 9.0
    """Real seconds after which another process may take over; whole seconds, at least 3."""
    tick_seconds: _Interval = 1.0
    """Interval at which changes are published and the observer loop decides."""
    usage_source: Literal["metrics.k8s.io", "prometheus"] = "metrics.k8s.io"
    """Where usage comes from: the metrics API, which knows the present only, or a Prometheus with the past as well."""
    prometheus: PrometheusSettings = PrometheusSettings()
    """The server, where usage comes from Prometheus."""
    usage_seconds: Annotated[float, between(0, _DAY)] = 15.0
    """Interval at which the source of usage is asked; 0 turns it off."""
    usage_step_seconds: Annotated[float, between(1, _DAY)] = 300.0
    """Length of the steps in which usage is kept: the time over which a pod may use more than it requests unnoticed."""
    snapshot_deltas: Annotated[int, between(1)] = 500
    """After how many deltas a snapshot is stated again, so that readers need not go far back."""
    snapshot_seconds: _Interval = 600.0
    """After which time a snapshot is stated again, if anything changed."""
    bookmark_seconds: _Interval = 60.0
    """Real seconds between the API server's bookmarks; after two such times without one, a list shows whether
    the watch is dead."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        super().__post_init__()
        if self.usage_step_seconds < self.usage_seconds:
            raise ValueError(f"usage_step_seconds is {self.usage_step_seconds}: use no less than usage_seconds")
        if self.usage_source == "prometheus" and not self.prometheus.url:
            raise ValueError(
                'prometheus.url is empty: give the address of the server, such as "http://prometheus:9090"'
            )
