"""Ending with the process that started this one, also where that was killed.

Standard input shows it: the starter holds the other end, writes nothing, and whatever becomes of the starter, it is
closed then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

FLAG: Final = "--until-stdin-ends"
MEANING: Final = "end when standard input does: the process that started this one holds the other end, and is gone then"
_INPUT: Final = 0


def call_when_gone(stop: Callable[[], object]) -> None:
    """Call a function once, in the running loop, when standard input has ended; child processes get none of it."""
    tie = os.dup(_INPUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _INPUT)
    os.close(nothing)
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not os.read(tie, 4096):
            loop.remove_reader(tie)
            stop()

    loop.add_reader(tie, look)
