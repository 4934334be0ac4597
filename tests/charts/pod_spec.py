"""A pod, as the API server has it, turned into calls of `docker run`: as a kubelet would, or not at all.

Every field is either turned into something, or known to concern nobody but the scheduler, or refused with its path.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from kinema_core.model.quantity import parse_bytes, parse_cpu

JSON = dict[str, Any]
NOT_FOR_A_KUBELET: Final = (
    "affinity",
    "nodeName",
    "nodeSelector",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "schedulerName",
    "serviceAccount",  # an old name of serviceAccountName
    "tolerations",
    "topologySpreadConstraints",
)
_READABLE: Final = 0o440
_ALL_MAY_READ: Final = 0o004


class NotUnderstoodError(Exception):
    """A field, or its value, would have no effect on the container; the text is its path."""


class Fields:
    """The fields of an object. Those that nobody has taken when the block ends raise NotUnderstoodError."""

    def __init__(self, content: Mapping[str, Any] | None, path: str) -> None:
        self.path = path
        self._left = dict(content or {})

    def __enter__(self) -> Fields:
        """Give the fields."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Refuse what is left."""
        if error is None and self._left:
            raise NotUnderstoodError(f"{self.path}.{min(self._left)}")

    def take(self, name: str, default: Any = None) -> Any:
        """Return a field's value."""
        return self._left.pop(name, default)

    def take_one_of(self, name: str, *allowed: object) -> Any:
        """Return the value of a field that has one of a few."""
        value = self.take(name, allowed[0])
        if value not in allowed:
            raise NotUnderstoodError(f"{self.path}.{name}: {value!r}")
        return value

    def within(self, name: str) -> Fields:
        """Return the fields of an object."""
        return Fields(self.take(name), f"{self.path}.{name}")

    def each(self, name: str) -> Iterator[Fields]:
        """Return the fields of each object of a list."""
        for at, content in enumerate(self.take(name) or ()):
            with Fields(content, f"{self.path}.{name}[{at}]") as found:
                yield found

    def over(self, inherited: Mapping[str, Any]) -> Fields:
        """Return these fields, and where one is missing the inherited one."""
        return Fields({**inherited, **self._left}, self.path)

    def has(self, name: str) -> bool:
        """Return whether a field is there and was not taken yet."""
        return name in self._left


@dataclass(frozen=True)
class Probe:
    """How a container is asked how it is. Times in seconds."""

    command: tuple[str, ...]
    """Run in the container; empty: the address is asked."""
    path: str
    port: int
    delay: float
    period: float
    timeout: float
    successes: int
    failures: int


@dataclass(frozen=True)
class Container:
    """One container."""

    name: str
    image: str
    options: tuple[str, ...]
    """Of `docker run`."""
    command: tuple[str, ...]
    """After the image."""
    probes: Mapping[str, Probe]
    """By kind: startup, liveness, readiness."""
    mounts: tuple[str, ...]
    """Paths where something is mounted."""
    writable: tuple[str, ...]
    """Those of them that may be written to."""


@dataclass(frozen=True)
class Pod:
    """What is to run."""

    name: str
    namespace: str
    uid: str
    app: str
    """Its label `app.kubernetes.io/name`."""
    init: tuple[Container, ...]
    """Containers that run before, one after the other."""
    main: Container
    restart: str
    grace: int


@dataclass(frozen=True)
class Surroundings:
    """What a kubelet knows beside the pod."""

    read: Callable[[str], Any]
    """Returns what the API server answers at a path."""
    token: Callable[[str, str, JSON], str]
    """Returns a token for an account: namespace, name and spec of the request."""
    api_server: tuple[str, int]
    """Address and port."""
    folder: Path
    """Where volumes are made."""


@dataclass
class Translation:
    """One pod being turned."""

    pod: JSON
    around: Surroundings
    volumes: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Name → source on this machine, or options of a tmpfs, and whether it may be written to."""
    owner: tuple[int, int] = (0, 0)
    """User and group of files that not all may read."""

    @property
    def namespace(self) -> str:
        """The pod's."""
        return str(self.pod["metadata"]["namespace"])

    def run(self) -> Pod:
        """Turn it; raises NotUnderstoodError."""
        meta = self.pod["metadata"]
        with Fields(self.pod["spec"], "spec") as spec:
            for name in NOT_FOR_A_KUBELET:
                spec.take(name)
            spec.take_one_of("dnsPolicy", "ClusterFirst")
            spec.take_one_of("enableServiceLinks", False)
            spec.take_one_of("hostNetwork", False)
            spec.take("automountServiceAccountToken")  # admission has made a volume of it
            spec.take("imagePullSecrets")  # images are here
            account = spec.take("serviceAccountName", "default")
            names = [f"--hostname={spec.take('hostname', meta['name'])}"]
            spec.take("subdomain")  # of a headless Service: it gives names, see the kubelet
            security, options = self._pod_security(spec.within("securityContext"))
            for volume in spec.each("volumes"):
                self._volume(volume, account)
            init = tuple(self._container(one, security, names + options) for one in spec.each("initContainers"))
            main, *more = (self._container(one, security, names + options) for one in spec.each("containers"))
            if more:
                raise NotUnderstoodError("spec.containers[1]")
            if init and any(not source.startswith("/") for source, _ in self.volumes.values()):
                raise NotUnderstoodError("spec.initContainers: beside an emptyDir with a limit")
            return Pod(
                name=meta["name"],
                namespace=self.namespace,
                uid=meta["uid"],
                app=meta["labels"].get("app.kubernetes.io/name", ""),
                init=init,
                main=main,
                restart=spec.take_one_of("restartPolicy", "Always", "OnFailure", "Never"),
                grace=spec.take("terminationGracePeriodSeconds", 30),
            )

    def _pod_security(self, given: Fields) -> tuple[JSON, list[str]]:
        """Return what containers inherit, and options of all containers."""
        with given:
            inherited = {
                name: given.take(name)
                for name in ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")
                if given.has(name)
            }
            group = given.take("fsGroup")
            groups = [*given.take("supplementalGroups", ()), *([] if group is None else [group])]
            given.take_one_of("fsGroupChangePolicy", "Always", "OnRootMismatch")
        self.owner = (inherited.get("runAsUser", 0), group if group is not None else 0)
        return inherited, [f"--group-add={one}" for one in groups]

    def _container(self, given: Fields, security: JSON, options: Sequence[str]) -> Container:
        with given:
            for name in ("imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"):
                given.take(name)
            command, arguments = given.take("command", ()), given.take("args", ())
            host, port = self.around.api_server
            env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
            for one in given.each("env"):
                name = one.take("name")
                env[name] = self._value(one)
            for text in (*command, *arguments, *env.values()):
                if "$(" in text:
                    raise NotUnderstoodError(f"{given.path}: {text!r}")
            ports = {}
            for one in given.each("ports"):
                one.take_one_of("protocol", "TCP")
                ports[one.take("name")] = one.take("containerPort")
            mounts, mounted, writable = [], [], []
            for one in given.each("volumeMounts"):
                target, (source, can_write) = one.take("mountPath"), self.volumes[one.take("name")]
                can_write &= not one.take("readOnly", False)
                mounted.append(target)
                writable += [target] if can_write else []
                kind = f"--volume={source}:{target}" if source.startswith("/") else f"--tmpfs={target}:{source}"
                mounts.append(kind + ("" if can_write else ":ro"))
            return Container(
                name=given.take("name"),
                image=given.take("image"),
                options=(
                    *options,
                    *_security(given.within("securityContext"), security),
                    *_resources(given.within("resources")),
                    *(f"--env={name}={value}" for name, value in env.items()),
                    *mounts,
                    *([f"--entrypoint={command[0]}"] if command else []),
                ),
                command=(*command[1:], *arguments),
                probes={
                    kind: _probe(given.within(f"{kind}Probe"), ports)
                    for kind in ("startup", "liveness", "readiness")
                    if given.has(f"{kind}Probe")
                },
                mounts=tuple(mounted),
                writable=tuple(writable),
            )

    def _value(self, given: Fields) -> str:
        """Return the value of a variable."""
        if not given.has("valueFrom"):
            return str(given.take("value", ""))
        with given.within("valueFrom") as source:
            for name, kind in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
                if source.has(name):
                    with source.within(name) as of:
                        return self._data(kind, of.take("name"))[of.take("key")].decode()
            with source.within("fieldRef") as of:
                return self._of_pod(of)

    def _of_pod(self, given: Fields) -> str:
        given.take("apiVersion")
        meta = self.pod["metadata"]
        known = {f"metadata.{name}": meta[name] for name in ("name", "namespace", "uid")}
        return str(known[given.take_one_of("fieldPath", *known)])

    def _data(self, kind: str, name: str) -> dict[str, bytes]:
        found = self.around.read(f"/api/v1/namespaces/{self.namespace}/{kind}/{name}")
        texts = {key: text.encode() for key, text in (found.get("data") or {}).items()}
        if kind == "secrets":
            return {key: base64.b64decode(text) for key, text in texts.items()}
        return texts | {key: base64.b64decode(text) for key, text in (found.get("binaryData") or {}).items()}

    def _volume(self, given: Fields, account: str) -> None:
        name = given.take("name")
        folder = self.around.folder / name
        if given.has("emptyDir"):
            with given.within("emptyDir") as empty:
                limit, medium = empty.take("sizeLimit"), empty.take_one_of("medium", "", "Memory")
            if limit is not None or medium:
                # A kubelet looks every now and then whether more is taken, and evicts the pod.
                size = f",size={parse_bytes(limit)}" if limit is not None else ""
                self.volumes[name] = (f"rw,exec,mode=1777{size}", True)
            else:
                folder.mkdir(parents=True)
                folder.chmod(0o777)
                self.volumes[name] = (str(folder), True)
            return
        if given.has("persistentVolumeClaim"):
            with given.within("persistentVolumeClaim") as claimed:
                claim = self.around.read(
                    f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{claimed.take('claimName')}"
                )
            volume = self.around.read(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
            source = volume["spec"]["local"]["path"]
            self._give(Path(source), 0o2775)
            self.volumes[name] = (source, True)
            return
        folder.mkdir(parents=True)
        self.volumes[name] = (str(folder), False)
        kind = next((kind for kind in ("projected", "secret", "configMap") if given.has(kind)), "")
        if kind == "projected":
            with given.within("projected") as projected:
                mode = projected.take("defaultMode")
                for source in projected.each("sources"):
                    self._project(source, folder, account, mode)
        elif kind:
            with given.within(kind) as source:
                self._files(source, kind, folder, source.take("defaultMode"))

    def _project(self, source: Fields, folder: Path, account: str, mode: int) -> None:
        for kind in ("secret", "configMap"):
            if source.has(kind):
                with source.within(kind) as given:
                    self._files(given, kind, folder, mode)
                return
        if source.has("serviceAccountToken"):
            with source.within("serviceAccountToken") as given:
                audience = given.take("audience")
                asked = {
                    "expirationSeconds": given.take("expirationSeconds"),
                    "audiences": [] if audience is None else [audience],
                    "boundObjectRef": {"apiVersion": "v1", "kind": "Pod"}
                    | {name: self.pod["metadata"][name] for name in ("name", "uid")},
                }
                token = self.around.token(self.namespace, account, asked)
                self._write(folder / given.take("path"), token.encode(), 0o600)
            return
        with source.within("downwardAPI") as given:
            for item in given.each("items"):
                with item.within("fieldRef") as of:
                    self._write(folder / item.take("path"), self._of_pod(of).encode(), mode)

    def _files(self, given: Fields, kind: str, folder: Path, mode: int) -> None:
        data = self._data(f"{kind.lower()}s", given.take("secretName" if given.has("secretName") else "name"))
        chosen = [(one.take("key"), one.take("path")) for one in given.each("items")]
        for key, path in chosen or [(key, key) for key in data]:
            self._write(folder / path, data[key], mode)

    def _write(self, path: Path, content: bytes, mode: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self._give(path, mode | _READABLE)

    def _give(self, path: Path, mode: int) -> None:
        """Let the pod's group have a path, as a kubelet does; who is not root can only let all have it."""
        if os.geteuid() == 0:
            os.chown(path, self.owner[0], self.owner[1])
        elif not mode & _ALL_MAY_READ:
            mode |= _ALL_MAY_READ
        path.chmod(mode)


def _security(given: Fields, inherited: JSON) -> Iterator[str]:
    with given.over(inherited) as merged:
        user, group = merged.take("runAsUser"), merged.take("runAsGroup", 0)
        if merged.take("runAsNonRoot", False) and not user:
            raise NotUnderstoodError(f"{given.path}.runAsNonRoot: without a user")
        if user is not None:
            yield f"--user={user}:{group}"
        if not merged.take("allowPrivilegeEscalation", True):
            yield "--security-opt=no-new-privileges"
        if merged.take("readOnlyRootFilesystem", False):
            yield "--read-only"
        with merged.within("capabilities") as capabilities:
            yield from (f"--cap-drop={name}" for name in capabilities.take("drop", ()))
            yield from (f"--cap-add={name}" for name in capabilities.take("add", ()))
        with merged.within("seccompProfile") as profile:
            if profile.take_one_of("type", "Unconfined", "RuntimeDefault") == "Unconfined":
                yield "--security-opt=seccomp=unconfined"


def _resources(given: Fields) -> Iterator[str]:
    with given:
        with given.within("requests") as requests:
            requests.take("memory")  # for the scheduler
            yield f"--cpu-shares={max(2, parse_cpu(requests.take('cpu', '0')) * 1024 // 1000)}"
        with given.within("limits") as limits:
            if limits.has("cpu"):
                yield f"--cpus={parse_cpu(limits.take('cpu')) / 1000}"
            if limits.has("memory"):
                size = parse_bytes(limits.take("memory"))
                yield f"--memory={size}"
                yield f"--memory-swap={size}"


def _probe(given: Fields, ports: Mapping[str, int]) -> Probe:
    with given, given.within("httpGet") as asked, given.within("exec") as run:
        asked.take_one_of("scheme", "HTTP")
        port = asked.take("port", 0)
        return Probe(
            command=tuple(run.take("command", ())),
            path=asked.take("path", ""),
            port=port if isinstance(port, int) else ports[port],
            delay=given.take("initialDelaySeconds", 0),
            period=given.take("periodSeconds", 10),
            timeout=given.take("timeoutSeconds", 1),
            successes=given.take("successThreshold", 1),
            failures=given.take("failureThreshold", 3),
        )
