"""Snapshots and catalogs for tests of the planning verbs, and the verbs over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from kinema_cli.explain.command import explain
from kinema_cli.plan.command import plan

CATALOG = """machine_type,vcpus,memory_gib,usd_per_hour
m2,2,8,0.09
m4,4,16,0.17
"""
APP = typer.Typer()
APP.command()(plan)
APP.command()(explain)


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
        """Run `kinema plan`, without redundancy and headroom unless they are asked for."""
        for asked, left_out in (("--redundancy", ("--no-redundancy",)), ("--headroom", ("--headroom", "0"))):
            arguments = arguments if asked in arguments else (*left_out, *arguments)
        files = ["--snapshot", str(snapshot or self.snapshot), "--catalog", str(self.catalog)]
        return CliRunner().invoke(APP, ["plan", *files, *arguments], input=given)

    def explain(self, *arguments: str) -> Any:
        """Run `kinema explain`."""
        files = ["--snapshot", str(self.snapshot), "--catalog", str(self.catalog)]
        return CliRunner().invoke(APP, ["explain", *files, *arguments])

    def fails(self, *arguments: str, code: int = 1, snapshot: Path | str | None = None) -> str:
        """Run it, expecting that exit code, nothing on standard output and no traceback; returns what it says."""
        result = self.run(*arguments, snapshot=snapshot)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        assert isinstance(result.exception, SystemExit)
        return str(result.stderr)
