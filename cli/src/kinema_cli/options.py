"""Options that several verbs share, so that they are said the same way everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from kinema_cli.output import Format

SnapshotFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--snapshot", help="What `kubectl get … -A -o json` or yaml printed; .gz and .zst too, - for a pipe."),
]
ContextName: TypeAlias = Annotated[
    str | None,
    typer.Option("--context", help="A live cluster, by its context in the kubeconfig."),
]
LiveFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="A live cluster, by its file; without --context the current one in it."),
]
BROKER: Final = "nats://127.0.0.1:4222"
CLUSTER: Final = "local"
Nats: TypeAlias = Annotated[
    str, typer.Option("--nats", envvar="KINEMA_NATS", help="Broker: nats://user:password@host:port.")
]
ClusterName: TypeAlias = Annotated[
    str, typer.Option("--cluster", envvar="KINEMA_CLUSTER", help="Name of the cluster in events.")
]
Kubeconfig: TypeAlias = Annotated[
    Path | None,
    typer.Option("--kubeconfig", envvar="KUBECONFIG", help="Which cluster: a file, or a:b; else ~/.kube/config."),
]
Context: TypeAlias = Annotated[str, typer.Option("--context", help="Context in the kubeconfig; else its current one.")]
ProviderOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--provider",
        metavar="KIND=WHERE",
        help="Who boots and deletes nodes: sim=URL, kwok=CATALOG, delegate=CATALOG or static=INVENTORY.",
    ),
]
MoveJobs: TypeAlias = Annotated[bool, typer.Option("--move-jobs", help="Pods of Jobs may be moved.")]
AllowSpot: TypeAlias = Annotated[bool, typer.Option("--allow-spot", help="Any pod may be put on spot machines.")]
Output: TypeAlias = Annotated[Format, typer.Option("--output", "-o", help="How to print it.")]
