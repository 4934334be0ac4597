"""Machine types for generated problems, priced per vCPU and GiB: near a large cloud's list prices, no quotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GIBIBYTE: Final = 2**30
ZONES: Final = ("europe-west3-a", "europe-west3-b", "europe-west3-c")

N2_VCPU_MICRO_USD: Final = 31_611
"""Per vCPU and hour; an approximation."""
N2_GIB_MICRO_USD: Final = 4_237
"""Per GiB and hour; an approximation."""

_FAMILIES: Final[dict[str, tuple[int, int]]] = {
    "n2": (N2_VCPU_MICRO_USD, N2_GIB_MICRO_USD),
    "n2d": (27_502, 3_686),
    "e2": (21_811, 2_923),
    "t2d": (33_800, 1_640),
    "c2": (33_982, 4_555),
}
"""Micro-USD per hour for a vCPU and a GiB; approximations."""


@dataclass(frozen=True)
class MachineType:
    """A machine type; everything that it has is for pods."""

    name: str
    micro_usd_per_hour: int
    amounts: tuple[int, ...]
    """In the order of the problem's resources: millicores, bytes, then what else there is."""
    label: str = ""
    """Its family or its GPU model: what pods select it by."""
    zone: str = ""


def family(name: str) -> tuple[MachineType, ...]:
    """All sizes of a family, memory in proportion to the vCPUs: `n2`, `n2d`, `e2`, `t2d` or `c2`."""
    found = []
    for kind, sizes in _SIZES[name].items():
        for vcpu in sizes:
            gib = _MEMORY.get(f"{name}-{kind}-{vcpu}", _RATIO[kind] * vcpu)
            found.append(machine_type(f"{name}-{kind}-{vcpu}", vcpu=vcpu, gib=gib, label=name))
    return tuple(found)


def machine_type(name: str, *, vcpu: int, gib: int, label: str) -> MachineType:
    """A machine type at the approximate prices of its family; of n2 when the family has none."""
    per_vcpu, per_gib = _FAMILIES.get(label, _FAMILIES["n2"])
    return MachineType(name, vcpu * per_vcpu + gib * per_gib, (vcpu * 1000, gib * GIBIBYTE), label)


_RATIO: Final = {"standard": 4, "highmem": 8, "highcpu": 1}
_MEMORY: Final = {"n2-highmem-128": 864}
_UP_TO_96: Final = (2, 4, 8, 16, 32, 48, 64, 80, 96)
_SIZES: Final[dict[str, dict[str, tuple[int, ...]]]] = {
    "n2": {"standard": (*_UP_TO_96, 128), "highmem": (*_UP_TO_96, 128), "highcpu": _UP_TO_96},
    "n2d": {"standard": (*_UP_TO_96, 128, 224), "highmem": _UP_TO_96, "highcpu": (*_UP_TO_96, 128, 224)},
    "e2": {"standard": (2, 4, 8, 16, 32), "highmem": (2, 4, 8, 16), "highcpu": (2, 4, 8, 16, 32)},
    "t2d": {"standard": (2, 4, 8, 16, 32, 48, 60)},
    "c2": {"standard": (4, 8, 16, 30)},
}
