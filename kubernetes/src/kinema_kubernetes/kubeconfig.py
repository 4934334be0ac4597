"""Kubeconfig files, with the meaning that `kubectl` gives them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from kinema_core.runtime.yaml_files import yaml_fault
from kinema_kubernetes.errors import SetupError

T = TypeVar("T")
_NO_FILE = "no such file: name the kubeconfig of a cluster by --kubeconfig, KUBECONFIG or the setting `kubeconfig`"


class ClusterEntry(msgspec.Struct, rename="kebab"):
    """A cluster of a kubeconfig."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class Variable(msgspec.Struct):
    """An environment variable of a credential plugin."""

    name: str
    value: str


class Plugin(msgspec.Struct, rename="camel"):
    """A credential plugin: a command that prints an `ExecCredential`."""

    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class UserEntry(msgspec.Struct, rename="kebab"):
    """A user of a kubeconfig."""

    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: Plugin | None = None
    auth_provider: dict[str, Any] | None = None


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: ClusterEntry | None = None


class _NamedUser(msgspec.Struct):
    name: str
    user: UserEntry | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context | None = None


class _File(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


@dataclass(frozen=True)
class Located(Generic[T]):
    """An entry, and the directory of its file: relative paths in the entry start there."""

    entry: T
    directory: Path

    def path(self, name: str) -> Path:
        """Return the file that the entry names."""
        return self.directory / name


def kubeconfig_files(path: Path) -> tuple[Path, ...]:
    """Return those of a kubeconfig's files that exist: it may be a list, as in `KUBECONFIG=a:b`."""
    return tuple(one for one in map(Path, str(path).split(os.pathsep)) if _exists(one.expanduser()))


def _exists(path: Path) -> bool:
    try:
        return path != Path() and path.exists()
    except OSError:  # in a directory that may not be searched
        return False


def current_context(path: Path) -> str:
    """Return the context that a kubeconfig names as its current one; empty where it names none or cannot be read."""
    for file in kubeconfig_files(path):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            content = msgspec.yaml.decode(file.expanduser().read_bytes())
            if isinstance(content, dict) and content.get("current-context"):
                return str(content["current-context"])
    return ""


def entries_of(kubeconfig: str, context: str) -> tuple[str, Located[ClusterEntry], Located[UserEntry]]:
    """Return the name, cluster and user of a context; without a name, of the current one.

    Of several files the first that names a current context, cluster, user or context counts.

    Raises:
        SetupError: a file cannot be read, or an entry is missing.
    """
    subject = f"kubeconfig {kubeconfig}"
    files = _read(subject, kubeconfig)
    contexts = {one.name: one.context for _, one in _entries(files, "contexts")}
    wanted = context or next(filter(None, (content.current_context for content in files.values())), "")
    if wanted not in contexts:
        lacks = f"no context {wanted!r} in it" if wanted else "it names no current-context"
        names = dict.fromkeys(one.name for content in files.values() for one in content.contexts or ())
        raise SetupError(subject, f"{lacks}; there are: {', '.join(names) or 'none'}")
    pair = contexts[wanted] or _Context()
    clusters = {one.name: Located(one.cluster, at) for at, one in _entries(files, "clusters")}
    users = {one.name: Located(one.user, at) for at, one in _entries(files, "users")}
    cluster, user = clusters.get(pair.cluster), users.get(pair.user, Located(None, Path()))
    if cluster is None or cluster.entry is None or not cluster.entry.server:
        raise SetupError(subject, f"context {wanted!r}: there is no cluster {pair.cluster!r} with a server")
    if pair.user and pair.user not in users:
        raise SetupError(subject, f"context {wanted!r}: there is no user {pair.user!r}")
    return wanted, Located(cluster.entry, cluster.directory), Located(user.entry or UserEntry(), user.directory)


def _entries(files: Mapping[Path, _File], kind: str) -> list[tuple[Path, Any]]:
    """Return the entries of a kind, those that count last, each with its file's directory."""
    every = [(file, one) for file, content in files.items() for one in getattr(content, kind) or ()]
    return [(file.expanduser().absolute().parent, one) for file, one in reversed(every)]


def _read(subject: str, kubeconfig: str) -> dict[Path, _File]:
    files = kubeconfig_files(Path(kubeconfig))
    if not files:
        raise SetupError(subject, _NO_FILE)
    found = {}
    for file in files:
        where = f"{file}: " if len(files) > 1 else ""
        try:
            content = msgspec.yaml.decode(file.expanduser().read_bytes())
            if not isinstance(content, dict):
                raise SetupError(subject, f"{where}this is no kubeconfig: it has no clusters, users and contexts")
            found[file] = msgspec.convert(content, _File)
        except OSError as error:
            raise SetupError(subject, f"{where}{error.strerror or error}") from error
        except msgspec.MsgspecError as error:
            raise SetupError(subject, f"{where}{yaml_fault(error)}") from error
    return found
