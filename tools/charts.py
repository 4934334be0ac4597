"""Write what the charts take from the code: default values, their schemas, rights, the broker's users, and READMEs.

    python tools/charts.py            write it
    python tools/charts.py --check    exit 1 when something is not what would be written

The structs below are the values of the charts. Values of a service hold its settings as the service's own struct states
them, less what the chart sets itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec
import yaml

# As a script this file finds its neighbors, in a test it is part of a package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.event_catalog import write_or_check
from tools.settings_reference import SERVICES, fields_of

from kinema_cli.admin import steering_policy
from kinema_cli.agreement import JUDGES, needed_alike
from kinema_core.runtime.rights import USERS, authorization_text
from kinema_core.runtime.settings import NATS_FILES
from kinema_kubernetes.rights import Rule, as_written
from kinema_observer.rights import RULES
from kinema_optimizer.settings import PlanningSettings
from kinema_rescheduler.kubernetes import rights as rescheduler
from kinema_rescheduler.kubernetes.guard import guard

CHARTS: Final = Path(__file__).resolve().parent.parent / "charts"
CLUSTER: Final = "__CLUSTER__"
"""Stands in the generated rights on the broker for the cluster's name."""
_FILLED: Final = frozenset({"runtime", "cluster", "provider", "catalog", "inventory"})
"""Settings that a template fills or asks for, so that values may lack them."""
ACCOUNT: Final = "ACCOUNT"
"""Stands in the generated guard for the user that it bounds."""
_HIDDEN: Final = frozenset({"kubeconfig", "context"})
"""Settings that a pod has no use for: it reaches the API server of its own cluster."""
_MANAGED: Final = frozenset({"cluster", "nats_url", "nats_user", "nats_password", "nats_server_name", *NATS_FILES})
_SET: Final = _MANAGED | {"health_host", "health_port"}
"""Settings of the runtime that the chart sets by values of its own."""
_PLAIN: Final[Any] = {"sort_keys": False, "width": 1000}
_REFERENCE: Final = "#/definitions/{name}"
_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
_DOCS: Final = "https://github.com/kinema/kinema/blob/main/docs/"
_DEFINED: Final = """\
{{{{/* Written by tools/charts.py: defaults of the values that charts share. */}}}}
{{{{- define "kinema.shared" -}}}}
{}
{{{{- end -}}}}

{{{{/* Settings that services need alike, with their defaults. */}}}}
{{{{- define "kinema.alike" -}}}}
{}
{{{{- end -}}}}
"""
_NOTED: Final = (
    "\\* Unless `global.kinema` has another, which it has for all charts of a release; a value set here goes first."
)

Free: TypeAlias = dict[str, Any]
"""An object whose form Kubernetes checks."""
Name: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]*$")]
"""Part of a subject on the broker."""
Size: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]*(Mi|Gi)$")]
"""Size that `kinema setup` takes."""
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Unset: TypeAlias = msgspec.UnsetType
"""A value that charts share: what a chart does not set comes from `global.kinema`, else from `SHARED`."""


class _Values(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Values are closed: an unknown name is an error."""


class Images(_Values, frozen=True):
    """Container images."""

    registry: str | Unset = msgspec.UNSET
    """Registry and path before the repository."""
    tag: str | Unset = msgspec.UNSET
    """Empty: the chart's appVersion."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | Unset = msgspec.UNSET
    """As in a pod."""
    pull_secrets: tuple[str, ...] | Unset = msgspec.UNSET
    """Names of Secrets with credentials for the registry."""


class Image(Images, frozen=True):
    """Container image."""

    repository: str = ""
    """Name of the image."""
    digest: Annotated[str, msgspec.Meta(pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    """Takes the place of the tag: `sha256:…`."""


class Tls(_Values, frozen=True):
    """Certificates of the connection to the broker; its address begins with `tls://`."""

    secret: str | Unset = msgspec.UNSET
    """Secret with the broker's authority in `ca.crt`; empty: the authorities of the image."""
    client_certificate: bool | Unset = msgspec.UNSET
    """true: the Secret holds the client's certificate too, in `tls.crt` and `tls.key`."""
    server_name: str | Unset = msgspec.UNSET
    """Name in the broker's certificate; empty: the host in the address."""


class Broker(_Values, frozen=True):
    """The broker."""

    url: str | Unset = msgspec.UNSET
    """One address, or several of one broker cluster separated by commas."""
    existing_secret: str | Unset = msgspec.UNSET
    """Secret with what proves each user; empty: the broker asks for nothing."""
    auth: Literal["password", "creds", "seed"] | Unset = msgspec.UNSET
    """Content of that Secret's keys: passwords, `.creds` files, or seeds of NKEY users."""
    tls: Tls = Tls()
    """"""


class Nats(Broker, frozen=True):
    """The broker, and the service's user on it."""

    user: str = ""
    """Empty: the service's name."""
    password_key: str = ""
    """Key in that Secret; empty: the service's name."""


class ServiceAccount(_Values, frozen=True):
    """Account in the Kubernetes API."""

    create: bool = True
    """false: an account of the name below exists."""
    name: str = ""
    """Empty: the chart's name."""
    annotations: dict[str, str] = {}
    """For workload identity, such as `eks.amazonaws.com/role-arn`."""


class Rbac(_Values, frozen=True):
    """Rights in the Kubernetes API."""

    create: bool = True
    """false: the roles come from elsewhere, such as `kinema rbac`."""


class Closed(_Values, frozen=True):
    """What may reach the pods and what they may reach."""

    enabled: bool | Unset = msgspec.UNSET
    """true: only probes and metrics come in; only DNS, broker and API server are reached."""


class Egress(Closed, frozen=True):
    """What may reach the pods and what they may reach."""

    extra_egress: tuple[Free, ...] | Unset = msgspec.UNSET
    """More egress rules, such as one to a machine's controller for the provider `static`."""


class NetworkPolicy(Egress, frozen=True):
    """What may reach the pods and what they may reach."""

    api_server_ports: tuple[Port, ...] | Unset = msgspec.UNSET
    """Ports of the API server behind its Service."""


class PodMonitor(_Values, frozen=True):
    """Metrics for the Prometheus operator."""

    enabled: bool | Unset = msgspec.UNSET
    """Only where the API server has `monitoring.coreos.com/v1`."""
    interval: Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]*(ms|s|m|h)$")] | Unset = msgspec.UNSET
    """How often metrics are read."""
    labels: dict[str, str] | Unset = msgspec.UNSET
    """By which your Prometheus selects monitors."""


class Base(_Values, frozen=True):
    """Values that every chart with pods has."""

    cluster: Name | Unset = msgspec.UNSET
    """Name of the cluster whose pipeline this is; required."""
    image: Image = Image()
    """"""
    resources: Free = {}
    """Requests and limits of the container."""
    node_selector: dict[str, str] = {}
    """As in a pod."""
    tolerations: tuple[Free, ...] = ()
    """As in a pod."""
    affinity: Free = {}
    """As in a pod."""
    priority_class_name: str = ""
    """As in a pod."""


class Service(Base, frozen=True):
    """Values that all services have."""

    nats: Nats = Nats()
    """"""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=3)] = 1
    """Processes. One acts, and another takes over within seconds of its end."""
    runtime: Free = {}
    """Settings of the runtime, less those that the chart sets."""
    settings: Free = {}
    """Settings of the service."""
    env: tuple[Free, ...] = ()
    """More environment variables of the container."""
    pod_labels: dict[str, str] = {}
    """More labels of the pods."""
    pod_annotations: dict[str, str] = {}
    """More annotations of the pods."""
    extra_volumes: tuple[Free, ...] = ()
    """More volumes of the pods."""
    extra_volume_mounts: tuple[Free, ...] = ()
    """Where they are mounted."""
    network_policy: Egress = Egress()
    """"""
    pod_monitor: PodMonitor = PodMonitor()
    """"""


class InCluster(Service, frozen=True):
    """Values of a service that uses the Kubernetes API."""

    network_policy: NetworkPolicy = NetworkPolicy()
    """"""
    service_account: ServiceAccount = ServiceAccount()
    """"""
    rbac: Rbac = Rbac()
    """"""


class Rescheduler(InCluster, frozen=True):
    """Values of the rescheduler."""

    catalog: str = ""
    """The provider's file: CSV of prices, or JSON inventory (`static`); `gke`, `karpenter`, `cluster-api` need none."""


class Autoscaling(_Values, frozen=True):
    """A HorizontalPodAutoscaler for the workers."""

    enabled: bool = False
    """true: between `replicas` and `maxReplicas` at 60% of the requested CPU."""
    max_replicas: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4
    """Most workers."""


class Workers(_Values, frozen=True):
    """Processes that share the optimizer's search."""

    replicas: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    """0: the optimizer searches alone. Workers may come and go at any time; give them one kind of processor."""
    resources: Free = {}
    """Requests and limits of a worker."""
    autoscaling: Autoscaling = Autoscaling()
    """"""


class Optimizer(Service, frozen=True):
    """Values of the optimizer."""

    workers: Workers = Workers(resources={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}})
    """"""


class Streams(_Values, frozen=True):
    """What `kinema setup` prepares on the broker, and mends where JetStream lets it."""

    enabled: bool = True
    """false: the broker was prepared by other means."""
    replicas: Literal[1, 3, 5] = 1
    """Copies of each stream, each on a server of its own."""
    state_size: Size = "2Gi"
    """Size of the stream of cluster states; its oldest messages go first."""
    log_size: Size = "2Gi"
    """Size of the stream of plans and steps; its oldest messages go first."""
    usage_size: Size = "1Gi"
    """Size of the stream of what workloads used, of a month at most; its oldest messages go first."""


class PlacementPolicy(_Values, frozen=True):
    """The admission policy that lets new pods prefer their planned nodes."""

    enabled: bool = True
    """true: a hook installs it, with rights that exist only while it runs. It stays when the release is uninstalled."""


class Setup(Base, frozen=True):
    """Values of the chart that prepares broker and cluster."""

    nats: Nats = Nats()
    """"""
    streams: Streams = Streams()
    """"""
    placement_policy: PlacementPolicy = PlacementPolicy()
    """"""
    network_policy: NetworkPolicy = NetworkPolicy()
    """"""


class Storage(_Values, frozen=True):
    """The volume of the streams."""

    size: str = "8Gi"
    """Of the volume."""
    max_file_store: Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]*[KMGT]i?B?$")] = "6G"
    """What all streams together may take: at most 80% of the volume."""
    storage_class: str = ""
    """Empty: the cluster's default."""


class Volume(_Values, frozen=True):
    """The volume of the streams."""

    size: str = "8Gi"
    """Of the volume."""
    storage_class: str = ""
    """Empty: the cluster's default."""


class AllInOne(Base, frozen=True):
    """Values of the chart that runs everything in one pod."""

    provider: Literal["delegate", "gke", "karpenter", "cluster-api", "static", "kwok"] = "delegate"
    """Provider of nodes."""
    location: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9./_-]*$")] = ""
    """What `karpenter` buys by, a NodePool; of `gke`, PROJECT/LOCATION/CLUSTER; of `cluster-api`, NAMESPACE/CLUSTER."""
    catalog: str = ""
    """The provider's file, as for the rescheduler; use `--set-file`. `gke`, `karpenter`, `cluster-api` need none."""
    settings: dict[str, Free] = {}
    """Settings by service; `kinema up` refuses a wrong one when it starts."""
    storage: Volume = Volume()
    """"""
    network_policy: NetworkPolicy = NetworkPolicy()
    """"""
    service_account: ServiceAccount = ServiceAccount()
    """"""


class Server(Base, frozen=True):
    """Values of the broker's chart."""

    existing_secret: str = ""
    """Secret with a password for each user, each beginning with a letter; empty: the chart makes one, `kinema-nats`."""
    storage: Storage = Storage()
    """"""
    network_policy: Closed = Closed()
    """"""


def _resources(cpu: str, memory: str, limit: str) -> Free:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}


def _image(name: str) -> Image:
    return Image(repository=f"kinema-{name}")


VALUES: Final[Mapping[str, Service]] = {
    "observer": InCluster(image=_image("observer"), resources=_resources("100m", "256Mi", "1Gi")),
    "predictor": Service(image=_image("predictor"), resources=_resources("100m", "256Mi", "1Gi")),
    "optimizer": Optimizer(image=_image("optimizer"), resources=_resources("1", "1Gi", "6Gi")),
    "decider": Service(image=_image("decider"), resources=_resources("50m", "128Mi", "512Mi")),
    "rescheduler": Rescheduler(image=_image("rescheduler"), resources=_resources("100m", "256Mi", "1Gi")),
}
"""Default values of each service's chart."""


class Monitoring(_Values, frozen=True):
    """Values of the chart with alerts and dashboards."""

    alerts: bool = True
    """A PrometheusRule, only where the API server has `monitoring.coreos.com/v1`."""
    dashboards: bool = True
    """A ConfigMap that Grafana's sidecar loads."""
    alert_labels: dict[str, str] = {}
    """By which your Prometheus selects rules."""
    dashboard_labels: dict[str, str] = {}
    """By which Grafana's sidecar selects ConfigMaps."""


class Kinema(_Values, frozen=True):
    """Values for all charts at once; each of them can be set otherwise for one chart."""

    cluster: Name = ""
    """Name of the cluster; required."""
    nats: Broker = Broker()
    """"""
    image: Images = Images()
    """"""
    network_policy: NetworkPolicy = NetworkPolicy()
    """"""
    pod_monitor: PodMonitor = PodMonitor()
    """"""
    shared_settings: Free = {}
    """Settings that the optimizer's `planning` and the `limits` of decider and rescheduler need alike, by name."""


class Global(msgspec.Struct, frozen=True):
    """Values that Helm hands to every chart; others may stand beside Kinema's."""

    kinema: Kinema = Kinema()
    """"""


class Enabled(_Values, frozen=True):
    """Charts to install."""

    nats: bool = False
    """One NATS server, for trying Kinema out."""
    setup: bool = True
    """Streams and placement policy."""
    observer: bool = True
    """The service."""
    predictor: bool = True
    """The service."""
    optimizer: bool = True
    """The service."""
    decider: bool = True
    """The service."""
    rescheduler: bool = True
    """The service."""
    monitoring: bool = True
    """Alerts and dashboards."""
    all_in_one: bool = False
    """Services and broker in one pod, in place of all above but the alerts; the file `all-in-one.yaml` sets them so."""


class Umbrella(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values of the umbrella chart."""

    global_: Global = msgspec.field(name="global", default_factory=Global)
    """"""
    enabled: Enabled = Enabled()
    """"""


SETUP: Final = Setup(image=_image("admin"), resources=_resources("50m", "128Mi", "256Mi"))
SERVER: Final = Server(
    image=Image(registry="docker.io/library", repository="nats", tag=""), resources=_resources("200m", "256Mi", "1Gi")
)
ALL_IN_ONE: Final = AllInOne(image=_image("cli"), resources=_resources("1", "1Gi", "6Gi"))
MONITORING: Final = Monitoring(dashboard_labels={"grafana_dashboard": "1"})
UMBRELLA: Final = Umbrella()
SHARED: Final = Kinema(
    nats=Broker(
        url="nats://kinema-nats:4222",
        existing_secret="kinema-nats",  # noqa: S106 - a name
        auth="password",
        tls=Tls(secret="", client_certificate=False, server_name=""),
    ),
    image=Images(registry="ghcr.io/kinema", tag="", pull_policy="IfNotPresent", pull_secrets=()),
    network_policy=NetworkPolicy(enabled=True, api_server_ports=(443, 6443), extra_egress=()),
    pod_monitor=PodMonitor(enabled=True, interval="30s", labels={}),
)
"""Defaults of the values that charts share. They stand in the library: a chart's own values file would hide the values
of `global.kinema`, because Helm does not show who set a value."""


def schema(kind: type[msgspec.Struct], **properties: Free) -> Free:
    """Return the schema of a chart's values: closed, in the dialect that Helm 3 and 4 share."""
    found = _schema_of(kind)
    own = {"type": "object", "description": "Helm's own; leave it empty."}
    found["properties"] |= {"kinema-library": own, **properties}
    if kind is not Umbrella:
        of_all = _schema_of(Global)
        found["definitions"] |= of_all.pop("definitions")
        found["properties"]["global"] = of_all
    planning = _schema_of(PlanningSettings)
    shared = {name: planning["properties"][name] for name in settings_alike()["optimizer"]["planning"]}
    found["definitions"] |= {
        name: part
        for name, part in planning["definitions"].items()
        if f'"{_REFERENCE.format(name=name)}"' in json.dumps(shared)
    }
    found["definitions"]["Kinema"]["properties"]["sharedSettings"] |= {
        "properties": shared,
        "additionalProperties": False,
    }
    return {"$schema": _DIALECT, **found}


def service_schema(service: str) -> Free:
    """Return the schema of a service's values, with the settings of its struct less what the chart sets."""
    settings = _schema_of(import_module(f"kinema_{service}.settings").Settings)
    definitions = settings.pop("definitions")
    runtime = definitions.pop("RuntimeSettings")
    for name in ("runtime", *_HIDDEN):
        settings["properties"].pop(name, None)
    runtime["properties"] = {name: value for name, value in runtime["properties"].items() if name not in _SET}
    found = schema(type(VALUES[service]), settings=settings, runtime=runtime)
    assert all(definitions[name] == found["definitions"][name] for name in definitions.keys() & found["definitions"])
    found["definitions"] |= definitions
    return found


def settings_alike() -> dict[str, dict[str, Free]]:
    """Return the settings that services need alike, by service and place in its settings, with their defaults."""
    planning = msgspec.to_builtins(PlanningSettings())
    limits = {one: msgspec.to_builtins(import_module(f"kinema_{one}.settings").Limits()) for one in JUDGES}
    alike = {one: needed_alike(planning, its) for one, its in limits.items()}
    return {
        "optimizer": {"planning": {name: planning[name] for name in sorted({*chain.from_iterable(alike.values())})}},
        **{one: {"limits": {name: limits[one][name] for name in names}} for one, names in alike.items()},
    }


def _schema_of(kind: type[msgspec.Struct]) -> Free:
    """Return a struct's schema with its definitions."""
    (top,), parts = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    for inner in _structs(kind):
        _describe(parts[inner.__name__], inner)
    return {**parts.pop(top["$ref"].rpartition("/")[2]), "definitions": dict(sorted(parts.items()))}


def _describe(part: Free, kind: type[msgspec.Struct]) -> None:
    said = fields_of(kind)
    by_wire = {field.encode_name: said.get(field.name, "") for field in msgspec.structs.fields(kind)}
    for name, value in part["properties"].items():
        value.pop("default", None)
        _split_kinds(value)
        _join_null(value)
        if by_wire.get(name) and "$ref" not in value:
            value["description"] = by_wire[name]
    if kept := [name for name in part.pop("required", ()) if name not in _FILLED]:
        part["required"] = kept
    part["description"] = " ".join((kind.__doc__ or "").split())


def _split_kinds(value: Free) -> None:
    """Write a tagged union by its tag: Helm's error for `anyOf` names what each of the others lacks."""
    if not (by := value.pop("discriminator", None)):
        return
    tag, kinds = by["propertyName"], by["mapping"]
    del value["anyOf"]
    value["properties"] = {tag: {"enum": list(kinds)}}
    value["allOf"] = [
        {"if": {"properties": {tag: {"const": kind}}, "required": [tag]}, "then": {"$ref": reference}}
        for kind, reference in kinds.items()
    ]


def _join_null(value: Free) -> None:
    """Write a value that may be null by its two types, as Helm names types in an error and no `anyOf`."""
    one, *others = value.get("anyOf", ({},))
    if "type" in one and others == [{"type": "null"}]:
        del value["anyOf"]
        value.update({**one, "type": [one["type"], "null"]})


def _structs(kind: object) -> Iterator[type[msgspec.Struct]]:
    """Return a struct and every struct in its fields, each once."""
    seen: dict[type[msgspec.Struct], None] = {}
    waiting = [kind]
    while waiting:
        one = waiting.pop()
        waiting += get_args(one)
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one not in seen:
            seen[one] = None
            waiting += [field.type for field in msgspec.structs.fields(one)]
    yield from seen


def rights() -> Mapping[str, Any]:
    """Return the rights of each service that uses the Kubernetes API, as the charts read them."""
    return {
        "observer": _rules(RULES),
        "setup": _rules(steering_policy.RULES),
        "rescheduler": {
            "every": _rules(rescheduler.RULES),
            "of_provider": {kind: _rules(of) for kind, of in rescheduler.OF_PROVIDER.items()},
        },
    }


def _rules(of: Sequence[Rule]) -> list[Free]:
    return [{"namespace": one.namespace, "rule": as_written(one)} for one in of]


def default_values(values: msgspec.Struct) -> str:
    """Return a values file: every default below its meaning, shared ones as comments."""
    return "# Written by tools/charts.py.\n" + "\n".join(_default_lines(values, SHARED)) + "\n"


def _default_lines(values: msgspec.Struct, shared: object, *, commented: bool = False) -> Iterator[str]:
    for name, value, default, meaning in _fields(values, shared):
        if isinstance(value, msgspec.Struct):
            hidden = _is_unset(value)
            inside = _default_lines(value, default, commented=commented or hidden)
            lines = [f"{name}:", *(f"  {line}" for line in inside)]
        else:
            hidden = value is msgspec.UNSET
            lines = yaml.safe_dump({name: msgspec.to_builtins(default if hidden else value)}, **_PLAIN).splitlines()
        yield f"# {meaning}"
        yield from ((f"# {line}" for line in lines) if hidden and not commented else lines)


def _is_unset(value: object) -> bool:
    """Return whether a value, or everything in it, is shared."""
    if isinstance(value, msgspec.Struct):
        return all(_is_unset(getattr(value, name)) for name in value.__struct_fields__)
    return value is msgspec.UNSET


def _fields(values: msgspec.Struct, shared: object) -> Iterator[tuple[str, object, object, str]]:
    """Return each value's name in a file, itself, its default among the shared ones, and its meaning."""
    said = fields_of(type(values))
    for field in msgspec.structs.fields(type(values)):
        value = getattr(values, field.name)
        meaning = said.get(field.name) or " ".join((type(value).__doc__ or "").split())
        yield field.encode_name, value, getattr(shared, field.name, shared), meaning


def readme(chart: str, values: msgspec.Struct, about: str = "") -> str:
    """Return the README of a chart."""
    described = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text(encoding="utf-8"))["description"]
    lines = [f"# {chart}", "", "<!-- Written by tools/charts.py. -->", "", f"{described}.", ""]
    lines += [about, ""] if about else []
    lines += ["| value | default | meaning |", "|---|---|---|"]
    rows = list(_rows(values, SHARED, ""))
    noted = ["", _NOTED] if any("` *" in row for row in rows) and values is not UMBRELLA else []
    return "\n".join([*lines, *rows, *noted]) + "\n"


def _rows(values: msgspec.Struct, shared: object, prefix: str) -> Iterator[str]:
    for name, value, default, meaning in _fields(values, shared):
        if isinstance(value, msgspec.Struct):
            yield from _rows(value, default, f"{prefix}{name}.")
        else:
            known = value is not msgspec.UNSET
            text = json.dumps(msgspec.to_builtins(value if known else default))
            yield f"| `{prefix}{name}` | `{text}`{'' if known or 'global' in prefix else ' *'} | {meaning} |"


def _about(service: str) -> str:
    return (
        f"`settings` are those of the [{service}]({_DOCS}settings.md#{service}), `runtime` those of the "
        f"[runtime]({_DOCS}settings.md#runtime)."
    )


def files() -> Iterator[tuple[Path, str]]:
    """Return every file that the code decides, with its content."""
    others: tuple[tuple[str, msgspec.Struct, str], ...] = (
        ("all-in-one", ALL_IN_ONE, "`kinema up` with its own broker, on the volume that the chart `kinema-nats` uses."),
        ("setup", SETUP, "A Job runs `kinema setup --update`, a hook installs the placement policy."),
        ("monitoring", MONITORING, f"[Alerts]({_DOCS}alerts.md), and dashboards of money, work and health."),
        ("nats", SERVER, f"In production, use the [official chart]({_DOCS}broker.md)."),
    )
    for service in SERVICES:
        yield from _of_chart(f"kinema-{service}", VALUES[service], service_schema(service), _about(service))
    for name, values, about in others:
        yield from _of_chart(f"kinema-{name}", values, schema(type(values)), about)
    charts = {name: {"type": "object"} for name in Enabled.__struct_encode_fields__}
    about = (
        "Values of one chart stand below its name, as in `decider.settings`, and go before those of `global.kinema`."
    )
    yield from _of_chart("kinema", UMBRELLA, schema(Umbrella, **charts), about)
    for service, rules in rights().items():
        yield CHARTS / f"kinema-{service}" / "files" / "rights.json", _json(rules)
    for chart in ("kinema-rescheduler", "kinema-all-in-one"):
        yield CHARTS / chart / "files" / "guard.json", _json(guard(ACCOUNT))
    every = [*rights()["observer"], *rights()["setup"], *rights()["rescheduler"]["every"]]
    yield CHARTS / "kinema-all-in-one" / "files" / "rights.json", _json({**rights()["rescheduler"], "every": every})
    yield (
        CHARTS / "kinema-library" / "templates" / "_shared.tpl",
        _DEFINED.format(json.dumps(msgspec.to_builtins(SHARED)), json.dumps(settings_alike())),
    )
    yield CHARTS / "kinema-nats" / "files" / "authorization.conf", authorization_text([CLUSTER]) + "\n"
    yield CHARTS / "kinema-nats" / "files" / "users.json", _json(USERS)


def _of_chart(chart: str, values: msgspec.Struct, its_schema: Free, about: str) -> Iterator[tuple[Path, str]]:
    yield CHARTS / chart / "values.yaml", default_values(values)
    yield CHARTS / chart / "values.schema.json", _json(its_schema)
    yield CHARTS / chart / "README.md", readme(chart, values, about)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with `--check` say whether they are up to date."""
    for path, _ in (found := list(files())):
        path.parent.mkdir(parents=True, exist_ok=True)
    return max(write_or_check(path, text, arguments, "charts.py") for path, text in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
