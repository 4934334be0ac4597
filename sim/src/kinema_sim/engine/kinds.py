"""The kinds that the simulated API server knows."""

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of object and how the API speaks of it; each is there once, and known by its identity.

    Attributes:
        group: API group, empty for the core group.
        version: the one version served.
        plural: name in paths.
        name: name in `kind` fields.
        namespaced: whether objects live in a namespace.
        generation: whether a change of the spec moves `metadata.generation`.
        has_status: whether status is a subresource that plain writes leave alone.
        scale: whether the scale subresource exists.
        short: short names for discovery.
    """

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True
    generation: bool = False
    has_status: bool = False
    scale: bool = False
    short: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """Group and version as in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Plural and group as error messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACE = Kind("", "v1", "namespaces", "Namespace", namespaced=False, has_status=True, short=("ns",))
NODE = Kind("", "v1", "nodes", "Node", namespaced=False, has_status=True, short=("no",))
POD = Kind("", "v1", "pods", "Pod", generation=True, has_status=True, short=("po",))
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap", short=("cm",))
RESOURCE_QUOTA = Kind("", "v1", "resourcequotas", "ResourceQuota", has_status=True, short=("quota",))
PERSISTENT_VOLUME = Kind(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, has_status=True, short=("pv",)
)
PERSISTENT_VOLUME_CLAIM = Kind(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", has_status=True, short=("pvc",)
)
DEPLOYMENT = Kind(
    "apps", "v1", "deployments", "Deployment", generation=True, has_status=True, scale=True, short=("deploy",)
)
REPLICA_SET = Kind(
    "apps", "v1", "replicasets", "ReplicaSet", generation=True, has_status=True, scale=True, short=("rs",)
)
STATEFUL_SET = Kind(
    "apps", "v1", "statefulsets", "StatefulSet", generation=True, has_status=True, scale=True, short=("sts",)
)
DAEMON_SET = Kind("apps", "v1", "daemonsets", "DaemonSet", generation=True, has_status=True, short=("ds",))
JOB = Kind("batch", "v1", "jobs", "Job", generation=True, has_status=True)
HPA = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", has_status=True, short=("hpa",))
PDB = Kind(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", generation=True, has_status=True, short=("pdb",)
)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short=("sc",))
CSI_NODE = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
VOLUME_ATTACHMENT = Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",))
EVENT = Kind("events.k8s.io", "v1", "events", "Event", short=("ev",))
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")

ALL_KINDS: tuple[Kind, ...] = tuple(value for value in tuple(globals().values()) if isinstance(value, Kind))
"""All of them, in the order above: discovery and the removal of namespaces follow it."""
