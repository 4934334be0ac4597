"""Power that nodes draw, for plans that count energy in place of money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from kinema_core.events import Offer
from kinema_core.model.catalog import PriceError, machine_of
from kinema_core.model.catalog_file import MICRO
from kinema_core.model.cluster import Cluster


def watts_by_type(cluster: Cluster, offers: Sequence[Offer]) -> Mapping[str, int]:
    """Microwatts of each machine type on sale or in use; of offers of a type that differ, the first counts.

    A machine that drew nothing would be wanted by every plan: 0 is taken as not known.

    Raises:
        PriceError: some have no watts; all of them are named.
    """
    found: dict[str, int] = {}
    for offer in offers:
        found.setdefault(offer.machine_type, micro_watts(offer))
    unknown = {offer.machine_type for offer in offers if not micro_watts(offer)}
    types = found.keys() | {machine_of(node)[0] for node in cluster.nodes}
    missing = sorted(unknown | (types - found.keys()))
    if missing:
        named = ", ".join(missing)
        kinds = "machine type has" if len(missing) == 1 else "machine types have"
        message = f"{len(missing)} {kinds} no watts, so energy cannot be compared: {named}: fill in the column watts"
        raise PriceError(message)
    return found


def micro_watts(offer: Offer) -> int:
    """Return what a machine of the offer draws; 0 where that is not known."""
    return 0 if offer.watts is None else round(Fraction(offer.watts) * MICRO)
