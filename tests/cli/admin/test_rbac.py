"""`kinema rbac`: manifests that say exactly what the services' rules say."""

from __future__ import annotations

import json

import pytest
import yaml

from kinema_cli.admin.rbac import KINDS, rules_by_service, run_rbac
from kinema_cli.output import Format
from kinema_kubernetes.rights import Rule, as_written, covers, manifests, rights_of
from kinema_rescheduler.kubernetes.rights import OF_PROVIDER


@pytest.mark.parametrize("form", [Format.YAML, Format.JSON])
@pytest.mark.parametrize("provider", KINDS)
def test_manifests_hold_every_rule_once(provider: str, form: Format, capsys: pytest.CaptureFixture[str]) -> None:
    """Each service gets an account, roles with all its rules and nothing else, and bindings of these to it."""
    assert run_rbac(provider=provider, namespace="ops", output=form) == 0
    text = capsys.readouterr().out
    items = list(yaml.safe_load_all(text)) if form is Format.YAML else json.loads(text)["items"]
    assert (items[0]["kind"], items[0]["metadata"]["name"]) == ("Namespace", "ops")
    assert {item["metadata"]["labels"]["app.kubernetes.io/part-of"] for item in items[1:]} == {"kinema"}
    for service, rules in rules_by_service(provider).items():
        mine = [item for item in items if item["metadata"]["name"] == f"kinema-{service}"]
        accounts = [item for item in mine if item["kind"] == "ServiceAccount"]
        assert [item["metadata"]["namespace"] for item in accounts] == ["ops"]
        roles = [item for item in mine if item["kind"] in {"Role", "ClusterRole"}]
        given = [(item["metadata"].get("namespace", ""), rule) for item in roles for rule in item["rules"]]
        wanted = [(rule.namespace, as_written(rule)) for rule in rules]
        assert sorted(map(str, given)) == sorted(map(str, wanted))
        bindings = [item for item in mine if item["kind"].endswith("Binding")]
        assert [(item["roleRef"]["kind"], item["metadata"].get("namespace")) for item in bindings] == [
            (item["kind"], item["metadata"].get("namespace")) for item in roles
        ]
        for item in bindings:
            assert item["subjects"] == [{"kind": "ServiceAccount", "name": f"kinema-{service}", "namespace": "ops"}]


def test_guard_bounds_the_reschedulers_account(capsys: pytest.CaptureFixture[str]) -> None:
    """The policy that refuses what the rescheduler never writes comes with its rights, for its account."""
    run_rbac(provider="delegate", namespace="ops", output=Format.JSON)
    items = {item["kind"]: item for item in json.loads(capsys.readouterr().out)["items"]}
    policy, binding = items["ValidatingAdmissionPolicy"], items["ValidatingAdmissionPolicyBinding"]
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == "request.userInfo.username == 'system:serviceaccount:ops:kinema-rescheduler'"
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_providers_of_nodes_are_those_that_can_be_chosen() -> None:
    """The command knows every provider that has rules, and says so of any other."""
    assert tuple(OF_PROVIDER) == KINDS
    assert run_rbac(provider="eks", namespace="ops", output=Format.JSON) == 2


def test_table_says_what_is_lost_without_a_right(capsys: pytest.CaptureFixture[str]) -> None:
    """For people, each right stands with its purpose and with what happens without it."""
    assert run_rbac(provider="sim", namespace="ops", output=Format.TABLE) == 0
    said = capsys.readouterr().out
    assert "evicts pods" in said
    assert "new pods go where" in said


def test_a_rule_for_one_name_allows_nothing_about_others() -> None:
    """Names and namespaces narrow a rule; a rule without them holds everywhere."""
    narrow = Rule(purpose="x", resources=("configmaps",), verbs=("get",), names=("mine",), namespace="here")
    wide = Rule(purpose="x", resources=("configmaps",), verbs=("get",))
    (right,) = rights_of(narrow)
    assert str(right) == "get configmaps mine in here"
    assert covers(narrow, right)
    assert covers(wide, right)
    assert not any(covers(narrow, right._replace(**change)) for change in ({"name": "other"}, {"namespace": "there"}))
    assert not covers(narrow, next(rights_of(wide)))


def test_a_service_without_rules_in_a_namespace_has_no_role_there() -> None:
    """The observer needs nothing but its cluster role."""
    made = manifests("observer", rules_by_service("sim")["observer"], namespace="ops")
    assert [item["kind"] for item in made] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
