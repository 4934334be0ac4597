"""Faults of YAML files that people write, in one line, without the file's name."""

from __future__ import annotations

import msgspec


def yaml_fault(error: msgspec.MsgspecError) -> str:
    """Return place and problem of a text that is no YAML, or not of the expected shape."""
    cause = error.__context__  # of the YAML reader, which needs three lines for it
    mark, problem = getattr(cause, "problem_mark", None), getattr(cause, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).replace('in "<byte string>", ', "at ").split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
