"""Kubernetes quantities, read strictly and exactly.

The grammar is Kubernetes' own (decimal number, then one of `n u m k M G T P E Ki Mi Gi Ti Pi Ei` or a decimal
exponent). What some clients let pass is refused: NaN and infinities, `1_000`, digits of other scripts, negative
amounts, a suffix after an exponent, and anything above 2^63 − 1. Fractions round up, as the API server does, so that a
pod never gets less than it asked for.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

LIMIT: Final = 2**63 - 1
"""The largest amount that Kubernetes itself can hold."""

_LONGEST: Final = 64
"""Characters: bounds the work that one hostile text can cause; real quantities have under twenty."""

_FORM: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE]))?"
)
_SCALES: Final[dict[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}
_MAX_EXPONENT: Final = 400
"""Beyond it every amount is 0, rounds up to 1, or is far above the limit."""

_ALLOWED: Final = "a number of 0 or more with at most one of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent"


class QuantityError(ValueError):
    """A text is no acceptable quantity; names the text and what is allowed."""

    def __init__(self, text: object, problem: str) -> None:
        shown = repr(text) if len(repr(text)) <= _LONGEST + 8 else f"{repr(text)[:_LONGEST]}…"
        super().__init__(f"quantity {shown} {problem}: write {_ALLOWED}, up to 2^63 - 1")
        self.text = text


def parse_cpu(text: str) -> int:
    """CPU in millicores, rounded up: `250m` → 250, `1e-1` → 100, `100n` → 1.

    Raises:
        QuantityError: the text is no acceptable quantity.
    """
    return _scaled(text, 1000)


def parse_bytes(text: str) -> int:
    """Memory or storage in bytes, rounded up: `64Mi` → 67108864, `1e3` → 1000.

    Raises:
        QuantityError: the text is no acceptable quantity.
    """
    return _scaled(text, 1)


def parse_amount(resource: str, text: str) -> int:
    """Return an amount of a named resource in its integer unit: millicores for `cpu`, else bytes or pieces.

    Raises:
        QuantityError: the text is no acceptable quantity.
    """
    return parse_cpu(text) if resource == "cpu" else parse_bytes(text)


@lru_cache(maxsize=16384)
def in_words(resource: str, amount: int) -> str:
    """Return an amount as people write it: `cpu` 500 → `500m`, `memory` 536870912 → `512Mi`, others as they are."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for power, suffix in reversed([*enumerate("KMGT", start=1)]):
            if amount and amount % 1024**power == 0:
                return f"{amount // 1024**power}{suffix}i"
    return str(amount)


def rounded_in_words(resource: str, amount: int) -> str:
    """Return an amount as people write it, of memory in whole mebibytes: forecasts are exact to the byte."""
    mebibytes = round(amount / 2**20) * 2**20
    return in_words(resource, mebibytes if resource == "memory" and mebibytes else amount)


@lru_cache(maxsize=16384)
def _scaled(text: str, units: int) -> int:
    """Return the quantity in 1/`units`, rounded up. Clusters repeat a few hundred texts, hence the cache."""
    exact = _exact(text) * units
    amount = -(-exact.numerator // exact.denominator)
    if amount > LIMIT:
        raise QuantityError(text, "is too large")
    return amount


def _exact(text: str) -> Fraction:
    if not isinstance(text, str):
        raise QuantityError(text, "is not a text")
    found = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise QuantityError(text, "cannot be read")
    number = Fraction(found["number"])
    if found["sign"] == "-" and number:
        raise QuantityError(text, "is negative")
    if found["exponent"] is not None:
        exponent = max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(found["exponent"])))
        return number * Fraction(10) ** exponent
    return number * _SCALES.get(found["suffix"] or "", Fraction(1))
