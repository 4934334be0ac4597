"""Offers of the cloud: machine types with prices, and what a node of each has left for pods."""

import csv
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources

GIB = 1024**3
MIB = 1024**2
ZONES = ("europe-west3-a", "europe-west3-b", "europe-west3-c")
PRICE_DATE = "2024-06-01"
PRICE_SOURCE = "GCE E2 on demand, europe-west3 (Kinema thesis, chapter 6)"
MAX_PODS = 110

_CPU_RESERVE = ((1, Fraction(6, 100)), (1, Fraction(1, 100)), (2, Fraction(5, 1000)), (None, Fraction(25, 10_000)))
_MEMORY_RESERVE = (
    (4, Fraction(25, 100)),
    (4, Fraction(20, 100)),
    (8, Fraction(10, 100)),
    (112, Fraction(6, 100)),
    (None, Fraction(2, 100)),
)
_EVICTION_THRESHOLD = 100 * MIB
_SMALL_MACHINE_RESERVE = 255 * MIB


@dataclass(frozen=True)
class Offer:
    """A kind of node on sale in one zone.

    Attributes:
        machine_type: name of the machine type.
        zone: where.
        capacity_type: `on-demand` or `spot`.
        vcpus: processors.
        memory_bytes: memory of the machine.
        usd_micro: price per hour in micro-USD.
        watts: electrical power, an estimate.
    """

    machine_type: str
    zone: str
    capacity_type: str
    vcpus: int
    memory_bytes: int
    usd_micro: int
    watts: int

    @property
    def name(self) -> str:
        """Machine type, zone and capacity type in one word."""
        return f"{self.machine_type}/{self.zone}/{self.capacity_type}"


def _tiered(amount: Fraction, tiers: tuple[tuple[int | None, Fraction], ...]) -> Fraction:
    total = Fraction(0)
    for size, share in tiers:
        part = amount if size is None else min(amount, Fraction(size))
        total += part * share
        amount -= part
    return total


def allocatable_cpu_m(vcpus: int) -> int:
    """Give the millicores left for pods after the provider's reserve (GKE's formula, rounded down)."""
    return int((Fraction(vcpus) - _tiered(Fraction(vcpus), _CPU_RESERVE)) * 1000)


def allocatable_memory(memory_bytes: int) -> int:
    """Give the bytes left for pods after the provider's reserve and the eviction threshold, rounded down."""
    if memory_bytes < GIB:
        return max(0, memory_bytes - _SMALL_MACHINE_RESERVE - _EVICTION_THRESHOLD)
    gib = Fraction(memory_bytes, GIB)
    return int((gib - _tiered(gib, _MEMORY_RESERVE)) * GIB) - _EVICTION_THRESHOLD


def load_offers(zones: tuple[str, ...] = ZONES) -> tuple[Offer, ...]:
    """Read the price list that comes with the package: every machine type on demand in every zone."""
    text = resources.files("kinema_sim").joinpath("data/gke-e2-europe-west3.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        Offer(
            machine_type=row["machine_type"],
            zone=zone,
            capacity_type="on-demand",
            vcpus=int(row["vcpus"]),
            memory_bytes=int(row["memory_gib"]) * GIB,
            usd_micro=int(Fraction(row["usd_per_hour"]) * 1_000_000),
            watts=int(row["watts"]),
        )
        for row in rows
        for zone in zones
    )
