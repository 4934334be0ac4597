"""Values that follow from a cluster, kept with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

from kinema_core.model.cluster import Cluster

T = TypeVar("T")

_PLACE: Final = "_derived"
"""Under this name in the cluster's own dictionary, where its cached properties are too."""


def derived(cluster: Cluster, make: Callable[[Cluster], T]) -> T:
    """`make(cluster)`, worked out once for each cluster value and dropped with it.

    `make` must be a pure module-level function. This is what `cached_property` does for the cluster's own views; a
    cluster cannot key a cache, as comparing two of them means comparing every object.
    """
    known: dict[Callable[[Cluster], object], object] = vars(cluster).setdefault(_PLACE, {})
    if make not in known:
        known[make] = make(cluster)
    return cast("T", known[make])
