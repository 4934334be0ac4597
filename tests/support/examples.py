"""How many random examples a property is held against."""

from __future__ import annotations

import os


def examples(few: int) -> int:
    """Return how many examples to draw of a property that takes long: `few`, times `KINEMA_EXAMPLES`.

    Each takes up to a second, and what once broke the property is among its named examples. `make examples` draws more.
    """
    return few * int(os.environ.get("KINEMA_EXAMPLES", "1"))
