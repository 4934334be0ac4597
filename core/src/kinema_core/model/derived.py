"""Values that follow from a cluster, kept with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, TypeVar, cast

from kinema_core.model.cluster import Cluster

T = TypeVar("T")

_PLACE: Final = "_derived"
"""Under this name in the cluster's own dictionary, where its cached properties are too."""


def derived(make: Callable[[Cluster], T]) -> Callable[[Cluster], T]:
    """Decorate a pure function of a cluster: its value is worked out once for each cluster value and dropped with it.

    This is what `cached_property` does for the cluster's own views; a cluster cannot key a cache, as comparing two of
    them means comparing every object.
    """

    @wraps(make)
    def known(cluster: Cluster) -> T:
        values: dict[Callable[[Cluster], object], object] = vars(cluster).setdefault(_PLACE, {})
        if make not in values:
            values[make] = make(cluster)
        return cast("T", values[make])

    return known
