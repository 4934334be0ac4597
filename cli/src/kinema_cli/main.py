"""The `kinema` command: registers its commands; each loads what it needs when it is called, so that help is instant."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from kinema_cli.admin.backup import backup, restore
from kinema_cli.admin.nats_rights import nats_rights
from kinema_cli.admin.rbac import rbac
from kinema_cli.doctor.command import doctor
from kinema_cli.explain.command import explain
from kinema_cli.options import (
    BROKER,
    AllowSpot,
    Catalog,
    ClusterName,
    Context,
    Discounts,
    Kubeconfig,
    MoreOffers,
    MoveJobs,
    Nats,
    Output,
    ProviderOption,
    Reason,
    Scope,
    Seed,
    SnapshotFile,
)
from kinema_cli.output import Format
from kinema_cli.plan.command import plan
from kinema_cli.prices.command import prices
from kinema_cli.recommend.command import forecast, recommend
from kinema_cli.status.command import plans, status

_GROUPS: Final = {
    "Analyze (read-only)": ("plan", "diff", "explain", "recommend", "forecast", "prices", "replay"),
    "Run": ("demo", "up", "simulate"),
    "Operate": ("status", "plans", "approve", "pause", "resume", "abort", "record"),
    "Administer": ("doctor", "setup", "rbac", "nats-rights", "backup", "restore", "version"),
}
"""Headings of the help, and the commands below them."""


class _Commands(TyperGroup):
    """The commands in groups, with errors in the form of all others."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own classes are private
        """Write the commands under their headings."""
        for heading, names in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].short_help or "") for name in names])
        formatter.write_paragraph()
        formatter.write_text(f'Use "{ctx.command_path} COMMAND --help" for options and examples.')

    def main(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as typer declares it
        """Run; prints wrong arguments as `error: …` and exits with 2."""
        alone = options.get("standalone_mode", True)
        options["standalone_mode"] = False
        if not alone:
            return super().main(*args, **options)
        try:
            code = super().main(*args, **options)
        except TyperException as error:
            message = _wrong_value(error) or getattr(error, "format_message", error.__str__)()
            context = getattr(error, "ctx", None)
            if message.startswith("Usage: "):  # no arguments
                sys.stdout.write(f"{message}\n")
            elif message:
                sys.stderr.write(f"error: {message[0].lower()}{message[1:].rstrip('.')}\n")
                if context is not None:
                    sys.stderr.write(f"hint: see `{context.command_path} --help`\n")
            sys.exit(getattr(error, "exit_code", 1))
        except typer.Abort:
            sys.exit(130)
        sys.exit(code if isinstance(code, int) else 0)


def _wrong_value(error: TyperException) -> str:
    """Return which option has a value of the wrong type or range, and what to give; empty for any other error."""
    faults, param = getattr(error.__cause__, "errors", None), getattr(error, "param", None)
    if faults is None or param is None:
        return ""
    fault = faults()[0]
    limits = fault.get("ctx", {})
    remedies = {
        "int_parsing": "give a whole number",
        "float_parsing": "give a number",
        "greater_than_equal": f"give at least {limits.get('ge')}",
        "less_than_equal": f"give at most {limits.get('le')}",
    }
    other = fault["msg"].replace(f"Value error, {fault['input']!r} is not one of", "choose from")
    remedy = remedies.get(fault["type"], other)
    return f"{param.get_error_hint()} is {fault['input']!r}: {remedy}"


class _Command(TyperCommand):
    """A command whose help shows no types of Python."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own classes are private
        """Write the help; arguments are shown by their names alone."""
        super().format_help(ctx, formatter)
        formatter.buffer[:] = [re.sub(r" <(str|path)>|[{}]", "", part) for part in formatter.buffer]


app = typer.Typer(
    name="kinema",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing rich for it doubles the start-up time
    add_completion=True,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"kinema {version('kinema-cli')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find the cheapest set of nodes for your Kubernetes workloads, and move to it while services stay up."""


def _command(short: str, *examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command with its line in the overview and its examples."""
    epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
    return app.command(cls=_Command, short_help=short, epilog=epilog)


_command(
    "Show the cheapest cluster and what it saves",
    "kinema plan",
    "kinema plan --catalog prices.csv --discounts contract.csv",
    "kinema plan --snapshot cluster.json --catalog prices.csv --html plan.html",
    "kinema plan --catalog prices.csv --max-moves 20 --out plan.json",
)(plan)
_command(
    "Explain a node, pod, workload or plan",
    "kinema explain node/worker-3 --catalog prices.csv",
    "kinema explain deploy/frontend -n shop --catalog prices.csv",
    "kinema explain plan/latest",
)(explain)
_command(
    "Print a catalog of prices for the cluster",
    "kinema prices > prices.csv",
    "kinema prices --from azure --context prod > prices.csv",
)(prices)
_command(
    "List the requests that usage recommends",
    "kinema recommend",
    "kinema recommend --all -o json",
    "kinema recommend -o kustomize > requests/kustomization.yaml",
)(recommend)
_command(
    "Show what a workload is expected to use",
    "kinema forecast Deployment/shop/web",
    "kinema forecast shop/web --html web.html",
)(forecast)
_command("Show current activity", "kinema status", "kinema status --cluster-name prod -o json")(status)
_command("List recent plans and their outcome", "kinema plans", "kinema plans --limit 5 -o json")(plans)
_command(
    "Print service accounts and rights as YAML",
    "kinema rbac --provider kwok | kubectl apply -f -",
    "kinema rbac -o table",
)(rbac)
_command(
    "Print the broker's users and their rights",
    "kinema nats-rights --cluster-name prod > authorization.conf",
)(nats_rights)
_command(
    "Copy the broker's streams into a directory",
    "kinema backup --nats nats://admin@host:4222 --out backup-monday",
)(backup)
_command(
    "Make the streams of a backup on an empty broker",
    "kinema restore backup-monday --nats nats://admin@host:4222",
)(restore)
_command(
    "Check cluster, rights, prices and broker",
    "kinema doctor",
    "kinema doctor --provider delegate=prices.csv --service-account-namespace kinema",
)(doctor)


@_command("Run everything on a simulated cluster", "kinema demo", "kinema demo --out out/demo --seed 7")
def demo(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Directory for recording, report and logs; cleared first."),
    ] = None,
    seed: Seed = 0,
    speed: Annotated[float, typer.Option("--speed", metavar="N", help="Simulated seconds per second.")] = 10.0,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Longest duration.")] = 170.0,
    output: Output = Format.TABLE,
    simulator: Annotated[
        str, typer.Option("--simulator", metavar="URL", help="Follow services that act on this simulated cluster.")
    ] = "",
    nats: Nats = BROKER,
    cluster: ClusterName = "demo",
) -> None:
    """Run all services on this machine with a simulated cluster after a traffic peak.

    The directory is by default $XDG_STATE_HOME/kinema/demo. With --simulator nothing is started: the services run
    elsewhere, on the broker of --nats.
    """
    from kinema_cli.broker import settings_for
    from kinema_cli.inputs import UsageError, fail
    from kinema_cli.local.demo import DemoOptions, run_demo
    from kinema_cli.local.directory import state_directory

    try:
        broker = settings_for(nats, cluster) if simulator else None
    except UsageError as error:
        raise typer.Exit(fail(error)) from error
    where = out if out is not None else state_directory("demo")
    options = DemoOptions(
        out=where, seed=seed, speed=speed, timeout=timeout, output=output, simulator=simulator, nats=broker
    )
    raise typer.Exit(run_demo(options))


@_command(
    "Write all events of a cluster to a file",
    "kinema record --out incident.jsonl.zst",
)
def record(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File: .jsonl, .jsonl.gz or .jsonl.zst.")],
    nats: Nats = BROKER,
    cluster: ClusterName = "",
    output: Output = Format.TABLE,
) -> None:
    """Write all events that the broker stores for a cluster to a file, for `kinema replay`."""
    from kinema_cli.inputs import cluster_name
    from kinema_cli.replay.recording import run_record

    raise typer.Exit(run_record(nats=nats, cluster=cluster_name(cluster), out=out, output=output))


@_command(
    "Repeat recorded decisions and compare them",
    "kinema replay incident.jsonl.zst",
    "kinema replay incident.jsonl.zst --stage optimizer --assert",
    "kinema replay incident.jsonl.zst --policy karpenter",
    "kinema replay incident.jsonl.zst --settings bolder.yaml",
)
def replay(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    file: Annotated[
        Path, typer.Argument(metavar="RECORDING", help="File written by `kinema record` or `kinema demo`.")
    ],
    stage: Annotated[
        str | None,
        typer.Option("--stage", metavar="NAME", help="Only predictor, optimizer, decider or rescheduler."),
    ] = None,
    start: Annotated[int, typer.Option("--from", metavar="N", help="First sequence of the log.")] = 1,
    end: Annotated[int | None, typer.Option("--to", metavar="N", help="Last sequence of the log.")] = None,
    speed: Annotated[
        float, typer.Option("--speed", metavar="N", help="Pace: 1 as recorded, 10 ten times as fast, 0 unlimited.")
    ] = 0.0,
    assert_: Annotated[bool, typer.Option("--assert", help="Exit with 1 unless all decisions are byte-equal.")] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the first event that differs, field by field; exit with 1.")
    ] = False,
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="Decide by another policy, and show the first difference.")
    ] = "",
    settings: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="Decide by other settings, by service as for `kinema up`."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Repeat the decisions of a recording and verify that each is reproduced byte by byte.

    With --policy or --settings each decision is made by these on the recorded state instead, and the first one that
    comes out otherwise is shown.
    """
    from kinema_cli.replay.command import run_replay

    raise typer.Exit(
        run_replay(
            file=file,
            stage=stage,
            start=start,
            end=end,
            speed=speed,
            strict=assert_,
            show_diff=diff,
            policy=policy,
            settings=settings,
            output=output,
        )
    )


@_command(
    "Prepare a broker or the placement policy",
    "kinema setup --nats nats://admin@host:4222 --cluster-name prod --replicas 3",
    "kinema setup --update --nats nats://admin@host:4222 --cluster-name prod --log-size 8Gi",
    "kinema setup --context prod",
    "kinema setup --context prod --no-placement-policy",
)
def setup(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    nats: Annotated[
        str, typer.Option("--nats", metavar="URL", help="Broker to prepare, with an administrator's credentials.")
    ] = "",
    clusters: Annotated[
        list[str] | None,
        typer.Option("--cluster-name", metavar="NAME", help="With --nats: a cluster's name; may be repeated."),
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", metavar="N", help="Copies of each stream: 1, 3 or 5.")] = 1,
    state_size: Annotated[
        str, typer.Option("--state-size", metavar="SIZE", help="Size of the stream of cluster states, such as 512Mi.")
    ] = "2Gi",
    log_size: Annotated[
        str, typer.Option("--log-size", metavar="SIZE", help="Size of the stream of plans and steps, such as 4Gi.")
    ] = "2Gi",
    usage_size: Annotated[
        str, typer.Option("--usage-size", metavar="SIZE", help="Size of the stream of usage, such as 1Gi.")
    ] = "1Gi",
    update: Annotated[
        bool, typer.Option("--update", help="Also change what is there and differs, where no message is lost by it.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    policy: Annotated[
        bool | None,
        typer.Option(
            "--placement-policy/--no-placement-policy", help="Install or remove the admission policy of the cluster."
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Create streams on a broker, or install the admission policy that places new pods on the planned nodes.

    --nats with --cluster-name does the first; --kubeconfig, --context or --placement-policy does the second; together
    they do both. Running it again changes nothing, unless --update asks for it. In a pod without a kubeconfig,
    --placement-policy uses the account of the pod.
    """
    from kinema_cli.admin.setup import StreamOptions, run_setup

    raise typer.Exit(
        run_setup(
            nats=nats,
            clusters=clusters or [],
            streams=StreamOptions(replicas, state_size, log_size, usage_size, update),
            kubeconfig=kubeconfig,
            context=context,
            policy=policy,
            output=output,
        )
    )


@_command(
    "Run all services on this machine",
    "kinema up --provider kwok=prices.csv",
    "kinema up --provider delegate=prices.csv --context staging --settings kinema.yaml",
)
def up(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    provider: ProviderOption,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    cluster: ClusterName = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Directory for settings, broker and logs. Default: $XDG_STATE_HOME/kinema/CLUSTER.",
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="JSON or YAML: settings by service.")
    ] = None,
    nats: Annotated[
        str,
        typer.Option(
            "--nats",
            metavar="URL",
            help="Broker prepared by `kinema setup`, with a user that has the rights of all services, unless "
            "--settings names the user of each. Default: start one.",
        ),
    ] = "",
    workers: Annotated[
        int, typer.Option("--solver-workers", metavar="N", help="Number of additional solver processes.")
    ] = 0,
    steering: Annotated[
        bool,
        typer.Option(
            "--placement-policy/--no-placement-policy",
            help="Place new pods on the planned nodes by an admission policy.",
        ),
    ] = True,
    yes: Annotated[
        bool, typer.Option("--yes", help="Execute plans that save without waiting for `kinema approve`.")
    ] = False,
) -> None:
    """Run the five services and a broker on this machine until interrupted, for the current context's cluster.

    Nodes for pending pods are booted at once. A plan that saves waits for `kinema approve`, unless --yes is given.
    """
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
                yes=yes,
            )
        )
    )


@_command(
    "Compare policies on a scenario in virtual time",
    "kinema simulate shop.yaml --policy kinema --policy cluster-autoscaler --out out/shop",
    "kinema simulate shop.yaml --policy kinema,karpenter,none --seed 7 --out out/shop -o json",
    "kinema simulate --from-recording week.jsonl.zst --policy kinema,cluster-autoscaler --out out/week",
)
def simulate(
    policies: Annotated[
        list[str], typer.Option("--policy", metavar="NAME", help="Policy to run; may be repeated, or a list.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for figures, samples and report.")],
    scenario: Annotated[
        Path | None, typer.Argument(metavar="[SCENARIO]", help="YAML file; docs/simulate.md describes it.")
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option("--from-recording", metavar="FILE", help="Recorded cluster that becomes the scenario."),
    ] = None,
    seed: Seed = 0,
    work: Annotated[
        int | None,
        typer.Option("--work", metavar="N", min=1, help="Iterations of each phase of Kinema's solves. Default: 60."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a scenario once for each policy, in virtual time, and compare cost, disruption and load.

    Kinema runs as its services do. The others are executed as their systems execute: they evict, and the scheduler
    finds a place. The same scenario, seed and version give the same files.
    """
    from kinema_cli.simulate.command import SimulateOptions, run_simulate

    raise typer.Exit(
        run_simulate(
            SimulateOptions(
                scenario=scenario,
                recording=recording,
                policies=tuple(policies),
                seed=seed,
                work=work,
                out=out,
                output=output,
            )
        )
    )


@_command("Stop executing new plans", "kinema pause --reason 'release on Friday'")
def pause(nats: Nats = BROKER, cluster: ClusterName = "", reason: Reason = "", output: Output = Format.TABLE) -> None:
    """Stop executing new plans. A running plan is finished."""
    from kinema_cli.control import operator, publish_command
    from kinema_core.events import ExecutionPaused

    command = ExecutionPaused(by=operator(), reason=reason)
    raise typer.Exit(publish_command(nats=nats, cluster=cluster, command=command, output=output))


@_command("End a pause", "kinema resume")
def resume(nats: Nats = BROKER, cluster: ClusterName = "", output: Output = Format.TABLE) -> None:
    """End a pause: new plans are executed again."""
    from kinema_cli.control import operator, publish_command
    from kinema_core.events import ExecutionResumed

    command = ExecutionResumed(by=operator())
    raise typer.Exit(publish_command(nats=nats, cluster=cluster, command=command, output=output))


@_command("Approve a plan", "kinema approve latest", "kinema approve it-83", "kinema approve plan.json")
def approve(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN",
            help="Id as `kinema plans` shows it, a unique prefix, `latest`, or a file of `kinema plan --out`.",
        ),
    ],
    nats: Nats = BROKER,
    cluster: ClusterName = "",
    output: Output = Format.TABLE,
) -> None:
    """Approve a plan that waits for approval, or have the very plan in a file executed if it still holds."""
    from kinema_cli.control import approve_file, operator, publish_command
    from kinema_core.events import PlanApproved

    if Path(plan).is_file():
        raise typer.Exit(approve_file(nats=nats, path=Path(plan), cluster=cluster, output=output))
    command = PlanApproved(plan=plan, by=operator())
    raise typer.Exit(publish_command(nats=nats, cluster=cluster, command=command, output=output))


@_command("Compare a kept plan with the cluster of now", "kinema diff plan.json --catalog prices.csv")
def diff(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    plan: Annotated[Path, typer.Argument(metavar="FILE", help="File of `kinema plan --out`.")],
    catalog: Catalog = None,
    discounts: Discounts = None,
    offer: MoreOffers = "",
    snapshot: SnapshotFile = None,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    move_jobs: MoveJobs = False,
    allow_spot: AllowSpot = False,
    scope: Scope = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what has changed since a plan was kept, and whether it still holds (exit code 4 if not)."""
    from kinema_cli.plan.plan_file import DiffOptions, run_diff

    options = DiffOptions(
        plan=plan,
        catalog=catalog,
        discounts=discounts,
        offer=offer,
        snapshot=snapshot,
        context=context,
        kubeconfig=kubeconfig,
        move_jobs=move_jobs,
        allow_spot=allow_spot,
        scope=tuple(scope or ()),
        output=output,
    )
    raise typer.Exit(run_diff(options))


@_command("End the running plan after the moves under way", "kinema abort --reason 'wrong window'")
def abort(nats: Nats = BROKER, cluster: ClusterName = "", reason: Reason = "", output: Output = Format.TABLE) -> None:
    """End the running plan after the moves under way; what it has saved stays.

    The next plan may have the same aim; `kinema pause` first, to keep it from being executed.
    """
    from kinema_cli.control import operator, publish_command
    from kinema_core.events import AbortRequested

    command = AbortRequested(by=operator(), reason=reason)
    raise typer.Exit(publish_command(nats=nats, cluster=cluster, command=command, output=output))


@_command("Show versions", "kinema version -o json")
def version(output: Output = Format.TABLE) -> None:
    """Show the versions of Kinema, Python and the solver."""
    from kinema_cli.output import emit, facts
    from kinema_cli.versions import versions

    found = versions()
    emit(found, output, lambda: [facts("", found.items())])
