"""Leases in the key-value bucket: one key, written by compare-and-set, that expires by itself.

The fencing token of a holder is the sequence of its first write, counted from the creation of the bucket in Unix
milliseconds. So tokens grow with every holder, also where the bucket, or the whole broker, was replaced by a new one:
sequences of a bucket never grow as fast as time does.

A broker that is killed may forget when a key was to expire (NATS 2.15 looks only at the newest ones when it recovers).
So whoever waits for a lease also takes it when it was not renewed for its whole time while it was watched: its holder
has stopped acting under it by then.
"""

from __future__ import annotations

import secrets
import time
from datetime import datetime
from math import ceil
from typing import Final

import msgspec

from kinema_core.runtime.bus import BusUnavailableError, ConflictError, LeaseLostError
from kinema_core.runtime.nats_connection import AmbiguousError, Connection, NoResponderError
from kinema_core.runtime.nats_publisher import EXPECTED_LAST
from kinema_core.runtime.nats_reader import Raw, Reader
from kinema_core.runtime.topology import LEASE_BUCKET, lease_subject

STREAM: Final = f"KV_{LEASE_BUCKET}"
_TTL: Final = "Nats-TTL"
_TRIES: Final = 3


class _Holder(msgspec.Struct, frozen=True):
    """Value of a lease's key. An empty holder has released it."""

    holder: str = ""
    seconds: float = 0.0
    """For how long, unless renewed; 0: for as long as whoever waits would have it."""


class NatsLease:
    """A lease held on the broker; made by `acquire`."""

    def __init__(
        self, keeper: LeaseKeeper, name: str, *, holder: str, epoch: int, last: int, ttl: float, since: float
    ) -> None:
        self._keeper = keeper
        self._name = name
        self._holder = holder
        self._revision = epoch + last
        self._last = last
        self._ttl = ttl
        self._since = since

    @property
    def revision(self) -> int:
        """Fencing token of this holder."""
        return self._revision

    def left(self) -> float:
        """Real seconds for which acting under it is still safe: 2/3 of its time, from before the last renewal."""
        return self._ttl * 2 / 3 - (time.monotonic() - self._since)

    async def renew(self) -> None:
        """Extend it; raises LeaseLostError when it expired or another process holds it."""
        since = time.monotonic()
        self._last = await self._keeper.renew(self._name, holder=self._holder, last=self._last, ttl=self._ttl)
        self._since = since

    async def release(self) -> None:
        """Release it at once."""
        self._since = float("-inf")
        await self._keeper.release(self._name, last=self._last)


class LeaseKeeper:
    """Leases of one cluster."""

    def __init__(self, connection: Connection, reader: Reader, cluster: str) -> None:
        self._connection = connection
        self._reader = reader
        self._cluster = cluster
        self._watched: dict[str, tuple[int, float]] = {}
        """Sequence of another process's lease by name, and since when it is known, in monotonic seconds."""

    async def acquire(self, name: str, ttl: float) -> NatsLease | None:
        """Take a lease, or None while another process holds it."""
        if ttl < 1:
            raise ValueError(f"lease {name!r} for {ttl} s: the broker counts whole seconds, use 1 or more")
        holder = secrets.token_hex(8)
        made = datetime.fromisoformat(await self._reader.made(STREAM))
        epoch = int(made.timestamp() * 1000)
        expected = 0
        for _ in range(_TRIES):
            since = time.monotonic()
            try:
                last = await self._write(name, _Holder(holder, ttl), expected=expected, ttl=ttl)
            except (ConflictError, AmbiguousError, NoResponderError):
                found = await self._reader.last(STREAM, lease_subject(self._cluster, name))
                last, expected = _settle(found, holder)
                if found is not None and expected < 0 and self._is_left(name, found, ttl):
                    expected = found.sequence
            if last:
                return NatsLease(self, name, holder=holder, epoch=epoch, last=last, ttl=ttl, since=since)
            if expected < 0:
                return None
        return None

    async def renew(self, name: str, *, holder: str, last: int, ttl: float) -> int:
        """Extend a lease; gives the key's new sequence."""
        try:
            return await self._write(name, _Holder(holder, ttl), expected=last, ttl=ttl)
        except (ConflictError, AmbiguousError, NoResponderError) as error:
            found = await self._reader.last(STREAM, lease_subject(self._cluster, name))
            if found is not None and _value(found).holder == holder:
                if found.sequence > last:
                    return found.sequence
                raise BusUnavailableError(f"lease {name!r} was not renewed: {error}") from error
            raise LeaseLostError(f"lease {name!r} has expired or was taken over") from error

    async def release(self, name: str, *, last: int) -> None:
        """Release a lease, unless another process has it by now."""
        try:
            await self._write(name, _Holder(), expected=last, ttl=1)
        except ConflictError:
            return

    def _is_left(self, name: str, found: Raw, ttl: float) -> bool:
        """Return whether another process's lease stayed as it is for its whole time: it should have expired."""
        now = time.monotonic()
        sequence, since = self._watched.get(name, (0, now))
        if sequence != found.sequence:
            self._watched[name] = (found.sequence, now)
            return False
        return now - since > (_value(found).seconds or ttl)

    async def _write(self, name: str, value: _Holder, *, expected: int, ttl: float) -> int:
        subject = lease_subject(self._cluster, name)
        headers = {EXPECTED_LAST: str(expected), _TTL: f"{ceil(ttl)}s"}
        return (await self._connection.store(subject, msgspec.json.encode(value), f"lease {name!r}", headers)).seq


def _value(raw: Raw) -> _Holder:
    try:
        return msgspec.json.decode(raw.data, type=_Holder)
    except msgspec.DecodeError:
        return _Holder("?")


def _settle(found: Raw | None, holder: str) -> tuple[int, int]:
    """Return (sequence, 0) for an own lease, (0, sequence to expect) for a free one, (0, -1) for a taken one."""
    if found is None:
        return 0, 0
    who = _value(found).holder
    if who == holder:
        return found.sequence, 0
    return (0, found.sequence) if not who else (0, -1)
