"""Finding fields that a partial struct does not know: rules of a later Kubernetes that we must not ignore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, get_args, get_origin

import msgspec

_SILENT: Final[tuple[object, ...]] = (None, [], {}, "", False)


def unknown_fields(kind: object, value: object, path: str) -> tuple[str, ...]:
    """Paths of the fields in `value` (plain JSON) that say something and that `kind` (a struct or list of one) lacks.

    Fields that are null or empty restrict nothing and are passed over.
    """
    return tuple(sorted(_walk(kind, value, path)))


def _walk(kind: object, value: object, path: str) -> Iterator[str]:
    known, inner = _shape(kind)
    if inner is not None and isinstance(value, list):
        for item in value:
            yield from _walk(inner, item, path)
    elif known and isinstance(value, dict):
        for key, item in value.items():
            if key not in known:
                if item not in _SILENT:
                    yield f"{path}.{key}"
            elif isinstance(item, (dict, list)):
                yield from _walk(known[key], item, f"{path}.{key}")


@lru_cache(maxsize=256)
def _shape(kind: object) -> tuple[Mapping[str, object], object]:
    """The fields of a struct by their name in JSON, and the item type of a list; `X | None` counts as `X`."""
    options = [option for option in get_args(kind) if option is not type(None)]
    if get_origin(kind) is list:
        return MappingProxyType({}), options[0]
    if len(options) == 1:
        return _shape(options[0])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return MappingProxyType({field.encode_name: field.type for field in msgspec.structs.fields(kind)}), None
    return MappingProxyType({}), None
