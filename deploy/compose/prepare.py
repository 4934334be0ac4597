"""Write what the containers of docker-compose.yml read: passwords, the broker's configuration, and settings.

Runs once before the others, as root in the image kinema-admin, and changes nothing that is there but settings: each
service has a volume of its own, so that none can read another's password. With `--simulator URL` the services act on a
simulated cluster and live by its clock, else on the cluster of `/in/kubeconfig`: a file for the two services that reach
it, or a directory with a file for each. A project has either until its volumes are deleted.

What no service could start with is refused here, in one line. The broker, and with it every service, waits for a file
that only a preparation without an error leaves: Compose would start them after a failed one, too, as there are several
and each may be absent.
"""

import argparse
import json
import os
import re
import secrets
import sys
import time
import urllib.request
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from kinema_core.runtime.rights import USERS, authorization
from kinema_core.runtime.settings import known_names
from kinema_kubernetes.errors import SetupError
from kinema_kubernetes.kubeconfig import ClusterEntry, UserEntry, entries_of

OUT = Path("/out")
KUBECONFIG = Path("/in/kubeconfig")
PRICES = "/etc/kinema/prices.csv"
"""Where the rescheduler finds the file of that name."""
USER = 65532
SERVICES = ("observer", "predictor", "optimizer", "decider", "rescheduler")
REACHING = ("observer", "rescheduler")
"""Services that reach the cluster: the image kinema-admin holds them, too."""
SAME_SECONDS = 60.0
"""A simulated cluster that seems to have started so close to the last one is the last one."""
GIBIBYTE = 1024**3


def write(path: Path, text: str) -> None:
    """Write a file that only the containers' user can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}")
    new.write_text(text, encoding="utf-8")
    new.chmod(0o400)
    os.chown(new, USER, USER)
    new.replace(path)


def password(user: str) -> str:
    """Return a user's password for the broker, a new one at the first run."""
    path = OUT / user / "nats-password"
    if not path.exists():
        write(path, secrets.token_urlsafe(32))
    return path.read_text(encoding="utf-8")


def demo(url: str) -> dict[str, dict[str, Any]]:
    """Return settings for the simulated cluster, whose events are kept apart from those of earlier ones."""
    with urllib.request.urlopen(f"{url}/sim/v1/clock", timeout=10) as answer:  # noqa: S310 - the compose file's own address
        reading = json.load(answer)
    now, speed = datetime.fromisoformat(reading["now"]), float(reading["speed"])
    started = time.time()  # noqa: TID251 - ties the services' clocks to the simulator's
    begun = started - (now - datetime.fromisoformat("2026-01-01T00:00:00Z")) / timedelta(seconds=speed)
    known, simulated = OUT / "operator" / "cluster", OUT / "operator" / "simulated"
    if known.exists() and not simulated.exists():
        sys.exit(
            f"error: this project acts on cluster {known.read_text(encoding='utf-8')}: run the demo as a project of "
            "its own, docker compose --project-name kinema-demo --profile demo up"
        )
    if simulated.exists() and abs(int(simulated.read_text(encoding="utf-8")) - begun) < SAME_SECONDS:
        return {}  # the services go on with what they have
    write(simulated, f"{begun:.0f}")
    runtime = {
        "cluster": f"demo-{begun:.0f}",
        "clock_speed": speed,
        "clock_epoch": reading["now"],
        "clock_started": started,
    }
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sim",
        "clusters": [{"name": "sim", "cluster": {"server": url}}],
        "users": [{"name": "sim", "user": {"token": "none"}}],
        "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "sim"}}],
    }
    for service in REACHING:
        write(OUT / service / "kubeconfig", json.dumps(kubeconfig))
    own: dict[str, dict[str, Any]] = {
        # It takes minutes: usage of a day is no part of it.
        "observer": {"stabilization_window_seconds": 120, "usage_step_seconds": 15},
        "predictor": {"max_request_change_fraction": "0.10", "least_age_seconds": 60},
        "optimizer": {
            "planning": {"time_limit_seconds": 20, "max_moves_fraction": 1, "redundancy": False, "headroom": 0}
        },
        "decider": {"limits": {"approval": "automatic", "max_moves_fraction": 1, "redundancy": False}},
        "rescheduler": {"provider": {"kind": "sim", "url": url}, "limits": {"max_moves_fraction": 1}},
    }
    return {service: {"runtime": runtime, **own.get(service, {})} for service in SERVICES}


def settings_in(path: Path) -> dict[str, Any]:
    """Return the settings in a file; none where there is no file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        sys.exit(f"error: {path.name} is no JSON: {error}")
    if not isinstance(found, dict) or not isinstance(found.get("runtime", {}), dict):
        sys.exit(f"error: {path.name} has to be a JSON object, and so has `runtime` in it")
    return found


def check_settings(service: str, settings: dict[str, Any]) -> None:
    """Refuse what a service would refuse, by the name that its file has outside the containers."""
    kind = import_module(f"kinema_{service}.settings").Settings
    try:
        msgspec.convert(settings, kind)
    except msgspec.ValidationError as error:
        sys.exit(f"error: {service}.json: {error}{known_names(kind, str(error), settings)}")


def kubeconfig_of(service: str, context: str) -> str:
    """Return the kubeconfig of a service; refuses one that has no use in a container."""
    path = KUBECONFIG / service if KUBECONFIG.is_dir() else KUBECONFIG
    if not path.is_file():
        sys.exit(
            f"error: the kubeconfig is a directory without the file {service}: let deploy/compose/kubeconfigs.sh write "
            "it, or put a kubeconfig in the directory's place"
        )
    text = path.read_text(encoding="utf-8")
    if at := re.search(r"https?://(127\.|localhost|\[::1\])[^\s\"',}]*", text):
        sys.exit(
            f"error: the kubeconfig has the address {at.group()}, which in a container is the container itself: "
            "give one that containers reach (of kind: kind get kubeconfig --internal)"
        )
    try:
        name, cluster, user = entries_of(str(path), context)
    except SetupError as error:
        sys.exit(f"error: the kubeconfig: {error.detail}: write it by `kubectl config view --minify --flatten`")
    if needs := beside(cluster.entry, user.entry):
        sys.exit(
            f"error: the kubeconfig's context {name!r} needs {needs}, which no container has: `kubectl config view "
            "--minify --flatten` takes certificates into it, deploy/compose/kubeconfigs.sh writes two that have tokens"
        )
    return text


def beside(cluster: ClusterEntry, user: UserEntry) -> str:
    """Return the program or file that a kubeconfig needs beside it, with its field; empty where it needs none."""
    needs = {
        "exec": user.exec.command if user.exec is not None else "",
        "tokenFile": user.token_file,
        "certificate-authority": "" if cluster.certificate_authority_data else cluster.certificate_authority,
        "client-certificate": "" if user.client_certificate_data else user.client_certificate,
        "client-key": "" if user.client_key_data else user.client_key,
    }
    return next((f"{value} (`{field}`)" for field, value in needs.items() if value), "")


def real(given: Path, cluster: str, *, all_in_one: bool) -> dict[str, dict[str, Any]]:
    """Return settings for a real cluster: those of the services' files in a directory.

    `kinema up` checks those for all in one by itself, as a provider is given beside them.
    """
    if (OUT / "operator" / "simulated").exists():
        sys.exit("error: this project runs the demo: end it with docker compose --profile '*' down --volumes")
    found: dict[str, dict[str, Any]] = {}
    for service in SERVICES:
        settings = settings_in(given / f"{service}.json")
        found[service] = {**settings, "runtime": {"cluster": cluster, **settings.get("runtime", {})}}
    for service in () if all_in_one else REACHING:
        check_settings(service, found[service])
    catalog = given / "prices.csv"
    if found["rescheduler"].get("provider", {}).get("catalog") == PRICES and not catalog.exists():
        sys.exit(
            "error: rescheduler.json names a catalog in prices.csv, and no such file is beside it: "
            "write it as docs/plan.md describes under Prices"
        )
    kubeconfigs = {service: kubeconfig_of(service, found[service].get("context", "")) for service in REACHING}
    for service, kubeconfig in kubeconfigs.items():
        write(OUT / service / "kubeconfig", kubeconfig)
    if catalog.exists():
        write(OUT / "rescheduler" / "prices.csv", catalog.read_text(encoding="utf-8"))
    everything = {
        service: {name: value for name, value in found[service].items() if name != "runtime"} for service in found
    }
    write(OUT / "rescheduler" / "services.json", json.dumps(everything))
    return found


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulator", default="", help="address of a simulated cluster")
    parser.add_argument("--settings", type=Path, default=Path("/in/settings"), help="directory of settings by service")
    parser.add_argument("--cluster-name", default="", help="name of the cluster in events")
    parser.add_argument("--all-in-one", action="store_true", help="for all services in one container")
    given = parser.parse_args()
    (OUT / "admin" / "cluster").unlink(missing_ok=True)
    if not given.simulator and not given.cluster_name:
        parser.error("--cluster-name is empty: set KINEMA_CLUSTER in .env")
    passwords = {user: password(user) for user in USERS}
    if given.simulator:
        settings = demo(given.simulator)
    else:
        settings = real(given.settings, given.cluster_name, all_in_one=given.all_in_one)
    for service, values in settings.items():
        runtime = {
            "nats_url": "nats://nats:4222",
            "nats_user": service,
            "nats_password_file": "/etc/kinema/nats-password",
            "log_format": "json",
            **values["runtime"],
        }
        places = {"kubeconfig": "/etc/kinema/kubeconfig"} if service in REACHING else {}
        write(OUT / service / "settings.json", json.dumps({**places, **values, "runtime": runtime}, indent=2))
        write(OUT / "operator" / "cluster", str(runtime["cluster"]))
    cluster = (OUT / "operator" / "cluster").read_text(encoding="utf-8")
    names = OUT / "admin" / "clusters"
    clusters = sorted({cluster, *(names.read_text(encoding="utf-8").split() if names.exists() else ())})
    write(names, "\n".join(clusters))
    configuration = {
        "server_name": "kinema",
        "listen": "0.0.0.0:4222",
        "http": "0.0.0.0:8222",
        "max_payload": 1024**2,
        # The default syncs every two minutes: a power cut would lose what was acknowledged.
        "jetstream": {
            "store_dir": "/data",
            "sync_interval": "always",
            "max_file_store": 8 * GIBIBYTE,
            "max_memory_store": 0,
        },
        "authorization": authorization(passwords, clusters),
    }
    write(OUT / "nats" / "nats-server.conf", json.dumps(configuration, indent=2))
    if (OUT / "state").exists():
        (OUT / "state" / "nats").mkdir(exist_ok=True)  # in it, the streams are mounted
    for volume in ("nats-data", "demo", "state", "state/nats"):
        if (OUT / volume).exists():
            os.chown(OUT / volume, USER, USER)
    write(OUT / "admin" / "cluster", cluster)


if __name__ == "__main__":
    main()
