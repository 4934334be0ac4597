"""What the planning verbs read: a snapshot or a live cluster, and a catalog; each error names what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinema_cli.output import complain, counted

if TYPE_CHECKING:
    from kinema_cli.snapshot import Snapshot
    from kinema_core.events import Offer


class UsageError(Exception):
    """The command line asks for something that does not exist; the text says what does."""


class InputError(Exception):
    """A file cannot be used; the text names it, the place in it and what to do."""


def kubeconfig_file(given: Path | None) -> Path:
    """The file that was named, else kubectl's own place; raises InputError where there is none."""
    path = given if given is not None else Path("~/.kube/config").expanduser()
    if not path.is_file():
        raise InputError(f"{path}: no such file: name the kubeconfig of one cluster with --kubeconfig")
    return path


def snapshot_of(file: Path | None, context: str | None, kubeconfig: Path | None = None) -> Snapshot:
    """The cluster of a file, or a live one by context, kubeconfig or both; raises UsageError, InputError."""
    from kinema_cli.snapshot import SnapshotError, load_snapshot

    try:
        live = context is not None or kubeconfig is not None
        if file is not None and not live:
            return load_snapshot(file)
        if live and file is None:
            from kinema_cli.live import live_snapshot

            return live_snapshot(context or "", None if kubeconfig is None else kubeconfig_file(kubeconfig))
    except SnapshotError as error:
        raise InputError(str(error)) from error
    raise UsageError("give either --snapshot FILE, or --context NAME or --kubeconfig FILE: for which cluster?")


def offers_of(path: Path, snapshot: Snapshot) -> tuple[Offer, ...]:
    """What the catalog sells to this cluster."""
    from kinema_core.model.catalog import CatalogError, offers_from, parse_catalog

    try:
        return offers_from(parse_catalog(path.read_text(encoding="utf-8-sig")), snapshot.cluster)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is no text in UTF-8: {error.reason} at byte {error.start}") from error
    except CatalogError as error:
        raise InputError(f"{path}: {error}") from error


_EXPECTED: Final = {
    "controllers (replicasets, deployments, …)": "Workload",
    "poddisruptionbudgets": "DisruptionBudget",
    "namespaces": "Namespace",
}
"""What a whole snapshot nearly always holds, and whose absence makes a plan bolder."""


def say_what_is_left_out(snapshot: Snapshot) -> None:
    """Tell on standard error what the plan cannot know of."""
    if snapshot.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(snapshot.ignored.items()))
        complain(f"not read, as planning needs none of them: {kinds}")
    unreadable = any(item.object.startswith("Pod ") for item in snapshot.cluster.quarantined)
    if not snapshot.cluster.objects.get("Pod") and not unreadable and not snapshot.live:
        complain("no pod in the file: every node looks empty, and the plan means nothing if the cluster runs any")
    lost = sum(pod.node is not None and snapshot.cluster.node(pod.node) is None for pod in snapshot.cluster.pods)
    if lost:
        complain(
            f"{counted(lost, 'pod')} on nodes that are missing or unreadable: the plan makes no room for such pods"
        )
    absent = [name for name, kind in _EXPECTED.items() if not snapshot.cluster.objects.get(kind)]
    if absent and not snapshot.live:
        complain(f"none in the file: {', '.join(absent)}; if the cluster has any, their rules are missing in this plan")
    count = len(snapshot.cluster.quarantined)
    if count:
        complain(f"{counted(count, 'object')} could not be read; what that might forbid is taken as forbidden")
