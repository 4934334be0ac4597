"""`kinema plan` on snapshot files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
import zstandard
from typer.testing import CliRunner

from kinema_cli.plan_command import plan
from kinema_core.events import Cost, Plan, Solve, Unplaced
from kinema_optimizer import planner

CATALOG = """machine_type,vcpus,memory_gib,usd_per_hour
m2,2,8,0.09
m4,4,16,0.17
"""
APP = typer.Typer()
APP.command()(plan)
APP.command(name="other")(lambda: None)


def meta(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    """Metadata of an object."""
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-03-01T08:00:00Z", **place, **more}


def owner(kind: str, name: str) -> list[dict[str, Any]]:
    """A controlling owner."""
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def node(name: str, machine: str = "m4", cpu: str = "3920m", memory: str = "13Gi") -> dict[str, Any]:
    """A ready node."""
    labels = {"node.kubernetes.io/instance-type": machine, "topology.kubernetes.io/zone": "a"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta(name, labels={"kubernetes.io/hostname": name, **labels}),
        "spec": {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, on: str | None, *, of: str | None = "web-rs", cpu: str = "500m") -> dict[str, Any]:
    """A pod of a replica set, or a bare one; running and ready where it has a node."""
    labels = {"app": "web"}
    status = {"phase": "Running" if on else "Pending", "conditions": [{"type": "Ready", "status": str(bool(on))}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, "shop", labels=labels, **({"ownerReferences": owner("ReplicaSet", of)} if of else {})),
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}}],
            **({"nodeName": on} if on else {}),
        },
        "status": status,
    }


def controllers(replicas: int) -> list[dict[str, Any]]:
    """The Deployment `web` and its replica set."""
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}},
    }
    status = {"replicas": replicas, "readyReplicas": replicas}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta("web", "shop"),
            "spec": spec,
            "status": status,
        },
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": meta("web-rs", "shop", ownerReferences=owner("Deployment", "web")),
            "spec": spec,
            "status": status,
        },
    ]


def spread() -> list[dict[str, Any]]:
    """Three m4 nodes with one small pod each: an m2 would do."""
    pods = [pod(f"web-{index}", f"n{index}") for index in range(3)]
    return [*(node(f"n{index}") for index in range(3)), *controllers(3), *pods]


def text(items: list[dict[str, Any]]) -> bytes:
    """The list as kubectl prints it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


class Bench:
    """A directory with a snapshot and a catalog, and the command over them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.snapshot = directory / "snapshot.json"
        self.catalog = directory / "catalog.csv"
        self.snapshot.write_bytes(text(spread()))
        self.catalog.write_text(CATALOG)

    def run(self, *arguments: str, snapshot: Path | str | None = None, given: bytes | None = None) -> Any:
        """Run `kinema plan`."""
        files = ["--snapshot", str(snapshot or self.snapshot), "--catalog", str(self.catalog)]
        return CliRunner().invoke(APP, ["plan", *files, *arguments], input=given)

    def fails(self, *arguments: str, code: int = 1, snapshot: Path | str | None = None) -> str:
        """Run it, expecting that exit code, nothing on standard output and no traceback; returns what it says."""
        result = self.run(*arguments, snapshot=snapshot)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        assert isinstance(result.exception, SystemExit)
        return str(result.stderr)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Three nodes of which one small one suffices."""
    return Bench(tmp_path)


def test_json_is_the_plan(bench: Bench) -> None:
    """The cheapest cluster is one m2; every pod is placed there, by surge, with costs to the cent."""
    result = bench.run("-o", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["schema"] == "kinema.plan/v1"
    assert (found["status"], found["cost"]["before"], found["cost"]["after"]) == ("optimal", 0.51, 0.09)
    assert found["cost"]["lower_bound"] == 0.09
    assert {(item["pod"], item["strategy"], item["from"]) for item in found["placements"]} == {
        (f"shop/web-{index}", "surge", f"n{index}") for index in range(3)
    }
    assert found["moves"] == 3


def test_yaml_says_the_same(bench: Bench) -> None:
    """YAML and JSON hold the same plan, the time that it took aside."""
    as_json = json.loads(bench.run("-o", "json").stdout)
    as_yaml = yaml.safe_load(bench.run("-o", "yaml").stdout)
    assert {**as_yaml, "solve": None} == {**as_json, "solve": None}


def test_table_goes_to_stdout_and_progress_to_stderr(bench: Bench) -> None:
    """What is printed can be piped; what is said on the way cannot get into it."""
    result = bench.run()
    assert result.exit_code == 0
    assert "3 → 1" in result.stdout
    assert "Deployment/shop/web" in result.stdout
    assert "planning" in result.stderr
    assert "planning" not in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("name", ["s.json.gz", "s.json.zst", "s.json"])
def test_compressed_snapshots_are_read(bench: Bench, name: str) -> None:
    """Plain, gzip and zstd files give the same plan."""
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(Path(name).suffix, bytes)
    path = bench.directory / name
    path.write_bytes(pack(text(spread())))
    assert json.loads(bench.run("-o", "json", snapshot=path).stdout)["cost"]["after"] == 0.09


def test_snapshot_from_a_pipe(bench: Bench) -> None:
    """A dash reads standard input."""
    result = bench.run("-o", "json", snapshot="-", given=text(spread()))
    assert result.exit_code == 0, result.stderr


def test_bare_pod_holds_its_node_and_is_named(bench: Bench) -> None:
    """What blocks more is said: the pod, the rule, and it stays in the plan."""
    bench.snapshot.write_bytes(text([*spread(), pod("lonely", "n1", of=None)]))
    result = bench.run()
    assert "What may not move" in result.stdout
    assert "shop/lonely" in result.stdout
    found = json.loads(bench.run("-o", "json").stdout)
    assert [item["pod"] for item in found["held"]] == ["shop/lonely"]
    assert {"name": "n1", "action": "keep"}.items() <= next(n for n in found["nodes"] if n["name"] == "n1").items()


def test_pending_pod_that_fits_nowhere_still_gives_a_plan(bench: Bench) -> None:
    """A pod without a place is listed with its reason, and the exit code is 0 all the same."""
    bench.snapshot.write_bytes(text([*spread(), pod("huge", None, cpu="64")]))
    result = bench.run()
    assert result.exit_code == 0
    assert "Pods without a place" in result.stdout
    assert "shop/huge" in result.stdout


def test_nothing_better_is_no_failure(bench: Bench) -> None:
    """A cluster that is as cheap as it can be gives a plan that says so."""
    bench.snapshot.write_bytes(text([node("n0", "m2", "1930m", "5Gi"), *controllers(1), pod("web-0", "n0")]))
    result = bench.run()
    assert result.exit_code == 0
    assert "nothing better" in result.stdout


def test_unreadable_object_is_reported_with_its_path(bench: Bench) -> None:
    """One object that cannot be read freezes its node and is named; the rest is planned."""
    broken = pod("broken", "n2")
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    bench.snapshot.write_bytes(text([*spread(), broken]))
    result = bench.run()
    assert result.exit_code == 0
    assert "Pod shop/broken" in result.stdout
    assert "spec" in result.stdout
    assert "1 objects could not be read" in result.stderr


def test_ceiling_leaves_room(bench: Bench) -> None:
    """With a ceiling of half a node's room one m2 no longer suffices."""
    found = json.loads(bench.run("-o", "json", "--objective", "cost:50").stdout)
    assert found["cost"]["after"] > 0.09
    assert "50" in found["objective"]


def test_html_report_is_written(bench: Bench) -> None:
    """The report holds the plan's pictures and no section without content."""
    path = bench.directory / "out" / "plan.html"
    result = bench.run("--html", str(path))
    assert result.exit_code == 0
    html = path.read_text(encoding="utf-8")
    assert html.count("<svg") == 2
    assert "leaves: n0" in html
    assert "Disruption audit" not in html


def test_infeasible_exits_1_and_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that run now and fit nowhere are an error with a name in it, after the plan was printed."""
    none = Plan(
        status="infeasible",
        cost=Cost(before=0.51, after=0.51, lower_bound=0.0, gap=None),
        nodes=(),
        placements=(),
        unplaced=(Unplaced(pod="shop/web-0", uid="u", code="no-room", reason="needs 500m CPU"),),
        moves=0,
        restarts=0,
        solve=Solve(seconds=0.1, first_feasible_seconds=None, method="none", seed=0),
    )
    monkeypatch.setattr(planner, "plan_for", lambda *_, **__: none)
    result = bench.run()
    assert result.exit_code == 1
    assert "infeasible" in result.stdout
    assert "shop/web-0: needs 500m CPU" in result.stderr


def test_node_without_a_price_lists_all_of_them(bench: Bench) -> None:
    """All nodes without a price are named at once, so that one run suffices to mend the catalog."""
    bench.snapshot.write_bytes(text([*spread(), node("x1", "odd"), node("x2", "strange")]))
    said = bench.fails()
    assert "x1" in said
    assert "x2" in said


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (None, "gone.json", "No such file"),
        (b"\x1f\x8b\x08broken", "s.json.gz", "cannot be unpacked"),
        (gzip.compress(text(spread()))[:-20], "s.json.gz", "cannot be unpacked"),
        (zstandard.ZstdCompressor().compress(text(spread()))[:30], "s.json.zst", ""),
        (text(spread()), "s.json.gz", "is not compressed as its name says"),
        (b"no json", "s.json", "no JSON list"),
        (b"[]", "s.json", "no JSON list"),
        (text([]), "s.json", "no node in it"),
        (text([*controllers(1)]), "s.json", "no node in it"),
    ],
)
def test_bad_snapshot_is_one_clear_line(bench: Bench, content: bytes | None, name: str, said: str) -> None:
    """A snapshot that is missing, damaged or none at all is named with what is wrong."""
    path = bench.directory / name
    if content is not None:
        path.write_bytes(content)
    message = bench.fails(snapshot=path)
    assert str(path) in message
    assert said in message
    assert len(message.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("machine_type,vcpus\nm2,2\n", "memory_gib"),
        ("machine_type,vcpus,memory_gib,usd_per_hour\nm2,two,8,0.09\n", "vcpus"),
        ("", ""),
    ],
)
def test_bad_catalog_is_one_clear_line(bench: Bench, content: str, said: str) -> None:
    """A catalog that cannot be used is named with the line and the column."""
    bench.catalog.write_text(content)
    message = bench.fails()
    assert str(bench.catalog) in message
    assert said in message
    assert len(message.strip().splitlines()) == 1


def test_missing_catalog_is_one_clear_line(bench: Bench) -> None:
    """A catalog that does not exist is named."""
    bench.catalog.unlink()
    assert str(bench.catalog) in bench.fails()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--objective", "speed"),
        ("--objective", "cost:0"),
        ("--objective", "cost:101"),
        ("--objective", "cost:x"),
        ("--time-limit", "0"),
        ("--time-limit", "-3"),
        ("--time-limit", "nan"),
        ("--time-limit", "inf"),
        ("-o", "xml"),
        ("--unknown",),
    ],
)
def test_wrong_arguments_exit_2(bench: Bench, arguments: tuple[str, ...]) -> None:
    """What the command line cannot mean is refused before anything is read."""
    assert bench.fails(*arguments, code=2)
