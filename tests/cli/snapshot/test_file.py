"""Snapshots in the forms that kubectl, jq and people give them: read the same, or refused in one line that helps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.cli.bench import Bench, spread, text

from kinema_cli.snapshot.file import load_snapshot
from kinema_cli.snapshot.yaml_file import YamlError, as_json


class _Plain(yaml.SafeDumper):
    """Writes no aliases, as kubectl does."""

    def ignore_aliases(self, data: object) -> bool:
        """Never."""
        return True


def dumped(value: object) -> str:
    """YAML as kubectl prints it."""
    return yaml.dump(value, Dumper=_Plain)


def listed(items: list[Any], kind: str = "List") -> dict[str, Any]:
    """A list of them."""
    return {"apiVersion": "v1", "kind": kind, "items": items}


FORMS: dict[str, Callable[[list[Any]], str]] = {
    "array": json.dumps,
    "array of lists": lambda items: json.dumps([listed(items[:2]), listed(items[2:])]),
    "lists in a list": lambda items: json.dumps(listed([listed([listed(items[:2], "NodeList")]), *items[2:]])),
    "yaml": lambda items: dumped(listed(items)),
    "yaml documents": lambda items: "---\n" + "---\n".join(dumped(item) for item in items) + "---\n",
    "yaml lists": lambda items: "# all\n" + dumped(listed(items[:2])) + "---\n" + dumped(listed(items[2:])),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_cluster(bench: Bench, form: str) -> None:
    """Nothing is passed over because of what stands around it."""
    bench.snapshot.write_text(FORMS[form](spread()))
    found = load_snapshot(bench.snapshot)
    bench.snapshot.write_bytes(text(spread()))
    plain = load_snapshot(bench.snapshot)
    assert (found.cluster.objects, found.now, found.ignored) == (plain.cluster.objects, plain.now, {})


def test_an_object_that_is_merely_called_a_list_is_none(bench: Bench) -> None:
    """Its kind is told as not read."""
    named = {"apiVersion": "example.com/v1", "kind": "AllowList", "metadata": {"name": "x"}, "items": {"a": "b"}}
    bench.snapshot.write_bytes(text([*spread(), named]))
    assert load_snapshot(bench.snapshot).ignored == {"AllowList": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("it begins with 'NAME   STATUS'", b"NAME   STATUS\nn1     Ready\n"),
        ("it begins with 'Error from server (Forbidden): no'", b"Error from server (Forbidden): no\n"),
        ("something follows its end (byte", text(spread()) + text(spread())),
        ("ends in the middle", text(spread())[:-40]),
        ("its `kind` is missing", b'{"items": []}'),
        ("its `items` is an object: write a list", b'{"kind": "List", "items": {}}'),
        ("its `kind` is a whole number: write text", b'{"kind": 5}'),
        ("no list of Kubernetes objects: nothing in it has a kind", b"[1, 2]"),
        ("answer 'Unauthorized'", b'{"kind": "Status", "message": "Unauthorized"}'),
        ("no UTF-8", b'{"kind": "Li\xffst", "items": []}'),
        ("line 3, column 3: an alias", b"apiVersion: &a v1\nitems:\n- *a\n"),
        ("line 2, column 8: the tag !now", b"kind: List\nitems: !now x\n"),
        ("line 2, column 1: a key that is no text", b"kind: List\n[a]: b\n"),
        ("line 2, column 1: found a tab character", b"kind: List\n\titems: []\n"),
        ("did not find expected node content", b"items: " + b"[" * 50_000),
        ("as YAML, no YAML", b"kind: \xff\n"),
    ],
)
def test_what_is_no_snapshot_is_told_in_a_line_with_what_to_do(bench: Bench, said: str, written: bytes) -> None:
    """The file, the place in it, and how it is taken; no text of a parser's own."""
    bench.snapshot.write_bytes(written)
    told = bench.fails()
    assert said in told
    assert told.startswith(f"error: --snapshot {bench.snapshot}: ")
    assert any(word in told for word in ("take it", "write", "see to that", "take all"))
    assert len(told.strip().splitlines()) == 1
    assert "Expected `" not in told


def test_plain_words_of_yaml_are_what_kubectl_means_by_them() -> None:
    """Numbers, true, false and null are those of JSON; all else is text, as are words in quotation marks and keys."""
    written = b'{1: "1", a: [1, -0.5, 1e3, 007, 0x10, yes, "null", ~, null, true, 2026-01-01T00:00:00Z, 1:30]}'
    (found,) = json.loads(b"".join(as_json([written])))["items"]
    assert found.pop("1") == "1"
    assert found == {
        "a": [1, -0.5, 1000.0, "007", "0x10", "yes", "null", None, None, True, "2026-01-01T00:00:00Z", "1:30"]
    }


@pytest.mark.slow
def test_yaml_may_come_in_pieces_cut_anywhere() -> None:
    """Also within a character of several bytes; the JSON comes in pieces too."""
    written = dumped(listed([{"note": "é" * 50_000} for _ in range(30)])).encode()
    pieces = [written[start : start + 777] for start in range(0, len(written), 777)]
    found = list(as_json(pieces))
    assert len(found) > 2
    assert b"".join(found) == b"".join(as_json([written]))


def test_an_alias_stands_for_nothing() -> None:
    """A few lines of them would be gigabytes."""
    with pytest.raises(YamlError, match="alias"):
        b"".join(as_json([b"a: &a [x, x]\nb: &b [*a, *a]\n"]))
