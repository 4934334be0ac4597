"""`kinema up`: what it refuses before anything is started, and what the services are told."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.rescheduler.sim_world import SimWorld, sim_world
from tests.support.builders import NOW
from tests.support.nats_broker import PASSWORDS, running

from kinema_cli.broker import settings_for
from kinema_cli.inputs import InputError
from kinema_cli.local.directory import clear_own, exclusive_lock
from kinema_cli.local.nats_server import ServerError
from kinema_cli.local.pipeline import SERVICES, LocalPipeline, PipelineOptions
from kinema_cli.local.processes import Child, Supervisor
from kinema_cli.local.settings import read_service_settings
from kinema_cli.local.up import (
    UpOptions,
    _is_well,
    _keep_broker,
    _keep_to_cluster,
    _pipeline_options,
    _run,
    _what_runs,
    instance_name,
    run_up,
)
from kinema_core.events import ClusterDelta, Namespace
from kinema_core.model.cluster import all_objects
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_bus import connect as connect_bus
from kinema_core.runtime.settings import load
from kinema_kubernetes.claim import ClusterClaim
from kinema_kubernetes.client import connect
from kinema_observer.publishing import StatePublisher
from kinema_optimizer.settings import Settings as OptimizerSettings
from kinema_predictor.settings import Settings as PredictorSettings
from kinema_rescheduler.settings import Settings as ReschedulerSettings
from kinema_sim.front.server import write_kubeconfig
from kinema_sim.scenarios.registry import SCENARIOS


@pytest.fixture
def options(tmp_path: Path) -> UpOptions:
    """Usable arguments, for a cluster where nobody listens."""
    write_kubeconfig(tmp_path / "kubeconfig", url="http://127.0.0.1:9", token="none")
    return UpOptions(
        kubeconfig=tmp_path / "kubeconfig", provider="sim=http://127.0.0.1:9", cluster="c1", out=tmp_path / "out"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"provider": "sim=127.0.0.1"},
        {"provider": "gke"},
        {"workers": -1},
        {"nats": "http://host"},
    ],
)
def test_wrong_arguments(wrong: dict[str, object], options: UpOptions, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and one line that says what to write; nothing is made."""
    assert run_up(replace(options, **wrong)) == 2  # type: ignore[arg-type]  # a field of its own type each
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert options.out is not None
    assert not options.out.exists()


def test_what_the_doctor_finds_stops_it(options: UpOptions, capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster that cannot be reached: exit 1 with the finding and its advice, and no process was started."""
    assert run_up(options) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("error: kubernetes: ")
    assert "→ check address" in said[0]
    assert "startup aborted" in said[-2]
    assert options.out is not None
    assert not options.out.exists()


def test_one_process_at_a_time_in_a_directory(tmp_path: Path) -> None:
    """Two brokers on the same files would spoil both: the second is told who is there."""
    out = tmp_path / "up"
    with (
        exclusive_lock(out),
        pytest.raises(InputError, match=f"in use by process {os.getpid()}: end that one"),
        exclusive_lock(out),
    ):
        pass
    with exclusive_lock(out):
        assert out.is_dir()


def test_only_a_directory_that_kinema_made_is_cleared(tmp_path: Path, options: UpOptions) -> None:
    """`--out .` in a project with a directory `settings` must not delete it; Kinema's own settings are made again."""
    assert options.out is not None
    foreign = options.out / "settings" / "project.py"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("SECRET = 1")
    with pytest.raises(InputError, match="was not made by Kinema"):
        asyncio.run(_run(_pipeline_options(options)))
    assert foreign.read_text() == "SECRET = 1"
    own = tmp_path / "own"
    clear_own(own)
    (own / "observer.json").touch()
    clear_own(own)
    assert [file.name for file in own.iterdir()] == [".kinema"]


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from kinema_cli.local.directory import exclusive_lock
from kinema_cli.local.processes import Child
from kinema_cli.local.nats_server import NatsServer

async def main(out):
    child = Child("sleeper", ("-c", "import time; time.sleep(600)"), out / "log")
    await child.start()
    server = NatsServer(out / "nats")
    server.start()
    print(child.process.pid, server.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

with exclusive_lock(out := Path(sys.argv[1])):
    asyncio.run(main(out))
"""


@pytest.mark.connected
def test_what_a_killed_one_left_running_holds_the_directory(tmp_path: Path) -> None:
    """A broker and services that live on would share their files with the next ones: the refusal says what to end."""
    out = tmp_path / "up"
    died = subprocess.run([sys.executable, "-c", KILLED, str(out)], capture_output=True, text=True, check=False)
    left = sorted(int(pid) for pid in died.stdout.split())
    assert len(left) == 2, died.stderr
    try:
        with pytest.raises(InputError, match=f"left running .* \\(`kill {left[0]} {left[1]}`\\)"), exclusive_lock(out):
            pass
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    for _ in range(100):
        with suppress(InputError), exclusive_lock(out):
            return
        time.sleep(0.1)
    pytest.fail("it is held by nobody, and still refused")


UP_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from kinema_cli.local.directory import clear_own, exclusive_lock
from kinema_cli.local.pipeline import LocalPipeline, PipelineOptions

async def main(out):
    provider = {"kind": "sim", "url": "http://127.0.0.1:9"}
    options = PipelineOptions(directory=out, cluster="c1", kubeconfig=out / "kubeconfig", provider=provider)
    pipeline = LocalPipeline(options)
    await pipeline.open()
    pipeline._write_settings("decider")
    child = pipeline.supervisor.children["decider"]
    await child.start()
    while not child.log.exists() or b"connected" not in child.log.read_bytes():
        await asyncio.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)

with exclusive_lock(out := Path(sys.argv[1])):
    asyncio.run(main(out))
"""


@pytest.mark.connected
def test_what_a_killed_one_started_ends_by_itself(tmp_path: Path) -> None:
    """A service and the broker end in order, though nobody told them to, and the directory is free again."""
    out = tmp_path / "up"
    died = subprocess.run([sys.executable, "-c", UP_KILLED, str(out)], capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    for _ in range(600):
        with suppress(InputError), exclusive_lock(out):
            break
        time.sleep(0.1)
    else:
        pytest.fail("something lives on")
    assert '"event":"stopping"' in (out / "logs" / "decider.log").read_text().replace(": ", ":")
    assert "Server Exiting" in (out / "nats" / "nats-server.log").read_text()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """The option is named, and what to do."""
    there = tmp_path / "file"
    there.touch()
    with pytest.raises(InputError, match="name a directory that can be written to") as caught, exclusive_lock(there):
        pass
    assert f"--out {there}: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("decider: {limits: {min_savings_fraction: 0.05, typo: 1}}", "decider: Object contains unknown field `typo`"),
        ("decider: {limits: {typo: 1}}", "`typo` - at `$.limits`; there are "),
        ("rescheduler: {limits: {attempts: many}}", "$.limits.attempts"),
        ("rescheduler: {limits: {attempts: 0}}", "limits.attempts is 0: use 1 or more"),
        ("observer: {runtime: {nats_user: 7}}", "$.runtime.nats_user"),
        ("decider: {limits: {approval: 3}}", "- at `$.limits.approval`: write automatic or required"),
        ("predictor: {mode: off}", '- at `$.mode`: write "off" or "recommend" or "apply"'),
        ("predictor: {mode: aply}", "- at `$.mode`: write off or recommend or apply"),
        ("decider: {limits: {approval: always}}", "- at `$.limits.approval`: write automatic or required"),
        ("rescheduler: {limits: {boot_seconds: fast}}", "- at `$.limits.boot_seconds`: write a number"),
        ("optimizer: {planning: {max_moves: 0.5}}", "- at `$.planning.max_moves`: write a whole number or null"),
        ("observer: {kubeconfig: 7}", "- at `$.kubeconfig`: write text, in quotes where it looks like a number"),
        (
            "predictor: {max_request_change_fraction: [0]}",
            "- at `$.max_request_change_fraction`: write text, in quotes where it looks like a number or",
        ),
        ("decider: {limits: {windows: [{days: 3}]}}", "got `int` - at `$.limits.windows[0].days`"),
        (
            "observer: {stabilization_window_seconds: -5}",
            "observer: stabilization_window_seconds is -5.0: use 0 to 31536000",
        ),
        ("predictor: {max_request_change_fraction: 2}", "predictor: max_request_change_fraction is 2.0: use 0 to 1"),
        (
            "predictor: {max_request_change_fraction: some}",
            "max_request_change_fraction 'some' is no number: use a fraction from 0 to 1 such as 0.10",
        ),
        ("rescheduler: {provider: {boot_seconds: 4}}", "Object missing required field `kind`"),
        ("scheduler: {}", "'scheduler' is no service: there are observer, "),
        ("[1, 2]", "write settings by service"),
        ("decider: {", "did not find expected node content: write settings by service"),
        ("decider:\n  limits: {}\n\tmin: 1\n", "line 3, column 1: found character that cannot start any token: write"),
    ],
)
def test_settings_that_no_service_would_take(text: str, said: str, tmp_path: Path) -> None:
    """A file is checked as the services themselves would, before any is started; file, service and place are named."""
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_service_settings(path, {})
    assert str(caught.value).startswith(f"--settings {path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "differ"),
    [
        ("optimizer: {planning: {min_savings_fraction: 0.2}}", "differ in min_savings_fraction (0.2 and 0.1);"),
        ("decider: {limits: {spot: {max_share: 0.5}}}", "differ in spot ("),
        ("rescheduler: {limits: {resize_in_place: false}}", "rescheduler differ in resize_in_place (true and false);"),
        ("rescheduler: {limits: {refused_seconds: 20}}", ""),
        ("decider: {limits: {approval: automatic, windows: [{days: [sat]}]}}", ""),
        ("{optimizer: {planning: {redundancy: false}}, decider: {limits: {redundancy: false}}}", ""),
    ],
)
def test_settings_that_two_services_need_alike(
    text: str, differ: str, options: UpOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One warning names where the services differ, before anything is started."""
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    _pipeline_options(replace(options, settings=file))
    said = capsys.readouterr().err
    assert differ in said
    assert len(said.splitlines()) == bool(differ)


@pytest.mark.parametrize(
    ("text", "mode"), [("0", "recommend"), ("'0'", "recommend"), ("0.1", "apply"), ("'0.10'", "apply")]
)
def test_a_fraction_may_be_a_number(text: str, mode: str, tmp_path: Path) -> None:
    """With quotes or without, it is the same part, exactly; none at all means that requests are only recommended."""
    path = tmp_path / "settings.yaml"
    path.write_text(f"predictor: {{max_request_change_fraction: {text}}}")
    given = read_service_settings(path, {})["predictor"]
    rules = msgspec.convert({**given, "runtime": {"cluster": "c1"}}, PredictorSettings).rules
    assert (rules.mode, rules.max_change) == (mode, Fraction(1, 10))


def test_a_settings_file_that_is_not_there(options: UpOptions, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1 and one line with the path."""
    assert run_up(replace(options, settings=Path("/nowhere/settings.json"))) == 1
    assert capsys.readouterr().err == "error: --settings /nowhere/settings.json: No such file or directory\n"


async def test_a_broker_that_dies_again_and_again_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five new starts within minutes are tried, then one error names its log; long lives in between count for it."""
    pipeline = LocalPipeline(
        PipelineOptions(directory=tmp_path, cluster="c1", kubeconfig=tmp_path / "kubeconfig", provider={"kind": "sim"})
    )
    now = [0.0]
    monkeypatch.setattr(pipeline.server, "start", lambda: None)
    monkeypatch.setattr("kinema_cli.local.processes.time.monotonic", lambda: now[0])
    for _ in range(12):
        await _keep_broker(pipeline)
        now[0] += 100
    assert capsys.readouterr().err.count("was restarted") == 12
    now[0] += 1000
    for _ in range(5):
        await _keep_broker(pipeline)
        now[0] += 2
    with pytest.raises(ServerError, match=r"has ended 6 times within 5 minutes: its log .*nats-server\.log says why"):
        await _keep_broker(pipeline)


def test_a_service_that_dies_now_and_then_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only many starts within a short time say that another one does not help."""
    child = Child(name="observer", arguments=(), log=tmp_path / "log")
    supervisor = Supervisor([child])
    now = [0.0]
    monkeypatch.setattr("kinema_cli.local.processes.time.monotonic", lambda: now[0])
    for _ in range(20):
        child.starts.add()
        assert supervisor.crash_looping() is None
        now[0] += 100
    for _ in range(6):
        child.starts.add()
    assert supervisor.crash_looping() is child


def written(options: PipelineOptions) -> LocalPipeline:
    """A pipeline that was not started, with its settings files."""
    pipeline = LocalPipeline(options)
    for service in SERVICES:
        pipeline._write_settings(service)
    return pipeline


def test_services_are_told_what_the_file_says(tmp_path: Path) -> None:
    """Settings of the file win over what is supplied; a runtime in it adds to it; workers share the solves."""
    file = tmp_path / "settings.json"
    own = {
        "optimizer": {"solver": {"memory_limit_mib": 500}, "runtime": {"log_format": "console"}},
        "rescheduler": {"limits": {"attempts": 7}},
    }
    file.write_text(json.dumps(own))
    provider = {"kind": "sim", "url": "http://127.0.0.1:9"}
    options = PipelineOptions(
        directory=tmp_path,
        cluster="c1",
        kubeconfig=tmp_path / "kubeconfig",
        provider=provider,
        settings=read_service_settings(file, {"rescheduler": {"provider": provider}}),
        workers=2,
    )
    pipeline = written(options)
    optimizer = load(OptimizerSettings, tmp_path / "settings/optimizer.json")
    assert (optimizer.solver.share, optimizer.solver.memory_limit_mib) == (True, 500)
    assert (optimizer.runtime.log_format, optimizer.runtime.nats_user) == ("console", "optimizer")
    rescheduler = load(ReschedulerSettings, tmp_path / "settings/rescheduler.json")
    assert rescheduler.limits.attempts == 7
    assert rescheduler.kubeconfig == str(tmp_path / "kubeconfig")
    assert [*pipeline.supervisor.children] == [*SERVICES, "worker-1", "worker-2"]
    assert _what_runs(options) == "5 services, 2 workers and a broker run"
    worker = pipeline.supervisor.children["worker-1"]
    assert worker.arguments == (
        "-m",
        "kinema_optimizer.process.worker",
        "--settings",
        str(tmp_path / "settings/optimizer.json"),
        "--until-stdin-ends",
    )


@pytest.mark.parametrize(("asked", "text", "steered"), [(True, "{}", True), (False, "{}", False), (True, "", False)])
def test_steering_is_what_the_file_says_else_the_option(
    asked: bool, text: str, steered: bool, options: UpOptions, tmp_path: Path
) -> None:
    """New pods are steered unless the option or the file says otherwise; the file wins."""
    file = tmp_path / "settings.yaml"
    file.write_text(text or "rescheduler: {steering: false}")
    made = _pipeline_options(replace(options, settings=file, steering=asked))
    assert made.settings["rescheduler"]["steering"] is steered


@pytest.mark.parametrize("more", [{}, {"kind": "kwok", "catalog": "other.csv"}])
def test_a_provider_in_the_file_adds_to_the_option(more: dict[str, str], options: UpOptions, tmp_path: Path) -> None:
    """Kind and place stand in `--provider` already: the file need not repeat them, and wins where it does."""
    (tmp_path / "prices.csv").touch()
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"rescheduler": {"provider": {"boot_seconds": 4, **more}}}))
    given = replace(options, settings=file, provider=f"kwok={tmp_path / 'prices.csv'}")
    told = _pipeline_options(given).settings["rescheduler"]["provider"]
    assert told == {"kind": "kwok", "catalog": str(tmp_path / "prices.csv"), "boot_seconds": 4, **more}


def test_the_rescheduler_tells_others_where_it_runs(options: UpOptions) -> None:
    """In its claim stands what a person ends: the directory and the process of `kinema up`, not its own."""
    told = _pipeline_options(options).settings["rescheduler"]["instance_name"]
    assert options.out is not None
    assert told == instance_name(options.out)
    assert f"`kinema up --out {options.out}` on " in told
    assert f"(process {os.getpid()})" in told


def test_services_go_to_a_given_broker(tmp_path: Path) -> None:
    """With --nats every service connects there as that user; alone, the optimizer shares nothing."""
    options = PipelineOptions(
        directory=tmp_path,
        cluster="c1",
        kubeconfig=tmp_path / "kubeconfig",
        provider={"kind": "sim", "url": "http://127.0.0.1:9"},
        nats=settings_for("nats://all:secret@broker:4222", "c1"),
    )
    written(options)
    optimizer = load(OptimizerSettings, tmp_path / "settings/optimizer.json")
    assert (optimizer.runtime.nats_url, optimizer.runtime.nats_user) == ("nats://broker:4222", "all")
    assert not optimizer.solver.share
    assert _what_runs(options) == "5 services run on the broker nats://broker:4222"


def on_world(world: SimWorld, folder: Path) -> PipelineOptions:
    """Options of a Kinema that acts on a simulated cluster."""
    return PipelineOptions(
        directory=folder / "up",
        cluster="c1",
        kubeconfig=world.kubeconfig,
        provider={"kind": "sim", "url": world.url},
        settings={"rescheduler": {"steering": True}},
    )


@pytest.mark.connected
async def test_a_second_kinema_on_the_cluster_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 4 and one line that says where the other one runs; no service and no policy comes to be."""
    elsewhere = instance_name(tmp_path / "elsewhere")
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        api = await connect(str(world.kubeconfig))
        other = ClusterClaim(api, "other", process=elsewhere, seconds=3)
        await other.take()
        keeping = asyncio.create_task(other.keep(lambda _: None))
        assert await _run(on_world(world, tmp_path)) == 4
        keeping.cancel()
        await api.close()
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: startup aborted: another Kinema acts on this cluster: {elsewhere}, as Lease ")
    assert not (tmp_path / "up" / "logs").exists()


@pytest.mark.connected
async def test_a_user_without_the_rights_of_the_services_is_found_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1 and what to do, before anything is started; with the user of each service in --settings all is well."""
    settings = tmp_path / "settings.json"
    runtimes = {user: {"runtime": {"nats_user": user, "nats_password": PASSWORDS[user]}} for user in SERVICES}
    settings.write_text(json.dumps(runtimes))
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world, running(tmp_path / "nats") as broker:
        options = UpOptions(
            kubeconfig=world.kubeconfig,
            provider=f"sim={world.url}",
            cluster="c1",
            out=tmp_path / "up",
            nats=broker.server.url.replace("//", f"//operator:{PASSWORDS['operator']}@"),
        )
        assert await asyncio.to_thread(run_up, options) == 1
        (said,) = [line for line in capsys.readouterr().err.splitlines() if "broker rights" in line]
        assert said.startswith("error: broker rights: user 'operator' lacks rights of services: observer needs ")
        assert "→ name the user of each service in --settings, or one with all their rights in --nats" in said
        assert not (tmp_path / "up").exists()
        assert await _is_well(_pipeline_options(replace(options, settings=settings)))
        rogue = broker.server.url.replace("//", "//rogue:rogue-secret@")
        assert await _is_well(_pipeline_options(replace(options, nats=rogue)))


async def test_a_full_disk_is_named_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: UpOptions
) -> None:
    """The broker would not store what services publish, and these would end one after the other."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=200 * 1024))
    with pytest.raises(InputError, match=r"has 0\.2 MiB left on its disk, and the broker needs 64 MiB: make room, or"):
        await _run(_pipeline_options(options))


@pytest.mark.connected
@pytest.mark.parametrize("own", [True, False], ids=["its own broker", "a given broker"])
async def test_streams_of_another_cluster_of_this_name_are_not_used(own: bool, tmp_path: Path) -> None:
    """A cluster that was made again has the old names, not the old uids; nothing is started, and the error says so."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        options = on_world(world, tmp_path)
        before = LocalPipeline(options)
        await before.open()
        await _keep_to_cluster(options, before.bus)  # no state yet
        bus = await connect_bus(before.runtime("observer"))
        publisher = StatePublisher(bus, cluster="c1", every=500, seconds=600)
        await publisher.publish_contents(lambda: all_objects(world.cluster()), NOW)
        await _keep_to_cluster(options, before.bus)
        system = Namespace(name="kube-system", uid="another")
        event = origin(
            ClusterDelta(version=2, upserts=(system,)), id_="d", cluster="c1", iteration="", now=NOW, state=2
        )
        await bus.publish(event)
        await bus.close()
        given = before.runtime("operator")
        if own:
            await before.stop()
        where = re.escape(f"--out {options.directory}" if own else f"the broker {given.nats_url}")
        with pytest.raises(InputError, match=rf"{where} holds .* of the name c1 .* had uid another, now .*: delete"):
            await _run(options if own else replace(options, nats=given))
        await before.stop()
    assert not (options.directory / "logs").exists()


@pytest.mark.connected
async def test_a_broker_of_our_own_that_dies_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is started again on the same port, with one line that says so; one that runs is left alone."""
    provider = {"kind": "sim", "url": "http://127.0.0.1:9"}
    pipeline = LocalPipeline(
        PipelineOptions(directory=tmp_path, cluster="c1", kubeconfig=tmp_path / "kubeconfig", provider=provider)
    )
    server = pipeline.server
    await asyncio.to_thread(server.start)
    try:
        first, port = server.pid, server.port
        await _keep_broker(pipeline)
        assert server.pid == first
        await asyncio.to_thread(server.kill)
        await _keep_broker(pipeline)
        assert server.pid not in {None, first}
        assert server.port == port
        assert "was restarted" in capsys.readouterr().err
    finally:
        await asyncio.to_thread(server.stop)
