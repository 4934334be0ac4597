"""What the planning verbs read: a snapshot or a live cluster, and a catalog; each error names what to do."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinema_cli.output import complain, counted

if TYPE_CHECKING:
    from kinema_cli.snapshot.file import Snapshot
    from kinema_core.events import Offer
    from kinema_core.model.cluster import Cluster


class UsageError(Exception):
    """The command line asks for something that does not exist; the text says what does."""


class InputError(Exception):
    """A file cannot be used; the text names it, the place in it and what to do."""


def kubeconfig_file(given: Path | None) -> Path:
    """The file that was named, or a list as in `KUBECONFIG=a:b`, else kubectl's own place.

    Raises:
        InputError: no file of it is there.
    """
    from kinema_core.runtime.yaml_files import kubeconfig_files

    path = given if given is not None else Path("~/.kube/config").expanduser()
    if any(file.expanduser().is_file() for file in kubeconfig_files(path)):
        return path
    if given is not None:
        raise InputError(f"--kubeconfig {path}: no such file: name the kubeconfig of one cluster")
    raise InputError(f"{path}: no such file: name the kubeconfig of one cluster with --kubeconfig")


def check_output(path: Path | None, option: str) -> None:
    """See before any work is done for it that a file can be written; makes nothing, raises InputError."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path}: is a directory: name a file in it")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no directory {path.parent}: make it, or name another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option} {path}: may not be written: name another place")


def snapshot_of(file: Path | None, context: str | None, kubeconfig: Path | None = None) -> Snapshot:
    """The cluster of a file, or a live one by context, kubeconfig or both; raises UsageError, InputError."""
    from kinema_cli.snapshot.file import SnapshotError, load_snapshot

    live = context is not None or kubeconfig is not None
    if file is not None and not live:
        try:
            return load_snapshot(file)
        except SnapshotError as error:
            raise InputError(f"--snapshot {error}") from error
    if live and file is None:
        from kinema_cli.snapshot.live import live_snapshot

        try:
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
        raise InputError(f"--catalog {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--catalog {path}: is no text in UTF-8 (byte {error.start}): save it as such") from error
    except CatalogError as error:
        raise InputError(f"--catalog {path}: {error}") from error


def age_of_prices(path: Path) -> str:
    """From when a catalog's prices are, by its remarks; else how old the file is. For one that was read before."""
    from datetime import UTC, datetime

    from kinema_core.model.catalog import dated

    try:
        said = dated(path.read_text(encoding="utf-8-sig"))
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return ""  # a pipe, or gone since
    if said is not None:
        return f"of {said:%Y-%m-%d}, as {path.name} says"
    return f"{path.name} does not date them (`# prices of YYYY-MM-DD`); it was written on {changed:%Y-%m-%d}"


_NAMES: Final = 5
_EXPECTED: Final = {
    "nodes": ("Node", ("Node",)),
    "pods": ("Pod", ("Pod",)),
    "controllers (replicasets, deployments, …)": (
        "Workload",
        ("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicationController"),
    ),
    "poddisruptionbudgets": ("DisruptionBudget", ("PodDisruptionBudget",)),
    "namespaces": ("Namespace", ("Namespace",)),
}
"""What a whole snapshot nearly always holds, and makes a plan bolder where it lacks: our kind, those of Kubernetes."""


def say_what_is_left_out(snapshot: Snapshot) -> None:
    """Tell on standard error what the plan cannot know of."""
    _say_what_is_ignored(snapshot)
    _say_what_there_is_none_of(snapshot)
    lost = sum(pod.node is not None and snapshot.cluster.node(pod.node) is None for pod in snapshot.cluster.pods)
    if lost:
        complain(
            f"{counted(lost, 'pod')} on nodes that are missing or unreadable: the plan makes no room for such pods"
        )
    _say_whose_uids_are_shared(snapshot)
    absent = [node.name for node in snapshot.cluster.nodes if not node.ready]
    if absent:
        names = ", ".join(absent[:_NAMES]) + (" …" if len(absent) > _NAMES else "")
        complain(
            f"{counted(len(absent), 'node')} not Ready: {names}; the plan takes their pods to run, adds none, and "
            "leaves their zones a node that takes pods"
        )
    count = len(snapshot.cluster.quarantined)
    if count:
        complain(f"{counted(count, 'object')} could not be read; what that might forbid is taken as forbidden")


def _say_what_is_ignored(snapshot: Snapshot) -> None:
    """Tell kinds that say nothing about placement from namesakes of those that do."""
    from kinema_observer.logic.kubernetes import is_read

    for why, known in (
        ("planning needs none of them", False),
        ("their API group is not the one of Kubernetes for this kind", True),
    ):
        kinds = [f"{n:,} {kind}" for kind, n in sorted(snapshot.ignored.items()) if is_read(kind, "") == known]
        if kinds:
            complain(f"not read, as {why}: {', '.join(kinds)}")


def _say_whose_uids_are_shared(snapshot: Snapshot) -> None:
    """No cluster has two objects of a uid: somebody wrote them, and who owns whom cannot be told from it."""
    cluster = snapshot.cluster
    shared: dict[tuple[str, str], list[str]] = {}
    for items in (cluster.nodes, cluster.pods, cluster.workloads):
        for item in items:
            shared.setdefault((type(item).__name__, item.uid), []).append(item.key)
    twice = [f"{kind} {' and '.join(keys[:2])}" for (kind, _), keys in sorted(shared.items()) if len(keys) > 1]
    if twice:
        some = ", ".join(twice[:_NAMES]) + (" …" if len(twice) > _NAMES else "")
        complain(f"the same uid: {some}; the plan goes by names, but takes what a uid owns for one object's")


def _say_what_there_is_none_of(snapshot: Snapshot) -> None:
    """Tell apart kinds of which the file has no object, and those of which none could be read."""
    unreadable = Counter(item.object.partition(" ")[0] for item in snapshot.cluster.quarantined)
    none = {
        name: sum(unreadable[kind] for kind in kinds)
        for name, (ours, kinds) in _EXPECTED.items()
        if not snapshot.cluster.objects.get(ours)
    }
    damaged = ", ".join(f"{name} ({count})" for name, count in none.items() if count)
    if damaged:
        complain(f"there, but none of them could be read: {damaged}")
    if snapshot.live:  # what is absent there does not exist
        return
    if none.pop("pods", None) == 0:
        complain("no pod in the file: every node looks empty, and the plan means nothing if the cluster runs any")
    absent = ", ".join(name for name, count in none.items() if not count)
    if absent:
        complain(f"none in the file: {absent}; if the cluster has any, their rules are missing in this plan")
    named = ", ".join(name for kind, name in _named_and_absent(snapshot.cluster) if not unreadable[kind])
    if named:
        complain(f"none in the file: {named}, which others in it name; pods that depend on one stay, or get no place")


def _named_and_absent(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Kinds of storage that something in the file refers to, and of which the file has no object that can be read."""
    claims = cluster.claims
    for kind, there, referred in (
        ("PersistentVolumeClaim", claims, any(pod.rules.claims for pod in cluster.pods)),
        ("PersistentVolume", cluster.volumes, any(claim.volume is not None for claim in claims)),
        ("StorageClass", cluster.storage_classes, any(not claim.volume and claim.storage_class for claim in claims)),
    ):
        if referred and not there:
            yield kind, f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
