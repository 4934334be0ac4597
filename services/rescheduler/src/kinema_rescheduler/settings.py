"""Settings of the rescheduler."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from kinema_core.ranges import NotNegative, Positive, between, check_ranges
from kinema_core.runtime.settings import LeaseSeconds, RuntimeSettings
from kinema_rescheduler.plan.limits import Limits

METADATA_URL: Final = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
"""Where a pod with workload identity gets its token."""


class SimSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="sim"):
    """The simulated cloud, over HTTP."""

    url: str
    """Address at which it listens."""
    token_file: str = ""
    """File that holds the bearer token. Settings are published in the log, so the token must not stand in them."""


class KwokSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="kwok"):
    """Fake nodes in a real API server, run by KWOK."""

    catalog: str
    """CSV file of what is on sale; `available` counts the nodes that may be there at the same time."""
    boot_seconds: NotNegative = 30.0
    """Cluster seconds from the order to the node's registration."""
    max_nodes: Annotated[int, between(0)] | None = None
    """Quota: how many fake nodes may be there at the same time; none: no limit."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)


class DelegateSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="delegate"
):
    """The cluster's own autoscaler boots and deletes; nodes are only closed and emptied for it."""

    catalog: str
    """CSV file with the prices of the nodes that are there."""


class KarpenterSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="karpenter"
):
    """Karpenter boots a NodeClaim for each planned node, and ends the NodeClaims of planned deletions."""

    node_pool: str
    """NodePool whose template, requirements and limits the NodeClaims have."""
    catalog: str = ""
    """CSV file of what is on sale; empty: the prices of EC2, GCE and Azure that ship with Kinema."""


class ClusterApiSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="cluster-api"
):
    """Cluster API boots and deletes Machines of the MachineDeployments that are scaled for it."""

    namespace: str
    """Namespace of the Cluster and its MachineDeployments."""
    cluster: str
    """Name of the Cluster."""
    kubeconfig: str = ""
    """Kubeconfig file of the management cluster; empty: the cluster manages itself."""
    catalog: str = ""
    """CSV file of what is on sale; empty: the prices of EC2, GCE and Azure that ship with Kinema."""


class GkeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="gke"):
    """Google Kubernetes Engine: node pools of Kinema's own, and instances by name within them."""

    project: str
    """Project of the cluster."""
    location: str
    """Region or zone of the cluster."""
    cluster: str
    """Name of the cluster."""
    template_pool: str = ""
    """Node pool whose service account, disks, image, labels and taints new ones have; empty: GKE's defaults."""
    catalog: str = ""
    """CSV file of what is on sale; empty: the prices of GCE that ship with Kinema."""
    dry_run: bool = False
    """Refuse every order and deletion, and name what it would have been."""
    token_command: tuple[str, ...] = ()
    """Command that prints an access token, such as `gcloud auth print-access-token`; empty: the metadata server's,
    which workload identity answers."""
    token_url: str = METADATA_URL
    """Address of the metadata server's token."""
    container_url: str = "https://container.googleapis.com"
    """Address of GKE's API."""
    compute_url: str = "https://compute.googleapis.com/compute/v1"
    """Address of Compute Engine's API."""
    resource_manager_url: str = "https://cloudresourcemanager.googleapis.com"
    """Address of the API that answers which rights the account has."""


class StaticSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="static"
):
    """Machines that are there for good, switched on and off by commands."""

    inventory: str
    """JSON file of machines and commands."""
    command_seconds: Positive = 60.0
    """Real seconds that a command may take."""
    reservation_seconds: NotNegative = 1800.0
    """Cluster seconds after which a machine that was chosen and is still off may be chosen again."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)


ProviderSettings: TypeAlias = (
    SimSettings
    | KwokSettings
    | DelegateSettings
    | GkeSettings
    | KarpenterSettings
    | ClusterApiSettings
    | StaticSettings
)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the rescheduler."""

    runtime: RuntimeSettings
    limits: Limits = Limits()
    kubeconfig: str = ""
    """Kubeconfig file; empty: the pod's own service account."""
    context: str = ""
    """Context in the kubeconfig; empty: its current one."""
    provider: ProviderSettings
    """Provider that boots and deletes nodes; its `kind` is `sim`, `kwok`, `delegate`, `gke`, `karpenter`,
    `cluster-api`, `static`."""
    steering: bool = True
    """Lead new pods to the planned nodes, where the admission policies are installed."""
    request_seconds: Positive = 10.0
    """Real seconds for one request to the cluster or the provider."""
    lease_seconds: LeaseSeconds = 9.0
    """Real seconds after which another process may take over; whole seconds, at least 3."""
    cluster_lease_duration_seconds: LeaseSeconds = 15.0
    """Real seconds after which a Kinema that is dead is taken for it by another one on the same cluster."""
    instance_name: str = ""
    """Place of this Kinema, as another Kinema on the same cluster reports it; empty: host and process."""
    tick_seconds: Positive = 0.2
    """Real seconds between two looks at the streams."""
    grace_seconds: NotNegative = 5.0
    """Real seconds that running effects have to end when the service stops."""
    max_state_age_seconds: Positive = 60.0
    """Cluster seconds without an observation after which nothing is decided. The observer of a quiet cluster publishes
    a heartbeat every 15 seconds, so that three may be lost."""
    catalog_seconds: Positive = 300.0
    """Cluster seconds between two looks at the provider's catalog."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_ranges(self)
