"""A node whose pods run as containers of the engine: what a kubelet does for them, as far as the charts need it.

It takes pods from the API server as they are bound to its node, runs their containers by `tests.charts.pod_spec`, asks
their probes, starts again what ended, and says in their status what is so. Pods of other namespaces than its own, which
daemons put on every node, it calls running without running them, as KWOK does.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.charts.pod_spec import JSON, Container, Pod, Probe, Surroundings, Translation
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.nodes import node
from tests.support.engine import docker

NODE: Final = "engine"
TAINT: Final = {"key": "dedicated", "value": "kinema", "effect": "NoSchedule"}
PINNED: Final = {
    "nodeSelector": {"kubernetes.io/hostname": NODE},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
}
"""Values of a chart whose pods are to run here."""
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_LEASE_SECONDS: Final = 10.0
_TURN_SECONDS: Final = 0.5
_BACK_OFF_SECONDS: Final = 2.0
"""Before a container that ended is started again; a kubelet waits ten, then ever longer."""
_MERGE: Final = "application/merge-patch+json"


@dataclass
class Asked:
    """What a probe has said in a row."""

    probe: Probe
    due: float
    successes: int = 0
    failures: int = 0


@dataclass
class Running:
    """A pod and its current container."""

    pod: Pod
    container: Container
    engine_name: str
    started: float
    since: str
    """`started` as a status says it."""
    restarts: int = 0
    again_at: float = 0.0
    """When an ended container is started again; 0: it was not seen to end."""
    asked: dict[str, Asked] = field(default_factory=dict)
    is_up: bool = False
    """Whether the startup probe has succeeded, if there is one."""
    is_ready: bool = False
    ready_seconds: float = 0.0
    """From the container's start to its first success; 0: it had none yet."""
    ready_processor_seconds: float = 0.0
    """Of them, what its process took: tells more on a busy machine."""
    end: int | None = None
    """Exit code with which the pod ended."""
    stopping: subprocess.Popen[bytes] | None = None
    told: JSON = field(default_factory=dict)


class Kubelet:
    """One node, of which `running` gives one; `error` is what it could not do."""

    def __init__(self, access: Access, namespace: str, network: str, folder: Path, api_server: tuple[str, int]) -> None:
        self._access = access
        self._namespace = namespace
        self._network = network
        self._folder = folder
        self._api_server = api_server
        self._renewed = 0.0
        self._count = 0
        self.pods: dict[str, Running] = {}
        """By uid."""
        self.ended: list[Running] = []
        self.error: Exception | None = None
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Kubelet]:
        """Run pods within the block; all containers are removed afterwards."""
        made = node(NODE, cpu="16", memory="64Gi", machine="e2-standard-16", taints=[TAINT])
        del made["metadata"]["annotations"]
        self._access.request("POST", "/api/v1/nodes", made)
        self._renew()
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
            for one in self.pods.values():
                self._remove(one)

    def check(self) -> None:
        """Raise what kept this node from working."""
        if self.error is not None:
            raise self.error

    def of(self, name: str) -> list[Running]:
        """Return the pods of a part of Kinema."""
        return [one for one in list(self.pods.values()) if one.pod.app == f"kinema-{name}"]

    def log(self, one: Running) -> Path:
        """Return where the output of a pod's ended containers lies."""
        return self._folder / f"{one.pod.name}.log"

    def _work(self) -> None:
        while not self._stop.wait(_TURN_SECONDS):
            try:
                self._renew()
                self._turn()
            except (OSError, RefusedError):  # a server that is away is asked again
                continue
            except Exception as error:  # noqa: BLE001 - the test that waits for this node tells
                self.error = error
                return

    def _renew(self) -> None:
        if self._renewed and time.monotonic() - self._renewed < _LEASE_SECONDS:
            return
        first = not self._renewed
        self._renewed = time.monotonic()
        renewed = _now().replace("Z", ".000000Z")
        spec = {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": renewed}
        body = {"metadata": {"name": NODE}, "spec": spec}
        if first:
            self._access.request("POST", _LEASE, body)
        else:
            self._access.request("PATCH", f"{_LEASE}/{NODE}", body, content_type=_MERGE)
        times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), _now())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", **times}
        self._status(f"/api/v1/nodes/{NODE}", {"conditions": [ready]})

    def _status(self, path: str, status: JSON) -> None:
        self._access.request("PATCH", f"{path}/status", {"status": status}, content_type=_MERGE)

    def _turn(self) -> None:
        told = self._access.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}")["items"]
        states = self._states()
        for pod in told:
            if pod["metadata"]["namespace"] != self._namespace:
                self._pretend(pod)
            elif "deletionTimestamp" in pod["metadata"]:
                self._end(pod, states)
            else:
                self._tend(pod, states)
        gone = self.pods.keys() - {pod["metadata"]["uid"] for pod in told}
        for uid in gone:  # deleted by force
            self._remove(self.pods.pop(uid))

    def _states(self) -> Mapping[str, JSON]:
        names = [one.engine_name for one in self.pods.values() if one.end is None]
        found = json.loads(docker("inspect", *names)) if names else []
        return {one["Name"].removeprefix("/"): one for one in found}

    def _pretend(self, pod: JSON) -> None:
        path = _path(pod)
        if "deletionTimestamp" in pod["metadata"]:
            self._delete(path)
        elif pod["status"]["phase"] == "Pending":
            self._status(path, {"phase": "Running", "conditions": _conditions(ready=True)})

    def _delete(self, path: str) -> None:
        with suppress(RefusedError):
            self._access.request("DELETE", path, {"gracePeriodSeconds": 0})

    def _end(self, pod: JSON, states: Mapping[str, JSON]) -> None:
        """End a pod that is being deleted, with its time to do so."""
        one = self.pods.get(pod["metadata"]["uid"])
        if one is not None and one.end is None and states[one.engine_name]["State"]["Running"]:
            if one.stopping is None:
                self._report(pod, one, ready=False)
                grace = str(pod["metadata"].get("deletionGracePeriodSeconds", one.pod.grace))
                one.stopping = subprocess.Popen(
                    ["docker", "stop", "--time", grace, one.engine_name], stdout=subprocess.DEVNULL
                )
            return
        if one is not None:
            if one.end is None:
                one.end = int(states[one.engine_name]["State"]["ExitCode"])
                self.ended.append(one)
            self._remove(self.pods.pop(pod["metadata"]["uid"]))
        self._delete(_path(pod))

    def _tend(self, pod: JSON, states: Mapping[str, JSON]) -> None:
        uid = pod["metadata"]["uid"]
        one = self.pods.get(uid)
        if one is None:
            if pod["status"]["phase"] not in {"Succeeded", "Failed"}:
                self.pods[uid] = self._first(pod)
        elif one.end is None:
            state = states[one.engine_name]["State"]
            if state["Running"]:
                self._ask(one, states[one.engine_name])
            else:
                self._ended(pod, one, state)
            self._report(pod, one, ready=one.is_ready, address=_address(states[one.engine_name]))

    def _first(self, pod: JSON) -> Running:
        around = Surroundings(
            read=lambda path: self._access.request("GET", path),
            token=self._token,
            api_server=self._api_server,
            folder=self._folder / pod["metadata"]["uid"],
        )
        turned = Translation(pod, around).run()
        return self._start(pod, turned, (*turned.init, turned.main)[0])

    def _token(self, namespace: str, account: str, spec: JSON) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self._access.request("POST", path, {"spec": spec})["status"]["token"])

    def _start(self, pod: JSON, turned: Pod, container: Container, before: Running | None = None) -> Running:
        self._count += 1
        name = f"{self._network}-{turned.name}-{self._count}"
        aliases = [f"--network-alias={alias}" for alias in self._aliases(pod)]
        options = ("--detach", f"--name={name}", f"--network={self._network}", "--pull=never", *aliases)
        try:
            docker("run", *options, *container.options, container.image, *container.command)
        except AssertionError:
            docker("rm", "--force", name, check=False)
            raise
        now = time.monotonic()
        asked = {kind: Asked(probe, now + probe.delay) for kind, probe in container.probes.items()}
        restarts = 0 if before is None else before.restarts + 1
        return Running(turned, container, name, now, _now(), restarts, asked=asked)

    def _aliases(self, pod: JSON) -> Iterator[str]:
        """Names by which a cluster's DNS would lead to a pod."""
        labels = pod["metadata"].get("labels") or {}
        for service in self._access.request("GET", f"/api/v1/namespaces/{self._namespace}/services")["items"]:
            selector = service["spec"].get("selector")
            if selector and selector.items() <= labels.items():
                name = service["metadata"]["name"]
                full = f"{name}.{self._namespace}"
                yield from (name, full, f"{full}.svc", f"{full}.svc.cluster.local")

    def _ended(self, pod: JSON, one: Running, state: JSON) -> None:
        """Go on after a container's end: with the next one, with the same again, or not at all."""
        code, turned = int(state["ExitCode"]), one.pod
        if not one.again_at:
            one.again_at, one.is_ready = time.monotonic() + _BACK_OFF_SECONDS, False
            self._keep_log(one)
        if one.container in turned.init and code == 0:
            following = (*turned.init, turned.main)[turned.init.index(one.container) + 1]
            self._replace(pod, one, self._start(pod, turned, following))
        elif turned.restart == "Always" or (turned.restart == "OnFailure" and code):
            if time.monotonic() >= one.again_at:
                self._replace(pod, one, self._start(pod, turned, one.container, before=one))
        else:
            one.end = code
            self.ended.append(one)

    def _replace(self, pod: JSON, one: Running, other: Running) -> None:
        docker("rm", "--force", "--volumes", one.engine_name)
        self.pods[pod["metadata"]["uid"]] = other

    def _ask(self, one: Running, state: JSON) -> None:
        """Ask the probes that are due."""
        now, address = time.monotonic(), _address(state)
        for kind, asked in one.asked.items():
            if now < asked.due or (kind != "startup" and "startup" in one.asked and not one.is_up):
                continue
            asked.due = now + asked.probe.period
            well = _answers(address, one.engine_name, asked.probe)
            asked.successes, asked.failures = (asked.successes + 1, 0) if well else (0, asked.failures + 1)
            if kind == "readiness":
                one.is_ready = asked.successes >= asked.probe.successes or (
                    one.is_ready and asked.failures < asked.probe.failures
                )
            elif kind == "startup" and well:
                one.is_up = True
            elif asked.failures >= asked.probe.failures:
                docker("kill", one.engine_name)
        one.is_ready = one.is_ready or "readiness" not in one.asked
        if one.is_ready and not one.ready_seconds:
            one.ready_seconds = time.monotonic() - one.started
            one.ready_processor_seconds = _processor_seconds(state["State"]["Pid"])

    def _report(self, pod: JSON, one: Running, *, ready: bool, address: str = "") -> None:
        """Say in the pod's status what is so, if it was not said yet."""
        is_main = one.container is one.pod.main
        state: JSON
        if one.end is not None:
            phase, state = "Failed" if one.end else "Succeeded", {"terminated": {"exitCode": one.end}}
        elif one.again_at:
            phase, state = "Running" if is_main else "Pending", {"waiting": {"reason": "CrashLoopBackOff"}}
        else:
            phase, state = "Running" if is_main else "Pending", {"running": {"startedAt": one.since}}
        container = {
            "name": one.container.name,
            "image": one.container.image,
            "imageID": "",
            "ready": ready and is_main,
            "started": is_main and one.end is None,
            "restartCount": one.restarts,
            "state": state,
        }
        said = {
            "phase": phase,
            "conditions": _conditions(ready=ready and is_main, initialized=is_main),
            "containerStatuses" if is_main else "initContainerStatuses": [container],
            **({"podIP": address, "podIPs": [{"ip": address}]} if address else {}),
        }
        if said != one.told:
            since = {"startTime": pod["status"].get("startTime") or one.since}
            self._status(_path(pod), {**said, **since})
            one.told = said

    def _keep_log(self, one: Running) -> None:
        with self.log(one).open("a") as kept:
            kept.write(docker("logs", one.engine_name, check=False))

    def _remove(self, one: Running) -> None:
        self._keep_log(one)
        docker("rm", "--force", "--volumes", one.engine_name, check=False)
        if one.stopping is not None:
            one.stopping.wait()


def _path(pod: JSON) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return f"{datetime.fromtimestamp(time.time_ns() / 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _conditions(*, ready: bool, initialized: bool = True) -> list[JSON]:
    said = {"PodScheduled": True, "Initialized": initialized, "ContainersReady": ready, "Ready": ready}
    return [{"type": kind, "status": str(well)} for kind, well in said.items()]


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a process of this machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _address(state: JSON) -> str:
    (found,) = (one["IPAddress"] for one in state["NetworkSettings"]["Networks"].values())
    return str(found)


def _answers(address: str, container: str, probe: Probe) -> bool:
    if probe.command:
        command = ["docker", "exec", container, *probe.command]
        try:
            return subprocess.run(command, capture_output=True, check=False, timeout=probe.timeout).returncode == 0
        except subprocess.TimeoutExpired:
            return False
    try:
        with urllib.request.urlopen(f"http://{address}:{probe.port}{probe.path}", timeout=probe.timeout) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
