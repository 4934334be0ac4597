"""An immutable string-keyed map that msgspec can carry."""

from __future__ import annotations

from typing import Any, Final, NoReturn, TypeVar

V = TypeVar("V")


class FrozenMap(dict[str, V]):
    """A dict that cannot change after it was built.

    msgspec encodes dict subclasses natively and builds them through `dec_hook`; `frozen=True` on a struct is
    shallow, so a plain dict inside an event could be changed by any receiver.
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a FrozenMap cannot be changed; build a new one")

    __setitem__ = _refuse
    __delitem__ = _refuse
    __ior__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse
    update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # a dict is unhashable because it changes; this one does not
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenMap[V]], tuple[dict[str, V]]]:
        return (type(self), (dict(self),))


EMPTY: Final[FrozenMap[Any]] = FrozenMap()
"""The one empty map, shared as a default."""
