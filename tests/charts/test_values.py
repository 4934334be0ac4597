"""Every value of every chart, from the schemas: each has an effect, and a real API server takes each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.charts.helm import CHARTS, INSTALLABLE, Helm, Values, accepted, needed
from tests.controlplane.build import VERSIONS, built
from tests.controlplane.plane import ControlPlane

pytestmark = pytest.mark.cluster

ALONE: Final = tuple(name for name in INSTALLABLE if name != "kinema")
"""Charts that are installed one by one; the umbrella adds no objects of its own."""
_OF_OTHERS: Final = {"settings", "runtime", "kinema-library", "global"}
"""Settings are checked by the services themselves; global values are the same as the charts' own."""
_MONITORED: Final = ("--api-versions", "monitoring.coreos.com/v1")
_LABELS: Final = {"flipped.example/label": "flipped-label"}
_WRITTEN: Final[Values] = {
    "image.registry": "flipped-registry.example/path",
    "nats.url": "nats://flipped-1:4333,nats://flipped-2:4333,flipped-3",
    "resources": {"requests": {"cpu": "11m", "flipped.example/chip": "1"}, "limits": {"flipped.example/chip": "1"}},
    "workers.resources": {"requests": {"cpu": "12m"}, "limits": {"memory": "3Gi"}},
    "nodeSelector": _LABELS,
    "tolerations": [{"key": "flipped-taint", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "flipped", "labelSelector": {"matchLabels": _LABELS}}
            ]
        }
    },
    "priorityClassName": "system-cluster-critical",
    "env": [{"name": "SSL_CERT_FILE", "value": "/flipped/ca.crt"}],
    "podLabels": _LABELS,
    "podAnnotations": _LABELS,
    "serviceAccount.annotations": {"eks.amazonaws.com/role-arn": "flipped-arn"},
    "podMonitor.labels": _LABELS,
    "podMonitor.interval": "11s",
    "alertLabels": _LABELS,
    "dashboardLabels": _LABELS,
    "extraVolumes": [{"name": "flipped-volume", "secret": {"secretName": "flipped-ca"}}],
    "extraVolumeMounts": [{"name": "flipped-volume", "mountPath": "/flipped"}],
    "networkPolicy.apiServerPorts": [16443],
    "networkPolicy.extraEgress": [{"ports": [{"port": 623, "protocol": "UDP"}]}],
    "catalog": '{"machine_type": "flipped"}',  # any provider's chart takes it
    "storage.maxFileStore": "5G",
    "storage.size": "21Gi",
    "streams.logSize": "4Gi",
    "streams.stateSize": "3Gi",
    "streams.usageSize": "7Gi",
}
"""Values other than the defaults where any text will not do."""


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(built(VERSIONS[0])["helm"], tmp_path_factory.mktemp("helm"))


def properties(chart: str) -> dict[str, Any]:
    """Return the schema of each value of a chart, by path."""
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())

    def of(parts: Values, prefix: str = "") -> Iterator[tuple[str, Any]]:
        for name, part in parts.items():
            if "$ref" in part:
                inner = schema["definitions"][part["$ref"].rpartition("/")[2]]
                yield from of(inner["properties"], f"{prefix}{name}.")
            else:
                yield prefix + name, part

    return dict(of({name: part for name, part in schema["properties"].items() if name not in _OF_OTHERS}))


def samples(path: str, part: Any) -> list[Any]:
    """Return what a value is set to, one after the other."""
    if path in _WRITTEN:
        return [_WRITTEN[path]]
    if path == "image.digest":
        return [f"sha256:{'0' * 64}", "", ""]  # without one, the tag shows
    if "enum" in part:
        return list(part["enum"])
    text = f"flipped-{path.replace('.', '-').lower()}"
    others: dict[str, list[Any]] = {"boolean": [True, True, True, False], "array": [[text]]}
    return [part["maximum"], part["minimum"]] if part["type"] == "integer" else others.get(part["type"], [text])


def merged(values: Values, path: str, value: object) -> Values:
    """Return values with one more."""
    first, _, rest = path.partition(".")
    return {**values, first: merged(values.get(first, {}), rest, value) if rest else value}


def flipped(chart: str) -> list[Values]:
    """Return documents of values that hold every sample of every value between them; the first has each first one."""
    found = {path: samples(path, part) for path, part in properties(chart).items()}
    count = max(map(len, found.values()))
    return [
        reduce(lambda done, path: merged(done, path, found[path][min(at, len(found[path]) - 1)]), found, needed(chart))
        for at in range(count)
    ]


def leaves(value: object) -> Iterator[str]:
    """Return the texts and numbers in a value."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield str(value)


@pytest.mark.parametrize("chart", ALONE)
def test_every_value_has_an_effect(helm: Helm, chart: str) -> None:
    """A value that no template reads would be accepted without a word and do nothing."""
    documents = flipped(chart)
    texts = [yaml.safe_dump(helm.rendered(chart, values, *_MONITORED)) for values in documents]
    for path, part in properties(chart).items():
        if part.get("type") == "boolean":
            other = helm.rendered(chart, merged(documents[0], path, False), *_MONITORED)
            assert yaml.safe_dump(other) != texts[0], path
        else:
            shown = [leaf.partition("//")[2] or leaf for value in samples(path, part) for leaf in leaves(value)]
            assert [one for one in shown if not any(one in text for text in texts)] == [], path


@pytest.mark.parametrize("chart", ALONE)
def test_a_value_of_another_type_is_refused_with_its_path(helm: Helm, chart: str) -> None:
    """The error names every place at once."""
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
    parts = {name: part for name, part in schema["properties"].items() if name not in {"kinema-library", "global"}}
    wrong = {name: 1 if part.get("type") == "string" else "one" for name, part in parts.items()}
    done = helm.run("template", "kinema", str(CHARTS / chart), values=wrong)
    assert done.returncode != 0
    assert [name for name in wrong if f"at '/{name}'" not in done.stderr] == []


def test_the_api_server_takes_every_value(helm: Helm, control_plane: ControlPlane, tmp_path: Path) -> None:
    """Objects of every sample pass validation and admission; those of Prometheus' operator are unknown here."""
    objects = [one for chart in ALONE for values in flipped(chart) for one in helm.rendered(chart, values)]
    accepted(control_plane, objects, tmp_path)
