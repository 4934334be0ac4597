"""What each container asks for, in pods and in templates, so that the two can be compared."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.observer.kube_json import container, pod, raw

from kinema_core.events import ContainerRequests, Pod, Workload
from kinema_core.events.frozen import FrozenMap
from kinema_observer.logic.kubernetes import decode_object

MIB = 2**20


def read(**parts: Any) -> Pod:
    """A pod that can be read."""
    found = decode_object("Pod", raw(pod(**parts)))
    assert isinstance(found, Pod)
    return found


def template(**spec: Any) -> Workload:
    """A Deployment of this template."""
    made = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": spec}},
    }
    found = decode_object("Deployment", raw(made))
    assert isinstance(found, Workload)
    return found


def asks(name: str, **amounts: int) -> ContainerRequests:
    """What one container asks for."""
    return ContainerRequests(name=name, requests=FrozenMap(amounts))


def test_a_single_container_that_asks_for_all_is_not_told_twice() -> None:
    """Most pods: their requests say it, and a hundred thousand of them are in one snapshot."""
    assert read(containers=[container(cpu="250m", memory=None)]).containers == ()
    assert read(containers=[{"name": "main", "image": "x"}]).containers == ()


def test_containers_are_told_apart_where_there_are_several() -> None:
    """Sidecars and init containers too, by name; those that ask for nothing are left out."""
    found = read(
        containers=[container("a", cpu="1", memory=None), container("b", cpu=None, memory=None)],
        initContainers=[container("log", cpu="0.1", memory=None, restartPolicy="Always")],
    )
    assert found.containers == (asks("a", cpu=1000), replace(asks("log", cpu=100), init=True))


def test_what_a_container_asks_for_is_its_spec_not_what_the_kubelet_has_set() -> None:
    """While it is resized both count for its node; a copy is made from neither, but compared with the spec."""
    status = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "900m"}}}]}
    found = read(containers=[container(cpu="200m", memory=None)], status=status)
    assert found.requests == {"cpu": 900, "pods": 1}
    assert found.containers == (asks("main", cpu=200),)
    overhead = read(containers=[container(cpu="200m", memory=None)], overhead={"cpu": "50m"})
    assert (overhead.requests["cpu"], overhead.containers) == (250, (asks("main", cpu=200),))


def test_a_template_always_tells_its_containers() -> None:
    """As quantities: 1 is 1000m; a limit without a request is one."""
    limited = {"name": "b", "image": "x", "resources": {"limits": {"memory": "64Mi"}}}
    found = template(containers=[container("a", cpu="1", memory=None), limited])
    assert found.template_containers == (asks("a", cpu=1000), asks("b", memory=64 * MIB))
    assert template(containers=[{"name": "a", "image": "x"}]).template_containers == ()


def test_requests_of_the_pod_as_a_whole_are_told_under_no_name() -> None:
    """Only those that are written: from limits the API makes requests as the pod is created."""
    whole = {"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "1Gi"}}
    found = template(containers=[container("a", cpu="1", memory=None)], resources=whole)
    assert found.template_containers == (asks("", cpu=2000), asks("a", cpu=1000))


def test_pods_that_a_vertical_autoscaler_resized_say_so() -> None:
    """Its annotation is kept: the list need not have the autoscaler."""
    note = {"vpaUpdates": "Pod resources updated by web: container 0: cpu request", "vpaObservedContainers": "main"}
    assert read(metadata={"annotations": note}).annotations == {"vpaUpdates": note["vpaUpdates"]}


def limited(name: str, request: str | None, limit: str | None) -> dict[str, Any]:
    """A container with a memory request and limit."""
    amounts = {"requests": request, "limits": limit}
    return {"name": name, "resources": {key: {"memory": text} for key, text in amounts.items() if text is not None}}


def test_how_far_requests_may_grow_is_told_of_templates() -> None:
    """All containers grow alike, until the first is at its limit; who asks for nothing or has no limit bounds none."""
    assert template(containers=[limited("a", "100Mi", None)]).template_ceiling == {}
    assert template(containers=[limited("a", None, "100Mi")]).template_ceiling == {"memory": 100 * MIB}
    both = [limited("a", "100Mi", "400Mi"), limited("b", "50Mi", "75Mi"), limited("c", "0", "1Mi")]
    assert template(containers=both).template_ceiling == {"memory": 225 * MIB}
    assert template(containers=[limited("a", "1Mi", None), limited("b", "1Mi", "2Mi")]).template_ceiling == {
        "memory": 4 * MIB
    }
