"""What pods of a workload share is worked out once: what is each pod's own stays its own."""

from __future__ import annotations

from typing import Any

from tests.observer.kube_json import container, pod, raw

from kinema_core.events import Pod, Quarantined
from kinema_observer.logic.kubernetes import decode_object


def read(**parts: Any) -> Pod:
    """The pod built with these parts, which must be readable."""
    found = decode_object("Pod", raw(pod(**parts)))
    assert isinstance(found, Pod), found
    return found


def test_node_and_claims_are_the_pods_own() -> None:
    """And so are volumes that bind it to a place, and fields of a later Kubernetes."""
    claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-1"}}]
    one, other = read(name="web-0"), read(name="web-1", node="n2", volumes=claim)
    assert (one.node, one.rules.claims) == ("n1", ())
    assert (other.node, other.rules.claims) == ("n2", ("data-1",))
    assert read(volumes=[{"name": "disk", "rbd": {"image": "a"}}]).rules.unmodeled == ("spec.volumes.rbd",)
    assert read(rackPolicy="Same").rules.unmodeled == ("spec.rackPolicy",)
    assert read().rules == one.rules


def test_volumes_names_and_hostnames_keep_nobody_from_sharing() -> None:
    """Each pod has a token volume of a name of its own; each of a stateful set has its hostname."""
    one, other = (read(name=name, hostname=name, volumes=[{"name": f"token-{name}"}]) for name in ("db-0", "db-1"))
    assert one.rules is other.rules
    assert one.requests is other.requests


def test_what_the_kubelet_reports_is_the_pods_own() -> None:
    """A pod that has been resized requests more than the others of its workload."""
    grown = {"name": "main", "allocatedResources": {"cpu": "400m"}}
    parts = {"containers": [container(cpu="100m")]}
    assert read(**parts).requests["cpu"] == 100
    assert read(status={"containerStatuses": [grown]}, **parts).requests["cpu"] == 400
    assert read(**parts).requests["cpu"] == 100


def test_an_odd_report_of_the_kubelet_is_named_by_its_place() -> None:
    """Statuses before it that say nothing of resources count."""
    said = [{"name": "main"}, {"name": "side", "allocatedResources": {"cpu": "NaN"}}]
    found = decode_object("Pod", raw(pod(status={"containerStatuses": said})))
    assert isinstance(found, Quarantined)
    assert found.path == "status.containerStatuses[1].allocatedResources.cpu"
