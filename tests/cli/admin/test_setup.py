"""`kinema setup` for a cluster alone: what it installs, takes away and leaves to others, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.sim_world import sim_world
from typer.testing import CliRunner, Result

from kinema_cli.admin.setup import release_cluster
from kinema_cli.doctor.checks import steering
from kinema_cli.local.nats_server import NatsServer
from kinema_cli.main import app
from kinema_core.runtime.nats_connection import Connection
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, stream_configs
from kinema_core.runtime.setup import setup as setup_streams
from kinema_kubernetes.claim import PATH, ClusterClaim
from kinema_kubernetes.client import connect
from kinema_kubernetes.errors import NotFoundError
from kinema_sim.scenarios.registry import SCENARIOS

POLICY = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/kinema-steering"


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    """A simulated cluster on which no Kinema ever was."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        yield world.kubeconfig


def setup(*arguments: str) -> Result:
    """The command as it is typed, with no broker anywhere."""
    return CliRunner().invoke(app, ["setup", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to set up; give --nats and --cluster-name for streams on a broker, --context or --kubeconfig"),
        (["--nats", "nats://host"], "--nats is given without --cluster-name; name the cluster"),
        (
            ["--cluster-name", "demo"],
            "--cluster-name names the cluster whose streams are made; give",
        ),
        (["--kubeconfig", "f", "--cluster-name", "demo"], "--cluster-name names the cluster whose streams are made"),
    ],
)
def test_half_a_wish_is_one_line(arguments: list[str], said: str) -> None:
    """What is missing is said once and whole, exit 2."""
    found = setup(*arguments)
    assert found.exit_code == 2
    (line,) = found.stderr.splitlines()
    assert line.startswith(f"error: {said}")


async def test_steering_alone_asks_no_broker(kubeconfig: Path) -> None:
    """Installing and removing take a kubeconfig only; streams are not mentioned."""
    on = await asyncio.to_thread(setup, "--kubeconfig", str(kubeconfig))
    assert (on.exit_code, on.stderr) == (0, "")
    assert on.stdout.startswith("placement policy: this Kubernetes has no admission policies")
    off = await asyncio.to_thread(setup, "--kubeconfig", str(kubeconfig), "--no-placement-policy")
    assert (off.exit_code, off.stderr) == (0, "")
    assert off.stdout == "placement policy: absent\nLease kube-system/kinema: absent\n"


async def test_a_claim_that_nobody_holds_goes_too(kubeconfig: Path) -> None:
    """The Lease of a Kinema that has ended is deleted; also where that one was killed, once its time has run out."""
    api = await connect(str(kubeconfig))
    ended = ClusterClaim(api, "ended", process="it", seconds=1)
    await ended.take()
    await ended.release()
    off = await asyncio.to_thread(setup, "--kubeconfig", str(kubeconfig), "--no-placement-policy")
    assert off.stdout == "placement policy: absent\nLease kube-system/kinema: removed\n"
    with pytest.raises(NotFoundError):
        await api.get(PATH)
    await ClusterClaim(api, "killed", process="it", seconds=1).take()
    assert await release_cluster(kubeconfig, seconds=1) == "Lease kube-system/kinema: removed"
    await api.close()


async def test_the_claim_of_a_kinema_that_acts_stays(kubeconfig: Path) -> None:
    """Who acts is named, and keeps the Lease as it is."""
    api = await connect(str(kubeconfig))
    other = ClusterClaim(api, "other", process="`kinema up` on host7", seconds=4)
    await other.take()
    keeping = asyncio.create_task(other.keep(lambda _: None))
    said = await release_cluster(kubeconfig, seconds=4)
    keeping.cancel()
    assert said == (
        "Lease kube-system/kinema: stays, as `kinema up` on host7 acts on this cluster; run this again when that has "
        "ended"
    )
    assert (await api.get(PATH))["spec"]["holderIdentity"] == "other"
    await api.close()


@pytest.mark.cluster
@pytest.mark.usefixtures("policies")
async def test_policy_and_claim_come_and_go(control_plane: ControlPlane, tmp_path: Path) -> None:
    """On a real API server: installed by one command, gone with the Lease by the other, whoever ended the services."""
    kubeconfig = control_plane.admin.write_kubeconfig(tmp_path / "kubeconfig")
    api = await connect(str(kubeconfig))
    with suppress(NotFoundError):
        await api.request("DELETE", PATH)
    doctor = await connect(str(kubeconfig), context="")
    on = await asyncio.to_thread(setup, "--kubeconfig", str(kubeconfig))
    assert on.exit_code == 0
    assert on.stdout.startswith("placement policy: installed")  # and more, where another test has steered there
    await api.get(POLICY)
    assert (await steering(doctor, "do")).level == "ok"
    ended = ClusterClaim(api, "ended", process="it")
    await ended.take()
    await ended.release()
    off = await asyncio.to_thread(setup, "--kubeconfig", str(kubeconfig), "--no-placement-policy")
    assert off.exit_code == 0
    assert off.stdout.splitlines()[0].startswith("placement policy: removed")
    assert off.stdout.splitlines()[1:] == ["Lease kube-system/kinema: removed"]
    for path in (POLICY, PATH):
        with pytest.raises(NotFoundError):
            await api.get(path)
    assert (await steering(doctor, "do")).remediation == "do"
    await doctor.close()
    await api.close()


@pytest.mark.connected
@pytest.mark.parametrize(
    ("changed", "options", "code", "said"),
    [
        ({}, ("--update", "--log-size", "1Gi"), 0, "differs: stream KINEMA_LOG: max_bytes is"),
        (
            {},
            ("--update", "--replicas", "3"),
            0,
            "differs: stream KINEMA_LOG: num_replicas is 1, wanted 3; not",
        ),
        ({}, ("--log-size", "1Gi"), 4, "differs: stream KINEMA_LOG: max_bytes is"),
        ({"storage": "memory"}, ("--update",), 4, "unsafe: stream KINEMA_LOG: storage is 'memory', wanted 'file'; not"),
        ({"allow_direct": False}, ("--update",), 0, "changed stream KINEMA_LOG: allow_direct from False to True"),
    ],
)
def test_only_what_makes_services_unsafe_fails_an_update(
    tmp_path: Path, changed: dict[str, object], options: tuple[str, ...], code: int, said: str
) -> None:
    """Sizes and copies that cannot be had are reported with exit 0: an upgrade goes on; anything else is exit 4."""
    server = NatsServer(tmp_path, more={"jetstream": {"store_dir": str(tmp_path), "max_memory_store": 3 << 30}})
    server.start()
    try:
        asyncio.run(made(server.url, changed))
        found = setup("--nats", server.url, "--cluster-name", "c1", *options)
    finally:
        server.stop()
    assert found.exit_code == code, found.output
    assert [line for line in found.stdout.replace("\n  ", " ").splitlines() if line.startswith(said[:40])]
    assert said in " ".join(found.stdout.split())


async def made(url: str, changed: dict[str, object]) -> None:
    """Streams as somebody else made them, the LOG otherwise than it should be."""
    settings = RuntimeSettings(cluster="c1", nats_url=url)
    (log,) = (one for one in stream_configs(Layout(clusters=("c1",))) if one["name"] == "KINEMA_LOG")
    connection = Connection("test")
    await connection.open(settings)
    assert b"error" not in await connection.api("STREAM.CREATE.KINEMA_LOG", {**log, **changed})
    await connection.close()
    await setup_streams(settings, Layout(clusters=("c1",)))
