"""Upcasters: lift the body of an older event version to the next one.

`UPCASTERS[type]` takes the raw JSON body and returns the newer type and its JSON body. A reader asks for the subjects
of every version in here, too. A version that was released is never removed; its sample in `tests/contract/events` is
decoded for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

UPCASTERS: Final[dict[str, Callable[[bytes], tuple[str, bytes]]]] = {}
