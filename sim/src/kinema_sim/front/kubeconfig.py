"""The kubeconfig by which the usual clients find the simulated cluster."""

import json
from pathlib import Path


def write_kubeconfig(path: Path, *, url: str, token: str) -> None:
    """Write a kubeconfig with one cluster, user and context named `kinema-sim` (JSON, which is YAML)."""
    name = "kinema-sim"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
