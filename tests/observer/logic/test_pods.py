"""Reading pods: requests of the pod and of each container, rules, state, and what pods of a workload share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from tests.observer.kube_json import container, pod, raw

from kinema_core.events import (
    ContainerRequests,
    HostPort,
    NodeTerm,
    Pod,
    Quarantined,
    Requirement,
    Selector,
    Toleration,
    Workload,
)
from kinema_core.events.frozen import FrozenMap
from kinema_observer.logic.kubernetes import decode_object

MIB = 2**20
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def read(**parts: Any) -> Pod:
    """The pod built with these parts, which must be readable."""
    found = decode_object("Pod", raw(pod(**parts)))
    assert isinstance(found, Pod), found
    return found


def odd(**parts: Any) -> Quarantined:
    """The quarantine of a pod built with these parts."""
    found = decode_object("Pod", raw(pod(**parts)))
    assert isinstance(found, Quarantined), found
    return found


def expression(operator: str) -> dict[str, Any]:
    """A selector with one expression."""
    return {"matchExpressions": [{"key": "a", "operator": operator, "values": ["1"]}]}


def by_name(field: str) -> dict[str, Any]:
    """An expression over a field of nodes."""
    return {"key": field, "operator": "NotIn", "values": ["n1"]}


def test_containers_requests_are_summed_and_the_pod_counts_as_one() -> None:
    """Requests of all containers add up; `pods` is always 1."""
    found = read(containers=[container(cpu="250m", memory="64Mi"), container("b", cpu="0.1", memory="1e6")])
    assert found.requests == {"cpu": 350, "memory": 64 * MIB + 1_000_000, "pods": 1}


def test_an_init_container_counts_when_it_needs_more_than_the_rest_together() -> None:
    """Init containers run alone: the larger of them and of the sum counts, by resource."""
    found = read(
        containers=[container(cpu="100m", memory="100Mi")],
        initContainers=[container("migrate", cpu="500m", memory="10Mi")],
    )
    assert found.requests == {"cpu": 500, "memory": 100 * MIB, "pods": 1}


def test_a_sidecar_runs_beside_containers_and_beside_later_init_containers() -> None:
    """Kubernetes' rule for restartable init containers: summed with what runs with them, in their order."""
    sidecar = container("proxy", cpu="200m", memory=None, restartPolicy="Always")
    found = read(
        containers=[container(cpu="100m", memory=None)],
        initContainers=[
            container("first", cpu="350m", memory=None),
            sidecar,
            container("late", cpu="300m", memory=None),
        ],
    )
    assert found.requests["cpu"] == 500  # late beside the sidecar: 300 + 200; containers with it: 300; first alone: 350


def test_overhead_and_pod_level_resources_count() -> None:
    """Pod-level requests replace the containers' sum for what they name; overhead comes on top."""
    found = read(
        containers=[container(cpu="100m", memory="64Mi")],
        resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        overhead={"cpu": "50m", "memory": "16Mi"},
    )
    assert found.requests == {"cpu": 1050, "memory": 80 * MIB, "pods": 1}


def test_a_limit_without_a_request_is_its_request() -> None:
    """The API fills in requests from limits; templates show them only as limits."""
    found = read(containers=[{"name": "main", "resources": {"limits": {"cpu": "300m", "nvidia.com/gpu": 1}}}])
    assert found.requests == {"cpu": 300, "nvidia.com/gpu": 1, "pods": 1}


def test_while_a_container_is_resized_the_larger_requests_count() -> None:
    """The scheduler counts the larger of wanted, allocated and actual requests."""
    status = {"name": "main", "allocatedResources": {"cpu": "400m"}, "resources": {"requests": {"cpu": "300m"}}}
    found = read(containers=[container(cpu="100m", memory=None)], status={"containerStatuses": [status]})
    assert found.requests["cpu"] == 400


@pytest.mark.parametrize(
    ("policy", "reported", "resizable"),
    [
        (None, True, ("cpu", "memory")),
        ([{"resourceName": "memory", "restartPolicy": "RestartContainer"}], True, ("cpu",)),
        ([{"resourceName": "cpu", "restartPolicy": "NotRequired"}], True, ("cpu", "memory")),
        (None, False, ()),
    ],
)
def test_a_kubelet_that_reports_resources_resizes_in_place(
    policy: object, reported: bool, resizable: tuple[str, ...]
) -> None:
    """Without a restart where the policy of every container allows it; a kubelet that reports none does not at all."""
    item = container("main", cpu="1", memory=None)
    found = read(
        containers=[{**item, "resizePolicy": policy}] if policy else [item],
        status={
            "phase": "Running",
            "containerStatuses": [{"name": "main", **({"resources": {"requests": {"cpu": "1"}}} if reported else {})}],
        },
    )
    assert isinstance(found, Pod)
    assert found.resizable == resizable


@pytest.mark.parametrize("quantity", ["NaN", "1_000", "-1", "12e6Mi", "\u0661", "1e30", ""])
def test_a_quantity_that_is_none_quarantines_the_pod_and_freezes_its_node(quantity: str) -> None:
    """What other clients let pass is refused, with the path in the object and the node it freezes."""
    found = odd(containers=[container(), container("b", cpu=quantity)])
    assert (found.object, found.node) == ("Pod shop/web-0", "n1")
    assert found.path == "spec.containers[1].resources.requests.cpu"
    assert "quantity" in found.reason


def test_null_where_a_list_or_a_number_belongs_says_nothing() -> None:
    """The API may send null for anything optional; the pod stays readable."""
    found = read(
        metadata={"labels": None, "annotations": None, "ownerReferences": None},
        initContainers=None,
        tolerations=None,
        affinity=None,
        topologySpreadConstraints=None,
        volumes=None,
        nodeSelector=None,
        priority=None,
        schedulingGates=None,
        resourceClaims=None,
        overhead=None,
        status={"conditions": None, "containerStatuses": None, "startTime": None},
    )
    assert found.owner is None
    assert not found.ready
    assert found.rules.unmodeled == ()


def test_equal_rules_and_labels_are_one_value() -> None:
    """Pods of a workload share labels, requests and rules, so that 150,000 of them fit into memory."""
    parts: dict[str, Any] = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]}
    one, other = read(name="web-0", **parts), read(name="web-1", node="n2", hostname="web-1", **parts)
    assert one.rules is other.rules
    assert one.labels is other.labels
    assert one.requests is other.requests


def test_node_affinity_keeps_alternatives_and_drops_terms_that_match_nothing() -> None:
    """Terms are alternatives; one without any expression matches no node and is left out."""
    zone = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    name = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = [{"matchExpressions": [zone]}, {}, {"matchFields": [name]}]
    weighted = {"weight": 7, "preference": {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["3"]}]}}
    found = read(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: [weighted]}}).rules
    assert found.node_terms == (
        NodeTerm(expressions=(Requirement(key="zone", operator="In", values=("a", "b")),)),
        NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=("n1",)),)),
    )
    assert [(item.weight, item.term.expressions[0].operator) for item in found.preferred_nodes] == [(7, "Gt")]
    nothing = read(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}).rules
    assert nothing.node_terms == ()


def test_where_an_earlier_plan_led_a_pod_is_no_wish_of_its_owner() -> None:
    """Steering and rolling updates leave a preference in the pod; a label of ours in it tells it from the owner's."""
    away = {"key": "kinema.io/disrupted", "operator": "DoesNotExist"}
    led = {
        "weight": 100,
        "preference": {"matchExpressions": [{"key": "host", "operator": "In", "values": ["n1"]}, away]},
    }
    own = {"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
    found = read(affinity={"nodeAffinity": {PREFERRED: [led, own]}}).rules
    assert [item.weight for item in found.preferred_nodes] == [7]


def test_pod_affinity_keeps_required_and_preferred_terms_apart() -> None:
    """Weight 0 means required; a missing selector selects nothing, an empty one everything."""
    term = {
        "topologyKey": "zone",
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "matchLabelKeys": ["pod-template-hash"],
    }
    wish = {"weight": 50, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
    weightless = {**wish, "weight": 0}
    found = read(affinity={"podAntiAffinity": {REQUIRED: [term], PREFERRED: [wish, weightless]}}).rules
    required, preferred, least = found.anti_affinity
    assert (required.weight, required.selector, required.match_label_keys) == (0, Selector(), ("pod-template-hash",))
    assert required.namespace_selector == Selector(labels=FrozenMap({"team": "a"}))
    assert (preferred.weight, preferred.selector) == (50, None)
    assert least.weight == 1, "a wish without weight must not become a rule"


def test_spread_constraints_take_kubernetes_defaults() -> None:
    """One domain at least, node affinity honored, taints ignored, unless the pod says otherwise."""
    plain = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    given = {**plain, "minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    first, second = read(topologySpreadConstraints=[plain, given]).rules.spread
    assert (first.min_domains, first.node_affinity_policy, first.node_taints_policy) == (1, "Honor", "Ignore")
    assert (second.min_domains, second.node_affinity_policy, second.node_taints_policy) == (3, "Ignore", "Honor")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [expression("Like")]}}}},
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "z", "labelSelector": expression("Gt")}]}}},
            f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector.matchExpressions[0].operator",
        ),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [by_name("rack")]}]}}}},
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchFields[0].key",
        ),
        ({"tolerations": [{"key": "a"}, {"key": "b", "operator": "Maybe"}]}, "spec.tolerations[1].operator"),
        ({"tolerations": [{"key": "a", "effect": "NoAdmit"}]}, "spec.tolerations[0].effect"),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 0}]},
            "spec.topologySpreadConstraints[0].maxSkew",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "Wait"}]},
            "spec.topologySpreadConstraints[0].whenUnsatisfiable",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1, "nodeTaintsPolicy": "Some"}]},
            "spec.topologySpreadConstraints[0].nodeTaintsPolicy",
        ),
        ({"initContainers": [container(restartPolicy="Twice")]}, "spec.initContainers[0].restartPolicy"),
        ({"affinity": {"podAffinity": {REQUIRED: "all"}}}, f"spec.affinity.podAffinity.{REQUIRED}"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector[...]"),
        ({"containers": "none"}, "spec.containers"),
        ({"containers": None}, "spec.containers"),
        ({"containers": []}, "spec.containers"),
        ({"priority": "high"}, "spec.priority"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": []}]}, "spec.volumes[0].persistentVolumeClaim"),
    ],
)
def test_a_rule_that_cannot_be_understood_quarantines_the_pod(spec: dict[str, Any], path: str) -> None:
    """An unknown operator or a wrong shape may forbid anything: the pod is named, with the path to the fault."""
    assert odd(**spec).path == path


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "spec.schedulingGroup"),
        ({"workloadRef": {"name": "w"}}, "spec.workloadRef"),
        ({"os": {"name": "windows"}}, "spec.os"),
        ({"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "d"}}]}, "spec.volumes.gcePersistentDisk"),
        ({"rackPolicy": "Same"}, "spec.rackPolicy"),
        ({"volumes": [{"name": "v", "cinder": {"volumeID": "7"}}]}, "spec.volumes.cinder"),
        ({"volumes": [{"name": "t", "emptyDir": {}}, {"name": "v", "rackDisk": {}}]}, "spec.volumes.rackDisk"),
        ({"affinity": {"cellAffinity": {"cell": "7"}}}, "spec.affinity.cellAffinity"),
        ({"affinity": {"nodeAffinity": {"requiredAlways": [{"a": 1}]}}}, "spec.affinity.nodeAffinity.requiredAlways"),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "z", "mismatchLabelKeys": ["a"]}]}}},
            f"spec.affinity.podAffinity.{REQUIRED}.mismatchLabelKeys",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1, "maxPerDomain": 4}]},
            "spec.topologySpreadConstraints.maxPerDomain",
        ),
    ],
)
def test_rules_that_are_not_modeled_are_named_and_never_ignored(spec: dict[str, Any], path: str) -> None:
    """Such a pod is readable but does not move: the path of what we do not model is part of its rules."""
    assert read(**spec).rules.unmodeled == (path,)


def test_unknown_fields_that_say_nothing_restrict_nothing() -> None:
    """A field of a later Kubernetes that is empty is no rule; Linux is what we model."""
    volumes = [{"name": "v", "rackDisk": None}, {"name": "w", "nfs": {"server": "s", "path": "/"}}]
    affinity: dict[str, Any] = {"cellAffinity": {}, "podAffinity": None}
    later: dict[str, Any] = {"rackPolicy": None, "sameRack": False, "rackNames": []}
    found = read(affinity=affinity, os={"name": "linux"}, schedulingGroup={}, volumes=volumes, **later)
    assert found.rules.unmodeled == ()


def test_host_ports_of_containers_and_sidecars_are_taken_on_the_node() -> None:
    """Init containers that end take no port; on the host's network every container port is a host port."""
    ports = [
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
    ]
    sidecar = container("side", ports=[{"containerPort": 1, "hostPort": 9000}], restartPolicy="Always")
    init = container("init", ports=[{"containerPort": 1, "hostPort": 9001}])
    found = read(containers=[container(ports=ports)], initContainers=[init, sidecar]).rules.host_ports
    assert found == (HostPort(port=8080), HostPort(port=53, protocol="UDP", host_ip="10.0.0.1"), HostPort(port=9000))
    on_host = read(containers=[container(ports=[{"containerPort": 6443}])], hostNetwork=True).rules.host_ports
    assert on_host == (HostPort(port=6443),)


def test_volumes_that_bind_a_pod_to_a_place_are_kept() -> None:
    """Claims, claims of ephemeral volumes (named after the pod) and host paths; other volumes do not matter."""
    volumes = [
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "socket", "hostPath": {"path": "/run/x.sock"}},
    ]
    found = read(volumes=volumes)
    assert found.rules.claims == ("data-web-0", "web-0-scratch")
    assert found.host_path
    assert not read(volumes=volumes[:1]).host_path


@pytest.mark.parametrize(
    ("volume", "local"),
    [
        ({"emptyDir": {}}, True),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, True),
        ({"emptyDir": {"medium": "Memory"}}, False),
        ({"hostPath": {"path": "/var"}}, True),
        ({"configMap": {"name": "c"}}, False),
        ({"persistentVolumeClaim": {"claimName": "c"}}, False),
    ],
)
def test_files_on_the_node_are_known(volume: dict[str, Any], local: bool) -> None:
    """An emptyDir on disk and a host path are; what is in memory or comes over the network is not."""
    assert (
        read(volumes=[{"name": "config", "configMap": {"name": "c"}}, {"name": "v", **volume}]).local_storage is local
    )


def test_tolerations_gates_and_scheduler_are_rules() -> None:
    """An empty key with Exists tolerates everything; Equal is the default operator."""
    found = read(
        tolerations=[
            {"operator": "Exists"},
            {"key": "a", "value": "b", "effect": "NoSchedule", "tolerationSeconds": 3},
        ],
        schedulingGates=[{"name": "hold"}],
        schedulerName="mine",
    ).rules
    assert found.tolerations == (
        Toleration(operator="Exists"),
        Toleration(key="a", operator="Equal", value="b", effect="NoSchedule"),
    )
    assert (found.gated, found.scheduler) == (True, "mine")


def test_a_pending_pod_is_unschedulable_only_when_the_scheduler_says_so() -> None:
    """A pod that nobody has tried yet, or that a gate holds back, does not count."""

    def pending(**condition: str) -> Pod:
        conditions = [{"type": "PodScheduled", **condition}] if condition else []
        return read(node=None, status={"phase": "Pending", "conditions": conditions})

    assert pending(status="False", reason="Unschedulable").unschedulable
    assert not pending(status="False", reason="SchedulingGated").unschedulable
    assert not pending().unschedulable
    assert pending().node is None


def test_state_of_a_pod() -> None:
    """Ready by its condition, terminating by its deletion time, mirrors by owner or annotation."""
    found = read(
        metadata={"deletionTimestamp": "2026-03-02T12:00:30Z"},
        status={"conditions": [{"type": "Ready", "status": "False"}], "nominatedNodeName": "n9"},
    )
    assert (found.ready, found.terminating, found.nominated) == (False, True, "n9")
    assert found.owner is not None
    assert (found.owner.kind, found.owner.name) == ("ReplicaSet", "web-rs")
    assert read(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": []}).mirror
    node_owner = [{"kind": "Node", "name": "n1", "uid": "u", "controller": True}]
    assert read(metadata={"ownerReferences": node_owner}).mirror
    helper = [{"kind": "Thing", "name": "x", "uid": "u"}]
    assert read(metadata={"ownerReferences": helper}).owner is None, "an owner that does not control is none"


def test_restarts_and_the_last_abnormal_end_are_kept() -> None:
    """Restarts of all containers together; the newest end by failure or by the out-of-memory killer."""

    def status(name: str, count: int, **end: Any) -> dict[str, Any]:
        return {"name": name, "restartCount": count, "lastState": {"terminated": end} if end else {}}

    found = read(
        status={
            "containerStatuses": [
                status("main", 2, exitCode=137, reason="OOMKilled", finishedAt="2026-03-02T09:00:00Z"),
                status("b", 1, exitCode=1, finishedAt="2026-03-02T08:00:00Z"),
                status("c", 4, exitCode=0, reason="Completed", finishedAt="2026-03-02T11:00:00Z"),
            ],
            "initContainerStatuses": [status("side", 1)],
        }
    )
    assert (found.restarts, found.last_restart) == (8, datetime(2026, 3, 2, 9, tzinfo=UTC))


def test_finished_pods_are_no_part_of_the_state() -> None:
    """Succeeded and failed pods take no room, readable or not."""
    for phase in ("Succeeded", "Failed"):
        assert decode_object("Pod", raw(pod(status={"phase": phase}))) is None
        assert decode_object("Pod", raw(pod(status={"phase": phase}, containers=[container(cpu="NaN")]))) is None
        assert decode_object("Pod", raw(pod(status={"phase": phase}, containers="none"))) is None


def test_only_annotations_that_may_forbid_or_steer_a_move_are_kept() -> None:
    """Others are large and change often; a text that a backslash hides is found all the same."""
    kept = {
        "kinema.io/strategy": "evict",
        "karpenter.sh/do-not-disrupt": "1h",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction": "",
        "controller.kubernetes.io/pod-deletion-cost": "-5",
    }
    noise = {"kubectl.kubernetes.io/restartedAt": "x", "cloud.google.com/cluster_autoscaler_unhelpable_since": "y"}
    assert read(metadata={"annotations": {**kept, **noise}}).annotations == kept
    assert read(metadata={"annotations": noise}).annotations == {}
    hidden = raw(pod(metadata={"annotations": {"kinema.io/do-not-move": "true"}})).replace(
        b"kinema.io/", b"kinema.io\\/"
    )
    found = decode_object("Pod", hidden)
    assert isinstance(found, Pod)
    assert found.annotations == {"kinema.io/do-not-move": "true"}


def test_what_changes_without_meaning_makes_no_difference() -> None:
    """Resource version, managed fields, probe times and addresses are not part of the state."""
    first = pod()
    later = pod(metadata={"resourceVersion": "99", "managedFields": []}, status={"podIP": "10.0.0.9", "qosClass": "B"})
    later["status"]["conditions"][0]["lastProbeTime"] = "2026-03-02T12:00:00Z"
    assert decode_object("Pod", raw(first)) == decode_object("Pod", raw(later))


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
