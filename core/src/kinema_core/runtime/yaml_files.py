"""What is wrong with YAML files that people write, settings and kubeconfigs: in one line, without the file's name."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


def yaml_fault(error: msgspec.MsgspecError) -> str:
    """Place and problem of a text that is no YAML, or not of the expected shape."""
    cause = error.__context__  # of the YAML reader, which tells it in three lines
    mark, problem = getattr(cause, "problem_mark", None), getattr(cause, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).replace('in "<byte string>", ', "at ").split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def kubeconfig_fault(path: Path, context: str = "") -> str:
    """What is wrong with a kubeconfig in ways that its reader does not say clearly; empty: nothing that we know of."""
    try:
        content = msgspec.yaml.decode(path.read_bytes())
    except OSError:
        if any(Path(one).expanduser().exists() for one in str(path).split(os.pathsep)):
            return ""  # several files, or none that may be read: the reader says so
        return "no such file: name the kubeconfig of a cluster by --kubeconfig, KUBECONFIG or the setting `kubeconfig`"
    except msgspec.DecodeError as error:
        return yaml_fault(error)
    if not isinstance(content, dict):
        return "this is no kubeconfig: it has no clusters, users and contexts"
    contexts = content.get("contexts")
    names = [str(one.get("name")) for one in (contexts if isinstance(contexts, list) else ()) if isinstance(one, dict)]
    wanted = context or str(content.get("current-context") or "")
    if wanted in names:
        return ""
    lacks = f"no context {wanted!r} in it" if wanted else "it names no current-context"
    return f"{lacks}; there are: {', '.join(names) or 'none'}"


def current_context(path: Path) -> str:
    """The context that a kubeconfig names as its current one; empty where it names none or cannot be read."""
    try:
        content = msgspec.yaml.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return ""
    return str(content.get("current-context") or "") if isinstance(content, dict) else ""


def kubeconfig_error(error: Exception, path: str) -> str:
    """What a kubeconfig's reader said, in one line and without the file's name, which stands before it."""
    said = str(error).replace("Invalid kube-config file. ", "").replace(f" in {path}/", " in its ")
    return " ".join(said.removesuffix(f" in {path}").split()) or type(error).__name__
