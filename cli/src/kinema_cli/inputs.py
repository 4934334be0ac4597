"""Inputs of the planning verbs: a snapshot or a live cluster, and a catalog; each error names what to do."""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from kinema_cli.output import counted, listed, print_error, print_hint, print_note

if TYPE_CHECKING:
    from kinema_cli.snapshot.file import Snapshot
    from kinema_core.events import Offer
    from kinema_core.model.catalog import CatalogRow
    from kinema_core.model.cluster import Cluster
    from kinema_core.model.price_table import PriceTable, TableCatalog
    from kinema_optimizer.settings import PolicyName

T = TypeVar("T")

OLD_PRICES: Final = timedelta(days=30)
"""Age above which prices are reported as old."""
MOST_NAMES: Final = 5
"""Number of names that a message lists."""
_NO_BROKER: Final = "is the broker running? start it with `kinema up`, or set KINEMA_NATS to its address"
_SETTING: Final = re.compile(r"(?<![\w/.-])nats_[a-z_]+(?![\w/.-])")
"""Name of a setting of the broker in a text, and no part of a path."""


class UsageError(Exception):
    """The command line asks for something that does not exist; the text names what does."""


class InputError(Exception):
    """A file cannot be used; the text names it and the place in it, each line one fault. `hint`: what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def fail(error: Exception) -> int:
    """Print why a command cannot go on; returns its exit code, 2 for wrong arguments and else 1."""
    text = re.sub(
        r"\[Errno (\d+)\] Connect call failed \([^)]*\)", lambda m: os.strerror(int(m[1])).lower(), str(error)
    )
    if type(error).__name__.startswith("Bus"):
        text = as_variables(text)
    for line in text.split("\n"):
        print_error(line)
    unreachable = _NO_BROKER if type(error).__name__ == "BusUnavailableError" else ""
    if hint := getattr(error, "hint", unreachable):
        print_hint(hint)
    return 2 if isinstance(error, UsageError) else 1


def as_variables(text: str) -> str:
    """Return a text about the broker with the variables of the command line in place of a service's settings."""
    return _SETTING.sub(lambda setting: f"KINEMA_{setting[0].upper()}", text)


def near_names(name: str, known: Sequence[str]) -> str:
    """Return the known names that contain this one, else those spelled like it, as the end of a message."""
    import difflib

    near = [one for one in known if name in one] or difflib.get_close_matches(name, known, n=MOST_NAMES, cutoff=0.5)
    return f"; similar names: {', '.join(near[:MOST_NAMES])}" if near else ""


def policy_named(name: str) -> PolicyName:
    """Return the policy of a name; raises UsageError where there is none."""
    from kinema_optimizer.settings import PolicyName

    known: tuple[PolicyName, ...] = get_args(PolicyName)
    found = next((one for one in known if one == name), None)
    if found is None:
        raise UsageError(f"--policy {name}: no such policy; choose from {', '.join(known)}")
    return found


def kubeconfig_file(given: Path | None) -> Path:
    """Return the named file, or a list as in `KUBECONFIG=a:b`; else `$KUBECONFIG`, then `~/.kube/config`.

    Raises:
        InputError: none of the files exists.
    """
    from kinema_kubernetes.kubeconfig import kubeconfig_files

    path = _kubeconfig(given)
    if any(file.expanduser().is_file() for file in kubeconfig_files(path)):
        return path
    if given is not None:
        raise InputError(f"--kubeconfig {path}: no such file; name the kubeconfig of a cluster")
    raise InputError(f"{path}: no such file; name a kubeconfig with --kubeconfig, or a file with --snapshot")


def _kubeconfig(given: Path | None) -> Path:
    return given or Path(os.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser())


def cluster_name(given: str, kubeconfig: Path | None = None, context: str = "") -> str:
    """Return the cluster's name in events: the given one, else the context's, in the characters of a subject."""
    from kinema_kubernetes.kubeconfig import current_context

    name = given or context or current_context(_kubeconfig(kubeconfig))
    return name if given else re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "local"


def check_output(path: Path | None, option: str) -> None:
    """Check that a file can be written, before any work is done for it; makes nothing, raises InputError."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path}: is a directory: name a file in it")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no directory {path.parent}: make it, or name another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option} {path}: may not be written: name another place")


def snapshot_of(file: Path | None, context: str, kubeconfig: Path | None = None) -> Snapshot:
    """Return the cluster of a file, else the live one of the context, which is named on standard error.

    Raises:
        UsageError: a file and a live cluster are given.
        InputError: it cannot be read.
    """
    from kinema_cli.snapshot.file import SnapshotError, load_snapshot

    if file is not None:
        if context or kubeconfig is not None:
            raise UsageError("--snapshot is given with --context or --kubeconfig; give one cluster")
        try:
            return load_snapshot(file)
        except SnapshotError as error:
            raise InputError(f"--snapshot {error}") from error
    from kinema_cli.snapshot.live import live_snapshot
    from kinema_kubernetes.kubeconfig import current_context

    path = kubeconfig_file(kubeconfig)
    print_note(f"cluster: {cluster_name('', path, context)} (context {context or current_context(path) or 'none'})")
    try:
        return live_snapshot(context, None if kubeconfig is None else path)
    except SnapshotError as error:
        raise InputError(str(error)) from error


@dataclass(frozen=True)
class PriceChoice:
    """Where prices come from: a catalog, else the tables that ship with Kinema; discounts change either.

    `families`: patterns of further machine types that the tables are to offer, as given: `n2-*,c2-*`.
    """

    catalog: Path | None = None
    discounts: Path | None = None
    families: str = ""


@dataclass(frozen=True)
class Prices:
    """What is on sale to a cluster; `said` is where the prices are from and of when, empty where nothing is known."""

    rows: tuple[CatalogRow, ...]
    offers: tuple[Offer, ...]
    said: str
    priced: datetime | None = None
    warnings: tuple[str, ...] = ()
    remedy: str = "add the offers to the catalog"
    """What to do about a machine without a price."""


def prices_of(choice: PriceChoice, snapshot: Snapshot, tables: tuple[PriceTable, ...] | None = None) -> Prices:
    """Return what is on sale to this cluster; without a catalog, by these tables or those that ship with Kinema.

    Raises:
        UsageError: options contradict each other.
        InputError: a file cannot be used, or no table knows a machine type of the cluster.
    """
    from kinema_core.model.catalog import offers_from

    if choice.catalog is not None:
        if choice.families:
            raise UsageError("--offer is given with --catalog; a catalog lists what is on offer")
        found = _catalog_prices(choice.catalog, snapshot.now)
    else:
        found = _table_prices(choice, snapshot, tables)
    if choice.discounts is not None:
        found = _with_discounts(found, choice.discounts)
    return replace(found, offers=offers_from(found.rows, snapshot.cluster))


def _catalog_rows(path: Path) -> tuple[CatalogRow, ...]:
    from kinema_core.model.catalog import parse_catalog

    return parse_catalog_file(path, "--catalog", parse_catalog)


def _with_discounts(found: Prices, path: Path) -> Prices:
    from kinema_core.model.discounts import parse_discounts, with_discounts, without_offer

    discounts = parse_catalog_file(path, "--discounts", parse_discounts)
    unused = [
        f"--discounts {path}: there is no offer of machine type {one.machine_type} in zone {one.zone} "
        f"({one.capacity_type}); its line changes no price"
        for one in without_offer(found.rows, discounts)
    ]
    rows = tuple(with_discounts(found.rows, discounts))
    return replace(found, rows=rows, said=f"{found.said}, with {path.name}", warnings=(*found.warnings, *unused))


def parse_catalog_file(path: Path, option: str, parse: Callable[[str], T]) -> T:
    """Return what a CSV file says; raises InputError."""
    from kinema_core.model.catalog import CatalogError

    try:
        return parse(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{option} {path}: is no text in UTF-8 (byte {error.start}): save it as such") from error
    except CatalogError as error:
        raise InputError(f"{option} {path}: {error}") from error


def _table_prices(choice: PriceChoice, snapshot: Snapshot, tables: tuple[PriceTable, ...] | None) -> Prices:
    """Return what price tables sell to the cluster."""
    from kinema_core.model.catalog import machine_of
    from kinema_core.model.price_table import REGION, table_catalog
    from kinema_core.prices import price_tables

    patterns = [pattern.strip() for pattern in choice.families.split(",") if pattern.strip()]
    found = table_catalog(snapshot.cluster, price_tables() if tables is None else tables, more=patterns)
    if not found.rows:
        types = sorted({machine_of(node)[0] for node in snapshot.cluster.nodes})
        regions = sorted({node.labels.get(REGION[0], "unknown") for node in snapshot.cluster.nodes})
        raise InputError(
            f"no price table has a machine type of this cluster ({listed(types, MOST_NAMES)}) in its region "
            f"({listed(regions, MOST_NAMES)}, by the label {REGION[0]})",
            hint="give prices in --catalog FILE, a CSV with machine_type,vcpus,memory_gib,usd_per_hour",
        )
    old = [
        f"{_old(f'prices of {cloud} {region}', date, snapshot.now)} (from {source}); {_NEWER.get(cloud, _GIVEN)}"
        for cloud, region, date, source in found.used
        if snapshot.now - date > OLD_PRICES
    ]
    return Prices(found.rows, (), found.source, found.priced, (*old, *_unsold(patterns, found)), remedy=_COMPLETE)


def _unsold(patterns: Sequence[str], found: TableCatalog) -> Iterator[str]:
    """Yield a warning for each pattern of `--offer` to which the tables sell the cluster nothing."""
    sold = {row.machine_type for row in found.rows}
    for pattern in patterns:
        if not fnmatch.filter(sold, pattern):
            yield f"--offer {pattern}: no such machine type is on sale here{near_names(pattern, sorted(found.known))}"


def labels_in(text: str) -> dict[str, str]:
    """Return the labels of `KEY=VALUE,…`; raises UsageError."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(key.strip() and equals for key, equals, _ in pairs):
        raise UsageError(f"--scope {text!r}: write labels of nodes as KEY=VALUE,KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in pairs}


def scope_warnings(scope: Sequence[str], snapshot: Snapshot) -> Iterator[str]:
    """Yield a warning for each `--scope` that no node is in."""
    for text in scope:
        wanted = labels_in(text).items()
        if not any(wanted <= node.labels.items() for node in snapshot.cluster.nodes):
            yield f"--scope {text}: no node has these labels"


def check_prices(snapshot: Snapshot, prices: Prices) -> tuple[str, ...]:
    """Return a warning for each missing offer, before anything is solved: its nodes stay.

    Raises:
        InputError: no node has a price; has a line for each missing offer.
    """
    from kinema_core.model.catalog import by_reason, unpriced_nodes
    from kinema_core.model.vocabulary import PRICE

    unknown = unpriced_nodes(snapshot.cluster, prices.offers)
    lines = [
        f"missing price: {offer} ({counted(len(names), 'node')}: {listed(names, MOST_NAMES)})"
        for offer, names in sorted(by_reason(unknown).items())
    ]
    hint = f"{prices.remedy}, or annotate the nodes with {PRICE}"
    if unknown and len(unknown) == len(snapshot.cluster.nodes):
        raise InputError("\n".join(lines), hint=hint)
    if not lines:
        return ()
    return (*(f"{line}; no plan deletes them, and they count nothing" for line in lines), f"to give prices, {hint}")


def _old(prices: str, date: datetime, now: datetime) -> str:
    return f"{prices} are of {date:%Y-%m-%d}, {counted((now - date).days, 'day')} old"


def _catalog_prices(path: Path, now: datetime) -> Prices:
    """Return a catalog's rows with the date of its prices by its remarks, else the file's, where either is known."""
    from datetime import UTC, datetime

    from kinema_core.model.catalog import dated

    rows = _catalog_rows(path)
    try:
        priced = dated(path.read_text(encoding="utf-8-sig"))
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return Prices(rows, (), "")  # a pipe, or deleted since it was read
    if priced is None:
        said = f"{path.name} has no price date (add `# prices of YYYY-MM-DD`); file modified {changed:%Y-%m-%d}"
        return Prices(rows, (), said)
    old = (f"{_old(f'prices in {path.name}', priced, now)}; update them",) if now - priced > OLD_PRICES else ()
    return Prices(rows, (), f"of {priced:%Y-%m-%d} ({path.name})", priced, old)


_NEWER: Final = {
    cloud: f"write newer ones with `kinema prices --from {cloud}`, and give them in --catalog"
    for cloud in ("gce", "azure")
}
"""What to do about old prices, by cloud that has a public price list."""
_GIVEN: Final = "give newer ones in --catalog"
_COMPLETE: Final = (
    "write a catalog with `kinema prices > prices.csv`, add the offers, and give it in --catalog (spot prices can be "
    "estimated in --discounts)"
)
NO_BUDGETS: Final = (
    "the cluster has no PodDisruptionBudget: Kinema takes at most one pod of a workload away before another is Ready, "
    "and nothing else keeps more of them from being evicted at once"
)
GIVE_BUDGETS: Final = "give one to each workload that needs more of its pods"
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
"""Content of a complete snapshot, as a plan without it is less careful: name → internal kind, Kubernetes' kinds."""


def check_whole(snapshot: Snapshot) -> None:
    """Check that few nodes are absent that pods run on: a plan would count those pods as gone.

    Raises:
        InputError: too many are, by the measure of the decider, which would reject the plan.
    """
    from kinema_core.model.missing import missing_objects
    from kinema_decider.logic.limits import Limits

    found = missing_objects(snapshot.cluster, Limits().missing_share)
    if found is not None and found.kind == "nodes":
        raise InputError(
            f"the cluster's state lacks {found.missing} of {found.expected} nodes, which its pods run on",
            hint="take it again, with all nodes",
        )


def input_warnings(snapshot: Snapshot) -> Iterator[str]:
    """Yield what the plan cannot take into account."""
    yield from _ignored_kinds(snapshot)
    yield from _missing_kinds(snapshot)
    cluster = snapshot.cluster
    lost = sum(pod.node is not None and cluster.node(pod.node) is None for pod in cluster.pods)
    if lost:
        yield f"{counted(lost, 'pod')} on nodes that are missing or unreadable: the plan makes no room for such pods"
    yield from _shared_uids(snapshot)
    absent = [node.name for node in cluster.nodes if not node.ready]
    if absent:
        yield (
            f"{counted(len(absent), 'node')} not Ready: {listed(absent, MOST_NAMES)}; the plan assumes that their pods "
            "run, adds none, and leaves their zones a node that takes pods"
        )
    count = len(cluster.quarantined)
    if count:
        yield f"{counted(count, 'object')} could not be read; the plan assumes the strictest rules for them"


def _ignored_kinds(snapshot: Snapshot) -> Iterator[str]:
    """Yield kinds without effect on placement, and namesakes of others in a foreign API group."""
    from kinema_observer.logic.kubernetes import is_read

    for why, known in (
        ("planning needs none of them", False),
        ("their API group is not the one of Kubernetes for this kind", True),
    ):
        kinds = [f"{n:,} {kind}" for kind, n in sorted(snapshot.ignored.items()) if is_read(kind, "") == known]
        if kinds:
            yield f"not read, as {why}: {', '.join(kinds)}"


def _shared_uids(snapshot: Snapshot) -> Iterator[str]:
    """Yield objects with the uid of another: no cluster has such, so the file was edited, and owners are ambiguous."""
    cluster = snapshot.cluster
    shared: dict[tuple[str, str], list[str]] = {}
    for items in (cluster.nodes, cluster.pods, cluster.workloads):
        for item in items:
            shared.setdefault((type(item).__name__, item.uid), []).append(item.key)
    twice = [f"{kind} {' and '.join(keys[:2])}" for (kind, _), keys in sorted(shared.items()) if len(keys) > 1]
    if twice:
        yield f"the same uid: {listed(twice, MOST_NAMES)}; the plan identifies them by name, but owners may be confused"


def _missing_kinds(snapshot: Snapshot) -> Iterator[str]:
    """Yield kinds of which the file has no object, apart from those of which none could be read."""
    unreadable = Counter(item.object.partition(" ")[0] for item in snapshot.cluster.quarantined)
    none = {
        name: sum(unreadable[kind] for kind in kinds)
        for name, (ours, kinds) in _EXPECTED.items()
        if not snapshot.cluster.objects.get(ours)
    }
    damaged = ", ".join(f"{name} ({count})" for name, count in none.items() if count)
    if damaged:
        yield f"the snapshot contains {damaged}, but none of them could be read"
    if snapshot.live:  # what a cluster does not list does not exist
        if none.get("poddisruptionbudgets") == 0:
            yield f"{NO_BUDGETS}; {GIVE_BUDGETS}"
        return
    if none.pop("pods", None) == 0:
        yield "the snapshot contains no pods: every node looks empty; the plan is meaningless if the cluster runs any"
    absent = ", ".join(name for name, count in none.items() if not count)
    if absent:
        yield f"the snapshot contains no {absent}; if your cluster has them, this plan ignores their rules"
    named = ", ".join(name for kind, name in _named_and_absent(snapshot.cluster) if not unreadable[kind])
    if named:
        yield f"the snapshot contains no {named}, to which others in it refer; pods that depend on one are not moved"


def _named_and_absent(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield kinds of storage to which objects refer and of which the file has no readable object."""
    claims = cluster.claims
    for kind, there, referred in (
        ("PersistentVolumeClaim", claims, any(pod.rules.claims for pod in cluster.pods)),
        ("PersistentVolume", cluster.volumes, any(claim.volume is not None for claim in claims)),
        ("StorageClass", cluster.storage_classes, any(not claim.volume and claim.storage_class for claim in claims)),
    ):
        if referred and not there:
            yield kind, f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
