"""Kubernetes quantities as integers: CPU in millicores, everything else in units (bytes, pods, devices)."""

import re
from fractions import Fraction
from functools import lru_cache

_FORM = re.compile(r"^(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?$")
_SCALE = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{suffix + "i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


def parse(text: str | int) -> Fraction:
    """Read a quantity exactly.

    Raises:
        ValueError: the text is no quantity, or negative.
    """
    found = _FORM.match(str(text))
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    suffix = found["suffix"] or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        return Fraction(found["number"]) * Fraction(10) ** int(suffix[1:])
    return Fraction(found["number"]) * _SCALE.get(suffix, Fraction(1))


def units(text: str | int, *, scale: int = 1) -> int:
    """Read a quantity as an integer number of 1/scale, rounded up as Kubernetes does."""
    exact = parse(text) * scale
    return -(-exact.numerator // exact.denominator)


@lru_cache(maxsize=10_000)
def resource(name: str, text: str | int) -> int:
    """Read an amount of a named resource: CPU in millicores, others in units."""
    return units(text, scale=1000) if name == "cpu" else units(text)
