"""What is wrong with YAML files that people write, settings and kubeconfigs: in one line, without the file's name."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

_Contents: TypeAlias = dict[Path, dict[str, Any]]
"""What stands in the files of a kubeconfig, in their order."""


def yaml_fault(error: msgspec.MsgspecError) -> str:
    """Place and problem of a text that is no YAML, or not of the expected shape."""
    cause = error.__context__  # of the YAML reader, which tells it in three lines
    mark, problem = getattr(cause, "problem_mark", None), getattr(cause, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).replace('in "<byte string>", ', "at ").split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def kubeconfig_files(path: Path) -> tuple[Path, ...]:
    """Those that are there of a kubeconfig's files: it may be a list, as in `KUBECONFIG=a:b`."""
    return tuple(one for one in map(Path, str(path).split(os.pathsep)) if _is_there(one.expanduser()))


def _is_there(path: Path) -> bool:
    try:
        return path != Path() and path.exists()
    except OSError:  # in a directory that may not be searched
        return False


def kubeconfig_fault(path: Path, context: str = "") -> str:
    """What is wrong with a kubeconfig in ways that its reader does not say clearly; empty: nothing that we know of."""
    files = kubeconfig_files(path)
    if not files:
        return "no such file: name the kubeconfig of a cluster by --kubeconfig, KUBECONFIG or the setting `kubeconfig`"
    contents: _Contents = {}
    for file in files:
        where = f"{file}: " if len(files) > 1 else ""
        try:
            content = _content(file)
        except OSError:
            return ""  # it may not be read: the reader says so
        except msgspec.DecodeError as error:
            return where + yaml_fault(error)
        if not isinstance(content, dict):
            return f"{where}this is no kubeconfig: it has no clusters, users and contexts"
        contents[file] = content
    return _fault_of_context(contents, context) or _fault_of_paths(contents, context or _current(contents))


def current_context(path: Path) -> str:
    """The context that a kubeconfig names as its current one; empty where it names none or cannot be read."""
    contents: _Contents = {}
    for file in kubeconfig_files(path):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            content = _content(file)
            contents[file] = content if isinstance(content, dict) else {}
    return _current(contents)


def _content(file: Path) -> object:
    return msgspec.yaml.decode(file.expanduser().read_bytes())


def _current(contents: _Contents) -> str:
    """Of several files the first that names one counts, for kubectl."""
    named = (str(content.get("current-context") or "") for content in contents.values())
    return next(filter(None, named), "")


def _items(contents: _Contents, kind: str) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Clusters, users or contexts by name, with their files; of several of one name the first counts."""
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for file, content in contents.items():
        items = content.get(kind)
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                found.setdefault(str(item.get("name")), (file, item))
    return found


def _fault_of_context(contents: _Contents, context: str) -> str:
    current = _current(contents)
    wanted = context or current
    names = _items(contents, "contexts")
    if wanted not in names:
        lacks = f"no context {wanted!r} in it" if wanted else "it names no current-context"
        return f"{lacks}; there are: {', '.join(names) or 'none'}"
    last = [str(content["current-context"] or "") for content in contents.values() if "current-context" in content]
    if not context and last[-1] != current:  # the reader would take that one
        return f"{current!r} is its current context, but not in its last file: name it by --context or `context`"
    return ""


def _fault_of_paths(contents: _Contents, context: str) -> str:
    """The reader looks for a user's certificate beside the file of the cluster: right only where that is the user's."""
    _, meant = _items(contents, "contexts")[context]
    pair = meant.get("context")
    names = pair if isinstance(pair, dict) else {}
    cluster = _items(contents, "clusters").get(str(names.get("cluster")))
    user = _items(contents, "users").get(str(names.get("user")))
    if cluster is None or user is None or cluster[0].absolute().parent == user[0].absolute().parent:
        return ""
    own = user[1].get("user")
    if not isinstance(own, dict):
        return ""
    for key in ("client-certificate", "client-key"):
        if key in own and f"{key}-data" not in own and not Path(str(own[key])).is_absolute():
            return (
                f"{user[0]}: user {names['user']!r} has its {key} beside this file, its cluster is in {cluster[0]}: "
                "make one of them (`kubectl config view --flatten > FILE`), and name that by --kubeconfig"
            )
    return ""


def kubeconfig_error(error: Exception, path: str) -> str:
    """What a kubeconfig's reader said, in one line and without the file's name, which stands before it."""
    said = str(error).replace("Invalid kube-config file. ", "").replace(f" in {path}/", " in its ")
    return " ".join(said.removesuffix(f" in {path}").split()) or type(error).__name__
