"""The charts as Helm renders them, and as a real API server takes them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.charts.helm import (
    CHARTS,
    INSTALLABLE,
    NAMED,
    PROVIDED,
    WHOLE,
    Helm,
    Values,
    accepted,
    catalog_of,
    named,
    needed,
    pods,
)
from tests.controlplane.build import VERSIONS, built
from tests.controlplane.plane import ControlPlane
from tools.release import VERSION
from tools.settings_reference import SERVICES

from kinema_cli.admin import steering_policy
from kinema_cli.admin.rbac import rules_by_service
from kinema_cli.agreement import disagreement, needed_alike
from kinema_core.model.vocabulary import DO_NOT_MOVE
from kinema_core.runtime.rights import USERS
from kinema_core.runtime.settings import load
from kinema_decider.logic.limits import Limits
from kinema_kubernetes.rights import as_written
from kinema_optimizer.settings import PlanningSettings
from kinema_rescheduler.kubernetes.rights import OF_PROVIDER
from kinema_rescheduler.plan.limits import Limits as ReschedulerLimits

pytestmark = pytest.mark.cluster

SECURED: Values = {
    "url": "tls://nats.example,tls://other.example:4333",
    "existingSecret": "users",
    "auth": "creds",
    "tls": {"secret": "certificates", "clientCertificate": True, "serverName": "nats"},
}
GKE = {"kind": "gke", "project": "shop", "location": "europe-west3", "cluster": "prod"}
KARPENTER = {"kind": "karpenter", "node_pool": "default"}
CLUSTER_API = {"kind": "cluster-api", "namespace": "fleet", "cluster": "shop"}
ONE_POD: Values = {"global": WHOLE["global"], "allInOne": {"catalog": "machine_type,vcpus\n"}}
IN_ONE_POD = ("--values", str(CHARTS / "kinema" / "all-in-one.yaml"))
"""The umbrella as one pod."""
MATRIX: dict[str, tuple[str, Values]] = {
    "whole": ("kinema", WHOLE),
    "alone": ("kinema", {**WHOLE, "enabled": {"nats": False, "setup": False}}),
    "observer": ("kinema-observer", {**NAMED, "replicas": 2, "nats": {"existingSecret": ""}}),
    "account": (
        "kinema-rescheduler",
        {**PROVIDED, "serviceAccount": {"create": False, "name": "own"}, "rbac": {"create": False}},
    ),
    "static": (
        "kinema-rescheduler",
        {
            **NAMED,
            "settings": {"provider": {"kind": "static"}},
            "catalog": "{}",
            "networkPolicy": {"extraEgress": [{"ports": [{"port": 623, "protocol": "UDP"}]}]},
            "extraVolumes": [{"name": "keys", "secret": {"secretName": "keys"}}],
            "extraVolumeMounts": [{"name": "keys", "mountPath": "/keys"}],
        },
    ),
    "gke": ("kinema-rescheduler", {**NAMED, "settings": {"provider": GKE}}),
    "karpenter": ("kinema-rescheduler", {**NAMED, "settings": {"provider": KARPENTER}}),
    "one-gke": ("kinema-all-in-one", {**NAMED, "provider": "gke", "location": "shop/europe-west3/prod"}),
    "secured": ("kinema-decider", {**NAMED, "nats": SECURED}),
    "secured-setup": ("kinema-setup", {**NAMED, "nats": SECURED, "streams": {"replicas": 3, "logSize": "10Gi"}}),
}
"""Values together that test_values.py tries one by one."""


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(built(VERSIONS[0])["helm"], tmp_path_factory.mktemp("helm"))


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_lint_finds_nothing(helm: Helm, chart: str) -> None:
    """`helm lint --strict` passes with the default values and with the least that an installation needs."""
    for values in ({}, needed(chart)):
        done = helm.run("lint", "--strict", str(CHARTS / chart), values=values)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("chart", "values", "said"),
    [
        ("kinema-decider", {}, "cluster: name the cluster"),
        ("kinema-rescheduler", NAMED, "settings.provider.kind: name the provider of nodes"),
        (
            "kinema-rescheduler",
            {**NAMED, "settings": {"provider": {"kind": "static"}}},
            'catalog: give the file of the provider "static" by --set-file, or set settings.provider.inventory',
        ),
        (
            "kinema-rescheduler",
            {**PROVIDED, "catalog": "prices.csv"},
            'catalog: it is the content of a file, and "prices.csv" looks like a path: give the file by --set-file',
        ),
        (
            "kinema-all-in-one",
            {**NAMED, "catalog": "prices.csv"},
            'catalog: it is the content of a file, and "prices.csv" looks like a path: give the file by --set-file',
        ),
        *(
            (chart, {**values, "catalog": "price list.csv"}, f"catalog: {said}")
            for chart, values, said in (
                ("kinema-rescheduler", PROVIDED, "a CSV of prices has a column machine_type: give the file by"),
                ("kinema-all-in-one", NAMED, "a CSV of prices has a column machine_type: give the file by"),
                ("kinema-all-in-one", {**NAMED, "provider": "static"}, "the provider static takes a JSON object"),
            )
        ),
        (
            "kinema-rescheduler",
            {**PROVIDED, "settings": {"provider": {"kind": "delgate"}}},
            "at '/settings/provider/kind': value must be one of 'sim', 'kwok', 'delegate'",
        ),
        (
            "kinema-rescheduler",
            {**PROVIDED, "settings": {"provider": {"kind": "delegate", "catalogue": "f"}}},
            "at '/settings/provider': additional properties 'catalogue' not allowed",
        ),
        (
            "kinema",
            {
                **WHOLE,
                "enabled": {"allInOne": True, "nats": True, "setup": False, "decider": False, "predictor": False},
                "allInOne": {"provider": "kwok", "catalog": "machine_type,vcpus\n"},
            },
            "set enabled.nats, enabled.observer, enabled.optimizer, enabled.rescheduler to false",
        ),
        *(
            (chart, {**needed(chart), "settings": {part: {name: value}}}, f"at '/settings/{part}/{name}': {said}")
            for chart, part, name, value, said in (
                ("kinema-optimizer", "planning", "time_limit_seconds", 0, "exclusiveMinimum: got 0, want 0"),
                ("kinema-optimizer", "planning", "time_limit_seconds", -5, "exclusiveMinimum: got -5, want 0"),
                ("kinema-optimizer", "planning", "move_price_usd", -1, "minimum: got -1, want 0"),
                ("kinema-decider", "limits", "min_savings_fraction", 3, "maximum: got 3, want 1"),
                ("kinema-decider", "limits", "min_savings_fraction", -1, "minimum: got -1, want 0"),
                ("kinema-observer", "prometheus", "timeout_seconds", 86401, "maximum: got 86,401, want 86,400"),
            )
        ),
        (
            "kinema",
            {**WHOLE, "global": {"kinema": {"cluster": "c1", "sharedSettings": {"min_savings_fraction": 3}}}},
            "at '/global/kinema/sharedSettings/min_savings_fraction': maximum: got 3, want 1",
        ),
        *(
            ("kinema", {**WHOLE, **values, "global": {"kinema": {"cluster": "c1", **shared}}}, said)
            for values, shared, said in (
                ({"setup": {"streams": {"replicas": 3}}}, {}, "setup.streams.replicas is 3, and the broker"),
                ({"nats": {"existingSecret": "own"}}, {}, 'Secret "own", and the services from "kinema-nats"'),
                ({}, {"nats": {"existingSecret": "own"}}, 'Secret "kinema-nats", and the services from "own"'),
                ({}, {"nats": {"tls": {"secret": "x"}}}, "leave out auth and tls, or enabled.nats"),
                ({}, {"nats": {"auth": "seed"}}, "leave out auth and tls, or enabled.nats"),
                ({}, {"nats": {"url": "nats://other:4222"}}, 'global.kinema.nats.url is "nats://other:4222", and'),
                ({}, {"nats": {"url": ""}}, 'global.kinema.nats.url is "", and the broker of enabled.nats'),
                ({"nats": {"cluster": "other"}}, {}, 'nats.cluster is "other" and global.kinema.cluster "c1"'),
                ({"setup": {"streams": {"logSize": "20Gi"}}}, {}, "2Gi, 20Gi and 1Gi do not fit in"),
                ({"nats": {"storage": {"maxFileStore": "5368M"}}}, {}, "do not fit in"),
            )
        ),
        *(
            ("kinema-nats", {**NAMED, "storage": storage}, f"storage: {said}")
            for storage, said in (
                ({"maxFileStore": "10G"}, "maxFileStore 10G is more than the volume's size 8Gi"),
                ({"maxFileStore": "9GB"}, "maxFileStore 9GB is more than the volume's size 8Gi"),
                ({"size": "5G"}, "maxFileStore 6G is more than the volume's size 5G"),
            )
        ),
        (
            "kinema",
            {"global": WHOLE["global"], "enabled": {"allInOne": True}},
            "enabled.setup to false, as charts/kinema/all-in-one.yaml does",
        ),
        (
            "kinema-optimizer",
            {**NAMED, "settings": {"planning": {"windows": [{"headroom": [{"count": 2}]}]}}},
            "at '/settings/planning/windows/0/headroom/0': missing property 'requests'",
        ),
        ("kinema-decider", {**NAMED, "replica": 2}, "additional properties 'replica' not allowed"),
        (
            "kinema-decider",
            {**NAMED, "settings": {"limits": {"aproval": "automatic"}}},
            "at '/settings/limits': additional",
        ),
        (
            "kinema-decider",
            {**NAMED, "settings": {"limits": {"approval": "always"}}},
            "at '/settings/limits/approval': value must be one of 'automatic', 'required'",
        ),
        (
            "kinema-all-in-one",
            {**NAMED, "provider": "gke"},
            "location: give the provider gke as PROJECT/LOCATION/CLUSTER",
        ),
        ("kinema-all-in-one", {**NAMED, "provider": "karpenter"}, "location: give the provider karpenter as NODEPOOL"),
        ("kinema-all-in-one", NAMED, "catalog: give the provider's file"),
        ("kinema-decider", {**NAMED, "runtime": {"health_port": 1}}, "at '/runtime': additional properties"),
        ("kinema-rescheduler", {**PROVIDED, "replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
        ("kinema-observer", {**NAMED, "settings": {"kubeconfig": "f"}}, "at '/settings': additional properties"),
        ("kinema-setup", {**NAMED, "streams": {"replicas": 2}}, "at '/streams/replicas': value must be one of"),
        ("kinema-setup", {**NAMED, "streams": {"logSize": "10G"}}, "at '/streams/logSize': '10G' does not match"),
        ("kinema-decider", {**NAMED, "image": {"digest": "latest"}}, "at '/image/digest': 'latest' does not match"),
        ("kinema-nats", {**NAMED, "storage": {"maxFileStore": "80%"}}, "at '/storage/maxFileStore': '80%' does not"),
        ("kinema-observer", {**NAMED, "podMonitor": {"interval": "30"}}, "at '/podMonitor/interval': '30' does not"),
        (
            "kinema-observer",
            {**NAMED, "networkPolicy": {"apiServerPorts": [0]}},
            "at '/networkPolicy/apiServerPorts/0': minimum: got 0, want 1",
        ),
        ("kinema-nats", {"cluster": "a.b"}, "at '/cluster': 'a.b' does not match pattern"),
        ("kinema-decider", {"cluster": "a.b"}, "at '/cluster': 'a.b' does not match pattern"),
        ("kinema", {**WHOLE, "enabled": {"nats": "yes"}}, "at '/enabled/nats': got string, want boolean"),
        ("kinema", {**WHOLE, "decidr": {}}, "at '': additional properties 'decidr' not allowed"),
        ("kinema", {**WHOLE, "decider": {"setings": {}}}, "additional properties 'setings' not allowed"),
        ("kinema", {**WHOLE, "global": {"kinema": {"clustr": "c1"}}}, "at '/global/kinema': additional properties"),
        (
            "kinema",
            {**WHOLE, "global": {"kinema": {"sharedSettings": {"approval": "automatic"}}}},
            "at '/global/kinema/sharedSettings': additional properties 'approval' not allowed",
        ),
        *(
            (
                "kinema",
                {**WHOLE, "global": {"kinema": {part: {of_one: "a"}}}},
                f"at '/global/kinema/{part}': additional",
            )
            for part, of_one in (
                ("image", "digest"),
                ("image", "repository"),
                ("nats", "user"),
                ("nats", "passwordKey"),
            )
        ),
    ],
)
def test_wrong_values_are_refused_with_their_path(helm: Helm, chart: str, values: Values, said: str) -> None:
    """Schemas are closed: a mistyped or unsafe value stops the installation, and the error names the place."""
    done = helm.run("template", "kinema", str(CHARTS / chart), values=values)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize(
    ("values", "shared"),
    [
        ({"nats": {"existingSecret": "own"}}, {"existingSecret": "own"}),
        ({}, {"url": "nats://kinema-nats.kinema.svc.cluster.local:4222"}),
        ({"nats": {"storage": {"size": "1Ti", "maxFileStore": "5GiB"}}}, {}),
        ({"setup": {"streams": {"enabled": False, "replicas": 3}}}, {}),
    ],
)
def test_values_that_agree_are_taken(helm: Helm, values: Values, shared: Values) -> None:
    """What the checks of values together leave alone."""
    helm.rendered("kinema", {**WHOLE, **values, "global": {"kinema": {"cluster": "c1", "nats": shared}}})


@pytest.mark.parametrize("service", SERVICES)
def test_the_service_takes_the_settings_that_its_chart_writes(helm: Helm, service: str, tmp_path: Path) -> None:
    """Broker, user, password file and probes of the rendered settings are those of the values."""
    objects = helm.rendered(f"kinema-{service}", needed(f"kinema-{service}"))
    written = named(objects, "ConfigMap", f"kinema-{service}")["data"]["settings.json"]
    wanted = {"cluster": "c1", "nats_url": "nats://kinema-nats:4222", "nats_user": service, "health_host": "0.0.0.0"}
    runtime = json.loads(written)["runtime"]
    assert runtime | wanted == runtime
    path = tmp_path / "settings.json"
    path.write_text(written)
    module = __import__(f"kinema_{service}.settings", fromlist=["Settings"])
    assert isinstance(load(module.Settings, path), msgspec.Struct)


def test_a_charts_own_value_goes_before_the_shared_one(helm: Helm) -> None:
    """Of a value set for all charts and for one, the one has its own, also where that is empty or false."""
    shared = {
        "cluster": "c1",
        "nats": {"url": "nats://all:4222", "existingSecret": "all"},
        "image": {"registry": "registry.example", "tag": "1", "pullSecrets": ["all"]},
        "networkPolicy": {"enabled": False},
    }
    own = {
        "nats": {"url": "nats://one:4223", "existingSecret": ""},
        "image": {"registry": "", "tag": "2", "pullSecrets": []},
        "networkPolicy": {"enabled": True},
    }
    given = {**WHOLE, "enabled": {}, "global": {"kinema": shared}, "decider": own}
    objects = helm.rendered("kinema", given)

    def seen(service: str) -> tuple[object, ...]:
        spec = named(objects, "Deployment", f"kinema-{service}")["spec"]["template"]["spec"]
        runtime = json.loads(named(objects, "ConfigMap", f"kinema-{service}")["data"]["settings.json"])["runtime"]
        secrets = [one["secret"]["secretName"] for one in spec["volumes"] if "secret" in one]
        return spec["containers"][0]["image"], spec.get("imagePullSecrets"), runtime["nats_url"], secrets

    of_all = [{"name": "all"}]
    assert seen("predictor") == ("registry.example/kinema-predictor:1", of_all, "nats://all:4222", ["all"])
    assert seen("decider") == ("kinema-decider:2", None, "nats://one:4223", [])
    assert [one["metadata"]["name"] for one in objects if one["kind"] == "NetworkPolicy"] == ["kinema-decider"]
    objects = helm.rendered("kinema-nats", {"global": {"kinema": shared}})
    broker = named(objects, "StatefulSet", "kinema-nats")["spec"]["template"]["spec"]
    assert broker["containers"][0]["image"].startswith("docker.io/library/nats:2.")
    assert broker["imagePullSecrets"] == of_all


def test_a_change_of_the_brokers_configuration_starts_it_again(helm: Helm) -> None:
    """The checksum in the pod template is that of all that the server reads."""
    one, other = (
        named(helm.rendered("kinema-nats", {**NAMED, "storage": value}), "StatefulSet", "kinema-nats")
        for value in ({}, {"maxFileStore": "7G"})
    )
    assert one["spec"]["template"] != other["spec"]["template"]


def test_what_is_rendered_without_a_cluster_is_the_same_each_time(helm: Helm) -> None:
    """A tool that renders and applies again and again would give the broker other passwords each time."""
    one, other = (helm.rendered("kinema", WHOLE) for _ in range(2))
    assert one == other
    assert "Secret" not in {found["kind"] for found in one}
    said = helm.run("template", "kinema", str(CHARTS / "kinema-nats"), values=NAMED).stdout
    assert "# Secret kinema-nats is left out" in said


def test_the_brokers_passwords_come_from_an_existing_secret(helm: Helm) -> None:
    """Broker and services read the same Secret, each service its own key."""
    shared = {"cluster": "c1", "nats": {"existingSecret": "own"}}
    values = {**WHOLE, "global": {"kinema": shared}, "nats": {"existingSecret": "own"}}
    objects = helm.rendered("kinema", values)
    broker = named(objects, "StatefulSet", "kinema-nats")["spec"]["template"]["spec"]["containers"][0]["env"]
    read = {one["valueFrom"]["secretKeyRef"]["key"]: one["valueFrom"]["secretKeyRef"]["name"] for one in broker}
    assert read == dict.fromkeys(USERS, "own")
    secrets = [one["secret"] for _, spec in pods(objects) for one in spec.get("volumes", ()) if "secret" in one]
    assert {one["secretName"] for one in secrets} == {"own"}
    assert {item["key"] for one in secrets for item in one["items"]} == set(USERS) - {"operator"}


def test_a_client_proves_itself_with_the_files_of_its_secrets(helm: Helm) -> None:
    """Service and setup Job mount them, and name them by the runtime's settings and by the command's variables."""
    values = {**NAMED, "nats": SECURED}
    wanted = {
        "nats_creds_file": "/etc/kinema/nats/creds",
        "nats_ca_file": "/etc/kinema/nats-tls/ca.crt",
        "nats_cert_file": "/etc/kinema/nats-tls/tls.crt",
        "nats_key_file": "/etc/kinema/nats-tls/tls.key",
        "nats_server_name": "nats",
    }
    service = helm.rendered("kinema-decider", values)
    runtime = json.loads(named(service, "ConfigMap", "kinema-decider")["data"]["settings.json"])["runtime"]
    assert {name: runtime[name] for name in runtime if name in wanted} == wanted
    assert runtime["nats_url"] == SECURED["url"]
    egress = named(service, "NetworkPolicy", "kinema-decider")["spec"]["egress"]
    assert [port["port"] for port in egress[1]["ports"]] == [4222, 4333]
    (job,) = (
        one for one in helm.rendered("kinema-setup", values) if one["metadata"]["name"].startswith("kinema-setup-")
    )
    for pod, key in ((named(service, "Deployment", "kinema-decider"), "decider"), (job, "admin")):
        spec = pod["spec"]["template"]["spec"]
        volumes = {one["name"]: one.get("secret") for one in spec["volumes"]}
        assert volumes["nats"] == {"secretName": "users", "items": [{"key": key, "path": "creds"}]}
        assert volumes["nats-tls"] == {"secretName": "certificates"}
        mounts = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
        assert (mounts["nats"], mounts["nats-tls"]) == ("/etc/kinema/nats", "/etc/kinema/nats-tls")
    container = job["spec"]["template"]["spec"]["containers"][0]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables == {"KINEMA_NATS_USER": "admin"} | {f"KINEMA_{name.upper()}": wanted[name] for name in wanted}
    assert container["args"][container["args"].index("--nats") + 1] == SECURED["url"]


def test_a_charts_test_runs_in_an_image_of_kinema(helm: Helm) -> None:
    """The broker's image holds no shell: its test has the administrator's, of the registry that all charts share."""
    shared = {"kinema": {"cluster": "c1", "image": {"registry": "registry.example"}}}
    objects = helm.rendered("kinema", {**WHOLE, "global": shared})
    images = {
        one["spec"]["containers"][0]["image"]
        for one in objects
        if one["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"
    }
    assert images == {f"registry.example/kinema-{name}:{VERSION}" for name in ("admin", *SERVICES)}


def test_every_service_may_run_twice(helm: Helm) -> None:
    """One process by default, and a rolling update, which runs a second one for a moment.

    The update is written whole: defaults of the API server would stay at a rollback to an older chart's `Recreate`.
    """
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    for count in (1, 2):
        given = cast("dict[str, dict[str, object]]", copy.deepcopy(WHOLE))
        for name in SERVICES:
            given.setdefault(name, {})["replicas"] = count
        objects = helm.rendered("kinema", given)
        for service in SERVICES:
            spec = named(objects, "Deployment", f"kinema-{service}")["spec"]
            assert (spec["replicas"], spec["strategy"]) == (count, rolling)


def test_jobs_reach_what_they_need_where_nothing_else_may_go_out(helm: Helm) -> None:
    """Beside a policy that denies all, the pods of setup and hook still reach broker and API server."""
    objects = helm.rendered("kinema-setup", NAMED)
    broker, hook = (named(objects, "NetworkPolicy", f"kinema-{name}") for name in ("setup", "placement-policy"))
    assert "helm.sh/hook" not in broker["metadata"].get("annotations", {})
    ports = [[port["port"] for port in one["ports"]] for one in broker["spec"]["egress"]]
    assert ports == [[53, 53], [4222]]
    assert {"port": 6443} in hook["spec"]["egress"][2]["ports"]
    (job,) = (one for one in objects if one["metadata"]["name"] == "kinema-placement-policy" and one["kind"] == "Job")
    first, then = (one["metadata"]["annotations"]["helm.sh/hook-weight"] for one in (hook, job))
    assert int(first) < int(then)
    selected = hook["spec"]["podSelector"]["matchLabels"].items()
    assert selected <= job["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("provider", sorted(OF_PROVIDER.keys() - {"sim"}))
def test_roles_are_those_of_kinema_rbac(helm: Helm, provider: str) -> None:
    """Chart and command grant the same: each rule in its namespace or everywhere, to the service's account alone."""
    for service, rules in rules_by_service(provider).items():
        chosen = {"gke": GKE, "karpenter": KARPENTER, "cluster-api": CLUSTER_API}.get(provider, {"kind": provider})
        provided = {**NAMED, "settings": {"provider": chosen}, "catalog": catalog_of(provider)}
        values = provided if service == "rescheduler" else NAMED
        objects = helm.rendered(f"kinema-{service}", values)
        granted = {
            one["metadata"].get("namespace", ""): one["rules"]
            for one in objects
            if one["kind"] in {"Role", "ClusterRole"}
        }
        assert granted == {
            space: [as_written(rule) for rule in rules if rule.namespace == space]
            for space in {rule.namespace for rule in rules}
        }
        account = {"kind": "ServiceAccount", "name": f"kinema-{service}", "namespace": "kinema"}
        bindings = [one for one in objects if one["kind"].endswith("RoleBinding")]
        assert [one["subjects"] for one in bindings] == [[account]] * len(granted)
        assert {one["metadata"].get("namespace", "") for one in bindings} == set(granted)


def test_the_hook_that_installs_the_policy_has_the_rights_for_it_alone(helm: Helm) -> None:
    """Account, role and binding are the hook's own, and gone when it has succeeded."""
    objects = helm.rendered("kinema-setup", NAMED)
    of_hook = [one for one in objects if one["kind"] in {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role"}]
    assert [one["kind"] for one in of_hook] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
    annotations = [one["metadata"]["annotations"] for one in of_hook]
    assert all("hook-succeeded" in one["helm.sh/hook-delete-policy"] for one in annotations)
    assert of_hook[1]["rules"] == [as_written(rule) for rule in steering_policy.RULES]
    assert [one["name"] for one in of_hook[2]["subjects"]] == [of_hook[0]["metadata"]["name"]]


@pytest.mark.parametrize(
    "changed",
    [{"resources": {"limits": {"memory": "1Gi"}}}, {"nodeSelector": {"pool": "a"}}, {"nats": {"existingSecret": "b"}}],
    ids=str,
)
def test_a_changed_job_has_another_name(helm: Helm, changed: Values) -> None:
    """Kubernetes refuses to change a Job: one that was installed stays, and the other is a new one."""

    def name(values: Values) -> set[str]:
        objects = helm.rendered("kinema-setup", values)
        return {one["metadata"]["name"] for one in objects if one["kind"] == "Job"} - {"kinema-placement-policy"}

    assert name(NAMED) == name(NAMED)
    assert not name(NAMED) & name({**NAMED, **changed})


def test_an_upgrade_shows_what_setup_could_not_change(helm: Helm) -> None:
    """Helm deletes the hook's Job when it succeeds, and its warnings with it, unless it prints them."""
    values = {**NAMED, "nats": {"existingSecret": ""}}
    hooks = [
        one["metadata"]["annotations"]
        for one in helm.rendered("kinema-setup", values, "--is-upgrade")
        if one["kind"] == "Job"
    ]
    assert len(hooks) == 2
    assert all("hook-succeeded" in one["helm.sh/hook-output-log-policy"] for one in hooks)


def test_one_pod_takes_the_place_of_services_and_broker(helm: Helm) -> None:
    """With the umbrella's `all-in-one.yaml` one Deployment remains, on the volume that the broker's chart uses."""
    whole = helm.rendered("kinema", WHOLE)
    objects = helm.rendered("kinema", ONE_POD, *IN_ONE_POD)
    assert [name for name, _ in pods(objects)] == ["Deployment/kinema-all-in-one"]
    (broker,) = (one for one in whole if one["kind"] == "StatefulSet")
    (template,) = broker["spec"]["volumeClaimTemplates"]
    claim = named(objects, "PersistentVolumeClaim", f"{template['metadata']['name']}-{broker['metadata']['name']}-0")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


@pytest.mark.parametrize("provider", sorted(OF_PROVIDER.keys() - {"sim"}))
def test_one_pod_has_the_rights_of_its_provider(helm: Helm, provider: str) -> None:
    """Every provider of `kinema up` but the simulated one can be chosen; the pod gets its rights, and its location."""
    places = {"gke": "shop/europe-west3/prod", "karpenter": "default", "cluster-api": "fleet/shop"}
    place = places.get(provider, "")
    catalog = catalog_of(provider)
    values = {**NAMED, "provider": provider, "location": place, "catalog": "" if place else catalog}
    objects = helm.rendered("kinema-all-in-one", values)
    granted = [rule for one in objects if one["kind"] in {"Role", "ClusterRole"} for rule in one["rules"]]
    assert all(as_written(rule) in granted for rule in OF_PROVIDER[provider])
    ((_, spec),) = pods(objects)
    (command,) = spec["containers"][0]["args"]
    assert f"--provider {provider}={place or '/etc/kinema/catalog'}" in command
    priced = helm.rendered("kinema-all-in-one", {**values, "catalog": catalog})
    settings = json.loads(named(priced, "ConfigMap", "kinema-all-in-one")["data"]["settings.json"])
    assert settings == ({"rescheduler": {"provider": {"catalog": "/etc/kinema/catalog"}}} if place else {})


@pytest.mark.parametrize(
    ("chart", "values"),
    [
        ("kinema-rescheduler", {"settings": {"provider": GKE}}),
        ("kinema-all-in-one", {"provider": "gke", "location": "shop/europe-west3/prod"}),
    ],
)
def test_gke_is_reached_with_the_account_of_workload_identity(helm: Helm, chart: str, values: Values) -> None:
    """The account can carry the annotation, and the network policy lets the pod reach APIs and metadata server."""
    account = {"iam.gke.io/gcp-service-account": "kinema@shop.iam.gserviceaccount.com"}
    objects = helm.rendered(chart, {**NAMED, **values, "serviceAccount": {"annotations": account}})
    assert named(objects, "ServiceAccount", chart)["metadata"]["annotations"] == account
    egress = named(objects, "NetworkPolicy", chart)["spec"]["egress"]
    assert {"port": 443} in [port for one in egress if "to" not in one for port in one["ports"]]
    (metadata,) = (one for one in egress if "to" in one)
    assert {"ipBlock": {"cidr": "169.254.169.254/32"}} in metadata["to"]
    assert {"port": 80} in metadata["ports"]


def test_workers_share_the_solve(helm: Helm) -> None:
    """Workers are a Deployment of their own, and the optimizer that has some offers its tasks."""
    objects = helm.rendered("kinema", WHOLE)
    worker = named(objects, "Deployment", "kinema-optimizer-worker")
    assert worker["spec"]["replicas"] == 2
    assert worker["spec"]["template"]["spec"]["containers"][0]["command"][-1] == "kinema_optimizer.process.worker"
    settings = json.loads(named(objects, "ConfigMap", "kinema-optimizer")["data"]["settings.json"])
    assert settings["solver"] == {"share": True}
    selectors = {str(one["spec"]["selector"]) for one in objects if one["kind"] == "Deployment"}
    assert len(selectors) == len(SERVICES) + 1


def test_a_change_of_settings_starts_the_pods_again(helm: Helm) -> None:
    """The checksum of the settings stands in the pod template."""
    one, other = (
        named(helm.rendered("kinema-decider", {**NAMED, "settings": settings}), "Deployment", "kinema-decider")
        for settings in ({}, {"limits": {"approval": "automatic"}})
    )
    assert one["spec"]["template"] != other["spec"]["template"]


def test_monitors_are_made_where_their_kind_exists(helm: Helm) -> None:
    """Without the Prometheus operator nothing asks for its kinds."""
    values = {**NAMED, "podMonitor": {"labels": {"release": "prometheus"}}}
    assert "PodMonitor" not in {one["kind"] for one in helm.rendered("kinema-decider", values)}
    objects = helm.rendered("kinema-decider", values, "--api-versions", "monitoring.coreos.com/v1")
    assert named(objects, "PodMonitor", "kinema-decider")["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize("chart", ["kinema", "kinema-monitoring"])
def test_notes_report_that_nothing_is_monitored(helm: Helm, chart: str) -> None:
    """Alerts that are asked for and cannot be installed are no silent success."""
    arguments = ("install", "kinema", str(CHARTS / chart), "--dry-run=client")
    done = helm.run(*arguments, values=needed(chart))
    assert done.returncode == 0, done.stderr
    assert "neither alerts nor monitors are installed" in done.stdout.partition("NOTES:")[2]


def notes(helm: Helm, values: Values, *more: str) -> str:
    """Return what Helm prints after an installation of the umbrella."""
    done = helm.run("install", "kinema", str(CHARTS / "kinema"), "--dry-run=client", *more, values=values)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.partition("NOTES:")[2].split())


@pytest.mark.parametrize("one_pod", [False, True])
def test_notes_say_whether_plans_wait_for_approval(helm: Helm, *, one_pod: bool) -> None:
    """They follow the value: who lets Kinema act by itself does not read that it waits."""
    limits = {"limits": {"approval": "automatic"}}
    values = ONE_POD if one_pod else WHOLE
    changed = (
        {**ONE_POD, "allInOne": {**ONE_POD["allInOne"], "settings": {"decider": limits}}}
        if one_pod
        else {**WHOLE, "decider": {"settings": limits}}
    )
    more = IN_ONE_POD if one_pod else ()
    waits, acts = "A plan that saves waits until you approve it.", "Plans that save are executed at once"
    for given, said, other in ((values, waits, acts), (changed, acts, waits)):
        found = notes(helm, given, *more)
        assert said in found
        assert other not in found


def test_notes_name_the_broker_that_the_release_lacks(helm: Helm) -> None:
    """The notes name its Secret and say that plans wait for approval, with the default address as well."""
    found = notes(helm, {**WHOLE, "enabled": {"nats": False}})
    assert "The broker at nats://kinema-nats:4222 is not part of this release" in found
    assert "Pods wait for the Secret kinema-nats of the namespace default" in found
    assert "waits until you approve it" in found
    own = {"kinema": {"cluster": "c1", "nats": {"url": "tls://nats.example", "existingSecret": ""}}}
    found = notes(helm, {**WHOLE, "global": own, "enabled": {"nats": False}})
    assert "The broker at tls://nats.example is not part" in found
    assert "Pods wait for the Secret" not in found


@pytest.mark.parametrize(("service", "kind"), [("decider", Limits), ("rescheduler", ReschedulerLimits)])
def test_notes_name_settings_that_services_need_alike(helm: Helm, service: str, kind: type[msgspec.Struct]) -> None:
    """As `kinema up` does: by service, with both values, of which one that is not given is the service's default."""
    planning, limits = msgspec.to_builtins(PlanningSettings()), msgspec.to_builtins(kind())
    values = {"scope": [{"pool": "a"}], "spot": {"max_share": 0.5, "max_share_per_pool": None}}
    alike = needed_alike(planning, limits)
    changed = {name: not limits[name] if isinstance(limits[name], bool) else values.get(name, 0.5) for name in alike}

    def noted(limits: Values, shared: Values) -> str:
        given: dict[str, Any] = copy.deepcopy(dict(WHOLE))
        given["global"]["kinema"] |= {"sharedSettings": shared} if shared else {}
        given.setdefault(service, {}).setdefault("settings", {})["limits"] = limits
        return notes(helm, given)

    differs = disagreement({"optimizer": {"planning": planning}, service: {"limits": limits | changed}})
    assert [name for name in alike if name in differs] == alike != []
    assert differs.replace(".0 and", " and") in noted(changed, {})
    assert " differ " not in noted({name: limits[name] for name in alike}, {})
    assert " differ " not in noted({}, changed)


def test_shared_settings_reach_each_service_that_has_them(helm: Helm) -> None:
    """In a pod of its own and in one for all; what the chart's own values say goes first."""
    given = {"min_savings_fraction": 0.2, "resize_in_place": False, "move_jobs": True}
    shared = {"kinema": {"cluster": "c1", "sharedSettings": given}}
    own = {"limits": {"move_jobs": False, "approval": "automatic"}}
    wanted = {
        "optimizer": {"planning": given},
        "decider": {"limits": {**given, "move_jobs": False, "approval": "automatic"}},
        "rescheduler": {"limits": {"resize_in_place": False, "move_jobs": True}},
    }
    objects = helm.rendered("kinema", {**WHOLE, "global": shared, "decider": {"settings": own}})
    for service in SERVICES:
        found = json.loads(named(objects, "ConfigMap", f"kinema-{service}")["data"]["settings.json"])
        assert {name: found[name] for name in ("planning", "limits") if name in found} == wanted.get(service, {})
    values = {**needed("kinema-all-in-one"), "global": shared, "settings": {"decider": own}}
    together = named(helm.rendered("kinema-all-in-one", values), "ConfigMap", "kinema-all-in-one")
    assert json.loads(together["data"]["settings.json"]) == wanted


def test_only_services_that_use_the_api_have_a_token(helm: Helm) -> None:
    """A pod of another service cannot ask the API server anything."""
    with_token = {name for name, spec in pods(helm.rendered("kinema", WHOLE)) if spec["automountServiceAccountToken"]}
    assert with_token == {"Deployment/kinema-observer", "Deployment/kinema-rescheduler", "Job/kinema-placement-policy"}


@pytest.mark.parametrize(("chart", "count"), [("kinema", 7), ("kinema-all-in-one", 1)])
def test_no_plan_moves_kinema_or_its_broker(helm: Helm, chart: str, count: int) -> None:
    """Each pod that stays carries the annotation that holds it: services, the optimizer's workers, the broker."""
    objects = helm.rendered(chart, WHOLE if chart == "kinema" else needed(chart))
    staying = [one for one in objects if one["kind"] in {"Deployment", "StatefulSet"}]
    held = [one["spec"]["template"]["metadata"]["annotations"].get(DO_NOT_MOVE) for one in staying]
    assert held == ["true"] * count


@pytest.mark.parametrize("case", MATRIX)
def test_the_api_server_takes_what_is_rendered(
    helm: Helm, control_plane: ControlPlane, case: str, tmp_path: Path
) -> None:
    """Every object passes validation and admission, and no pod breaks the restricted standard."""
    chart, values = MATRIX[case]
    objects: list[dict[str, Any]] = helm.rendered(chart, values)
    accepted(control_plane, objects, tmp_path)


@pytest.mark.parametrize("chart", ["kinema-rescheduler", "kinema-all-in-one"])
def test_guard_bounds_the_account_of_the_release(helm: Helm, chart: str) -> None:
    """The charts that move pods have the policy that bounds their account."""
    objects = helm.rendered(chart, {**needed(chart), "serviceAccount": {"name": "mover"}})
    (policy,) = (one for one in objects if one["kind"] == "ValidatingAdmissionPolicy")
    (binding,) = (one for one in objects if one["kind"] == "ValidatingAdmissionPolicyBinding")
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == "request.userInfo.username == 'system:serviceaccount:kinema:mover'"
    assert binding["spec"]["policyName"] == policy["metadata"]["name"] == f"kinema-{chart}"


def test_guard_comes_with_the_rights(helm: Helm) -> None:
    """Whoever gives the rescheduler its rights gives it the policy, too."""
    bare = helm.rendered("kinema-rescheduler", {**PROVIDED, "rbac": {"create": False}})
    assert not [one for one in bare if one["kind"].startswith("ValidatingAdmissionPolicy")]
