"""The patch types: JSON patch, merge patch and strategic merge patch."""

import pytest
from tests.sim.builders import a_store

from kinema_sim.api.errors import ApiError
from kinema_sim.api.kube import JSON_PATCH, KubeApi, Patch
from kinema_sim.api.patches import json_patch, merge_patch, strategic_merge
from kinema_sim.engine.kinds import CONFIG_MAP
from kinema_sim.engine.objects import Obj


def test_json_patch_operations() -> None:
    """All six operations act as RFC 6902 says, escapes and the end of a list included."""
    target = {"a": {"x/y": 1}, "l": [1, 2], "k": "v"}
    result = json_patch(
        target,
        [
            {"op": "test", "path": "/k", "value": "v"},
            {"op": "replace", "path": "/a/x~1y", "value": 2},
            {"op": "add", "path": "/l/-", "value": 3},
            {"op": "add", "path": "/l/0", "value": 0},
            {"op": "remove", "path": "/l/1"},
            {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "move", "from": "/k", "path": "/m"},
        ],
    )
    assert result == {"a": {"x/y": 2}, "l": [0, 2, 3], "b": {"x/y": 2}, "m": "v"}
    assert target == {"a": {"x/y": 1}, "l": [1, 2], "k": "v"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/k", "value": "w"},
        {"op": "remove", "path": "/absent"},
        {"op": "replace", "path": "/absent", "value": 1},
        {"op": "add", "path": "/l/9", "value": 1},
        {"op": "explode", "path": "/k"},
        {"path": "/k"},
    ],
)
def test_json_patches_that_do_not_fit_are_refused(operation: Obj) -> None:
    """A failed test, a path that is not there or a malformed operation refuses the whole patch."""
    with pytest.raises(ApiError) as refused:
        json_patch({"k": "v", "l": []}, [operation])
    assert refused.value.code == 422


def test_merge_patch() -> None:
    """Objects merge, null removes, and lists are replaced."""
    target = {"a": {"b": 1, "c": 2}, "l": [1, 2]}
    assert merge_patch(target, {"a": {"b": None, "d": 3}, "l": [9]}) == {"a": {"c": 2, "d": 3}, "l": [9]}


def test_strategic_merge_by_key() -> None:
    """Containers and their environment merge by name, and directives delete or replace."""
    target: Obj = {
        "spec": {
            "containers": [
                {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}], "args": ["p"]},
                {"name": "b", "image": "1"},
            ],
            "tolerations": [{"key": "k"}],
        }
    }
    patch = {
        "spec": {
            "containers": [
                {"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}], "args": ["q"]},
                {"name": "b", "$patch": "delete"},
                {"name": "c", "image": "3"},
            ],
            "tolerations": [{"key": "l"}],
        }
    }
    spec = strategic_merge(target, patch)["spec"]
    assert [container["name"] for container in spec["containers"]] == ["a", "c"]
    assert spec["containers"][0]["image"] == "2"
    assert [entry["name"] for entry in spec["containers"][0]["env"]] == ["X", "Y"]
    assert spec["containers"][0]["args"] == ["q"]
    assert spec["tolerations"] == [{"key": "l"}]
    assert strategic_merge({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}) == {"a": {"c": 2}}


def test_strategic_merge_replaces_taints() -> None:
    """The taints of a node are one list to upstream: a patch that names them replaces them."""
    node = {"kind": "Node", "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    patch = {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}
    assert [taint["key"] for taint in strategic_merge(node, patch)["spec"]["taints"]] == ["b"]


def _api() -> KubeApi:
    api = KubeApi(a_store())
    body: Obj = {"metadata": {"name": "c"}, "data": {"a": "1"}}
    api.create(CONFIG_MAP, "shop", body)
    return api


def test_unknown_patch_types_are_refused() -> None:
    """Server-side apply, which the simulated server lacks, answers 415, and a JSON patch must be a list."""
    api = _api()
    with pytest.raises(ApiError) as unknown:
        api.patch(CONFIG_MAP, "shop", "c", patch=Patch({}, "application/apply-patch+yaml"))
    with pytest.raises(ApiError) as no_list:
        api.patch(CONFIG_MAP, "shop", "c", patch=Patch({}, JSON_PATCH))
    assert (unknown.value.code, no_list.value.code) == (415, 400)
