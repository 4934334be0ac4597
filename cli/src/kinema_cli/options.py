"""Options that several commands share, so that each has one name and one meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from kinema_cli.output import Format

BROKER: Final = "nats://127.0.0.1:4222"

SnapshotFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--snapshot",
        metavar="FILE",
        help="Read the cluster from the output of `kubectl get … -A -o json` (or yaml, .gz, .zst; - for standard "
        "input) instead of the API server.",
    ),
]
Kubeconfig: TypeAlias = Annotated[
    Path | None,
    typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config."),
]
Context: TypeAlias = Annotated[
    str, typer.Option("--context", metavar="NAME", help="Context in the kubeconfig. Default: its current context.")
]
Nats: TypeAlias = Annotated[
    str,
    typer.Option(
        "--nats",
        envvar="KINEMA_NATS",
        metavar="URL",
        help="Broker, as nats://user@host:port; the file in $KINEMA_NATS_PASSWORD_FILE holds the password.",
    ),
]
ClusterName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--cluster-name",
        envvar="KINEMA_CLUSTER",
        metavar="NAME",
        help="Name of the cluster in events. Default: derived from the current context.",
        show_default=False,
    ),
]
Namespace: TypeAlias = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of the pod or workload.")
]
ProviderOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--provider",
        metavar="KIND=LOCATION",
        help="Node provider: sim=URL, kwok=CATALOG, delegate=CATALOG, karpenter=NODEPOOL, "
        "cluster-api=NAMESPACE/CLUSTER, gke=PROJECT/LOCATION/CLUSTER or static=INVENTORY.",
    ),
]
Catalog: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--catalog",
        metavar="FILE",
        help="CSV of machine types and prices. Default: on-demand prices of EC2, GCE and Azure that ship with Kinema.",
    ),
]
Discounts: TypeAlias = Annotated[
    Path | None,
    typer.Option("--discounts", metavar="FILE", help="CSV of contract prices and discounts, applied to the prices."),
]
MoreOffers: TypeAlias = Annotated[
    str,
    typer.Option(
        "--offer",
        metavar="PATTERNS",
        help="More machine types to offer, such as n2-*,c2-*, besides the families of the nodes; without a catalog.",
    ),
]
MoveJobs: TypeAlias = Annotated[bool, typer.Option("--move-jobs", help="Allow moving pods of Jobs.")]
AllowSpot: TypeAlias = Annotated[bool, typer.Option("--allow-spot", help="Allow any pod on spot machines.")]
Scope: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--scope", metavar="KEY=VALUE,…", help="Plan for nodes with these labels alone; given again: or with those."
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the search.")]
Reason: TypeAlias = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Reason; shown by `kinema status` and in the log.")
]
Output: TypeAlias = Annotated[Format, typer.Option("--output", "-o", metavar="FORMAT", help="table, json or yaml.")]
