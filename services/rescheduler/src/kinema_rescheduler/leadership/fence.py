"""The fence: nothing is written to a cluster or a provider by a process whose lease has run out or passed on.

Nor where another Kinema acts: that is the claim's to say, where one is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from kinema_core.runtime.bus import Lease
from kinema_kubernetes.errors import KubernetesError
from kinema_rescheduler.errors import TransientError, effect_error


class Fence:
    """Asked before every single write, also those of an effect that was begun in time.

    A process that was stopped in the middle of an effect wakes up behind it. Time decides first; where a machine's
    clock stood still with it, the revision that a later holder has left on the object does.
    """

    def __init__(self, claim: Callable[[], None] = lambda: None) -> None:
        """`claim` raises a KubernetesError where another Kinema may write to the cluster."""
        self._claim = claim
        self._lease: Lease | None = None

    def hold(self, lease: Lease) -> None:
        """From now on, write under this lease only."""
        self._lease = lease

    @property
    def revision(self) -> int:
        """The fencing token; 0 before there is a lease."""
        return self._lease.revision if self._lease is not None else 0

    def check(self, written: str = "") -> None:
        """Let a write pass; `written` is the revision that stands on the object, if one does.

        Raises:
            TransientError: `fenced`, another process may write by now. EffectError: what the claim says.
        """
        if self._lease is not None and self._lease.left() <= 0:
            raise TransientError("fenced", f"the lease of revision {self.revision} has run out: nothing is written")
        if self._lease is not None and written.isdecimal() and int(written) > self.revision:
            raise TransientError("fenced", f"lease revision {written} has written there after revision {self.revision}")
        try:
            self._claim()
        except KubernetesError as error:
            raise effect_error(error) from error
