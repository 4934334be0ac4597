"""The `kinema` command: registers its verbs; each loads what it needs when it is called, so that help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinema_cli.admin.rbac import rbac
from kinema_cli.doctor.command import doctor
from kinema_cli.explain.command import explain
from kinema_cli.options import BROKER, CLUSTER, ClusterName, Context, Kubeconfig, Nats, ProviderOption
from kinema_cli.output import complain
from kinema_cli.plan.command import plan
from kinema_cli.status.command import status
from kinema_cli.status.plans_command import plans

app = typer.Typer(
    name="kinema",
    help="Makes Kubernetes clusters as cheap as they can safely be.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing rich for it doubles the start-up time
    add_completion=True,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"kinema {version('kinema-cli')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None:
    """Makes Kubernetes clusters as cheap as they can safely be."""


app.command()(plan)
app.command()(explain)
app.command()(status)
app.command()(plans)
app.command()(rbac)
app.command()(doctor)

OutDir = Annotated[Path, typer.Option("--out", help="Directory for recording, report and logs; made anew.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; stands in the log and in `kinema status`.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the simulated cluster and of the solver.")]


@app.command()
def demo(
    out: OutDir = Path("out/demo"),
    seed: Seed = 0,
    speed: Annotated[float, typer.Option("--speed", help="Cluster seconds per second.")] = 10.0,
    timeout: Annotated[float, typer.Option("--timeout", help="Give up after this many seconds.")] = 170.0,
) -> None:
    """Run the whole pipeline on this machine, on a simulated cluster left behind by a traffic peak."""
    from kinema_cli.local.demo import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(out=out, seed=seed, speed=speed, timeout=timeout)))


@app.command()
def record(
    out: Annotated[Path, typer.Option("--out", help="File to write: .jsonl, .jsonl.gz or .jsonl.zst.")],
    nats: Nats = BROKER,
    cluster: ClusterName = CLUSTER,
) -> None:
    """Write all events that the streams hold to a file."""
    from kinema_cli.replay.record import run_record

    raise typer.Exit(run_record(nats=nats, cluster=cluster, out=out))


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A recording made by `kinema record` or `kinema demo`.")],
    stage: Annotated[
        str | None, typer.Option("--stage", help="Only predictor, optimizer, decider or rescheduler.")
    ] = None,
    start: Annotated[int, typer.Option("--from", help="First sequence of the log to decide again.")] = 1,
    end: Annotated[int | None, typer.Option("--to", help="Last sequence of the log to decide again.")] = None,
    speed: Annotated[
        float, typer.Option("--speed", help="Pace: 1 as recorded, 10 ten times as fast, 0 as fast as possible.")
    ] = 0.0,
    assert_: Annotated[bool, typer.Option("--assert", help="Exit 1 unless every decision is byte-equal.")] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the first event that differs, field by field; exit 1.")
    ] = False,
) -> None:
    """Decide again on recorded events, and compare with what was decided then."""
    from kinema_cli.replay.command import run_replay

    raise typer.Exit(
        run_replay(file=file, stage=stage, start=start, end=end, speed=speed, strict=assert_, show_diff=diff)
    )


@app.command()
def setup(
    nats: Annotated[
        str, typer.Option("--nats", help="Broker whose streams are made, with an administrator's credentials.")
    ] = "",
    clusters: Annotated[
        list[str] | None, typer.Option("--cluster", help="With --nats: name of a cluster; repeat for several.")
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", help="Copies of each stream: 1, 3 or 5.")] = 1,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Cluster whose new pods are to be steered by admission policy.")
    ] = None,
    context: Annotated[
        str, typer.Option("--context", help="With --kubeconfig: context in it; else its current one.")
    ] = "",
    steering: Annotated[
        bool, typer.Option("--steering/--no-steering", help="With --kubeconfig: install that policy, or remove it.")
    ] = True,
) -> None:
    """Make streams, consumers and the lease bucket on a broker, or install the policy that steers a cluster's new pods.

    --nats with --cluster does the first, --kubeconfig the second; with all three it does both. Running it again
    changes nothing.
    """
    from kinema_cli.admin.setup import Steering, run_setup
    from kinema_core.runtime.yaml_files import current_context

    if context and kubeconfig is None:
        complain("--context is one of a kubeconfig: give that, too, as --kubeconfig")
        raise typer.Exit(2)
    wish = None
    if kubeconfig is not None:
        wish = Steering(kubeconfig, steering, context or current_context(kubeconfig))
    raise typer.Exit(run_setup(nats=nats, clusters=clusters or [], replicas=replicas, steering=wish))


@app.command()
def up(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    provider: ProviderOption,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    cluster: ClusterName = CLUSTER,
    out: Annotated[Path, typer.Option("--out", help="Directory for settings and logs.")] = Path("out/up"),
    settings: Annotated[
        Path | None, typer.Option("--settings", help="JSON or YAML: settings by service that differ from the defaults.")
    ] = None,
    nats: Annotated[
        str, typer.Option("--nats", help="A broker that was set up, with a user of all services; else one is started.")
    ] = "",
    workers: Annotated[int, typer.Option("--workers", help="Processes more that share the solves.")] = 0,
    steering: Annotated[
        bool, typer.Option("--steering/--no-steering", help="Steer new pods to the planned nodes by admission policy.")
    ] = True,
) -> None:
    """Run the five services and a broker as processes of this machine, until interrupted."""
    from kinema_cli.local.up import UpOptions, run_up

    raise typer.Exit(
        run_up(
            UpOptions(
                kubeconfig=kubeconfig,
                context=context,
                provider=provider,
                cluster=cluster,
                out=out,
                settings=settings,
                nats=nats,
                workers=workers,
                steering=steering,
            )
        )
    )


@app.command()
def pause(nats: Nats = BROKER, cluster: ClusterName = CLUSTER, reason: Reason = "") -> None:
    """Let no new plan be carried out. What runs goes on."""
    from kinema_cli.control import operator, say
    from kinema_core.events import ExecutionPaused

    raise typer.Exit(say(nats=nats, cluster=cluster, word=ExecutionPaused(by=operator(), reason=reason)))


@app.command()
def resume(nats: Nats = BROKER, cluster: ClusterName = CLUSTER) -> None:
    """End a pause."""
    from kinema_cli.control import operator, say
    from kinema_core.events import ExecutionResumed

    raise typer.Exit(say(nats=nats, cluster=cluster, word=ExecutionResumed(by=operator())))


@app.command()
def approve(
    plan: Annotated[str, typer.Argument(help="Id of the plan, as `kinema plans` shows it.")],
    nats: Nats = BROKER,
    cluster: ClusterName = CLUSTER,
) -> None:
    """Approve a plan that waits for it."""
    from kinema_cli.control import operator, say
    from kinema_core.events import PlanApproved

    raise typer.Exit(say(nats=nats, cluster=cluster, word=PlanApproved(plan=plan, by=operator())))


@app.command()
def abort(nats: Nats = BROKER, cluster: ClusterName = CLUSTER, reason: Reason = "") -> None:
    """Give up the plan that is being carried out, and roll it back.

    That is no pause: the next plan may have the same aim, and is carried out unless `kinema pause` came before.
    """
    from kinema_cli.control import operator, say
    from kinema_core.events import AbortRequested

    raise typer.Exit(say(nats=nats, cluster=cluster, word=AbortRequested(by=operator(), reason=reason)))
