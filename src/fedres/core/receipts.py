"""Exactly once: numbers that are never used again, and who has received which of them.

A party that restarts, perhaps without its state or from an old one, must not use a number twice.
So a life of a party begins at the time of day in milliseconds, times 2^20, and some random bits:
whatever it numbers from there on is beyond all that earlier lives have numbered.
"""

import secrets
import time
import zlib
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

_RANDOM_BITS = 20
_APART = 2**10  # lives that begin in one process: near enough never to run ahead of the time
_newest = 0
_lock = Lock()


def new_epoch(after: int = 0) -> int:
    """Where the numbers of a new life begin: beyond `after`, and of 64 bits.

    Examples
    --------
    >>> first, second = new_epoch(), new_epoch()
    >>> first < second, new_epoch(after=2**63) > 2**63
    (True, True)
    """
    global _newest  # noqa: PLW0603
    now = time.time_ns() // 1_000_000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    with _lock:
        _newest = max(now, _newest + _APART)
        return max(_newest, after + 1)


def number_of(name: int | str) -> int:
    """The number that the uploads of a client of that name carry: 32 bits.

    Examples
    --------
    >>> number_of(7), number_of("anna")
    (7, 559726263)
    """
    if isinstance(name, int) and 0 <= name < 2**32:
        return name
    return zlib.crc32(str(name).encode())


class Ticket(NamedTuple):
    """What an upload is known by, each number of 64 bits."""

    sender: int  # where the client's first life began
    serial: int  # never used again by that sender
    oldest: int  # the lowest serial that the sender may send, or send again


class Receipt(NamedTuple):
    """The server has this upload, and will drop it should it come again."""

    sender: int
    serial: int


@dataclass(slots=True)
class Received:
    """Which messages of one sender have come.

    Examples
    --------
    >>> received = Received()
    >>> for number in (0, 1, 3):
    ...     received.note(number)
    >>> received.confirmed, received.beyond, received.has(1), received.has(2)
    (2, [3], True, False)
    """

    confirmed: int = 0  # messages below this number have come, or will not come again,
    beyond: list[int] = field(default_factory=list)  # and these have

    def has(self, number: int) -> bool:
        """Whether that message has come."""
        return number < self.confirmed or number in self.beyond

    def note(self, number: int) -> None:
        """Remember that a message has come."""
        self.beyond.append(number)
        self._close_ranks()

    def begin_at(self, oldest: int) -> None:
        """The sender will not send, nor send again, anything older."""
        if oldest > self.confirmed:
            self.confirmed = oldest
            self.beyond = [number for number in self.beyond if number >= oldest]
            self._close_ranks()

    def _close_ranks(self) -> None:
        while self.confirmed in self.beyond:
            self.beyond.remove(self.confirmed)
            self.confirmed += 1
