"""Places in an array for keys that come one by one, or millions at once."""

import numpy as np

from fedres.core.types import I32, I64

NO_KEYS, NO_SLOTS = np.empty(0, np.int64), np.empty(0, np.int32)


class Slots:
    """Numbers for keys, in the order in which they come, from 1; slot 0 is nobody's.

    New keys go to a short sorted array, merged into the long one now and then, so that a single
    key does not copy them all.

    Parameters
    ----------
    keys
        Sorted keys to begin with.

    Examples
    --------
    >>> slots = Slots()
    >>> slots.add(np.array([70, 30, 70]))
    array([2, 1, 2], dtype=int32)
    >>> slots.find(np.array([30, 40]))
    array([1, 0], dtype=int32)
    """

    def __init__(self, keys: I64 = NO_KEYS) -> None:
        self.count = 1 + len(keys)
        self._long = keys, np.arange(1, self.count, dtype=np.int32)
        self._short = NO_KEYS, NO_SLOTS

    def find(self, keys: I64) -> I32:
        """The slots of keys, 0 for those that have none."""
        return _look_up(*self._long, keys) + _look_up(*self._short, keys)

    def add(self, keys: I64) -> I32:
        """The slots of keys, new ones for those that had none."""
        found = self.find(keys)
        new = np.unique(keys[found == 0])
        if not len(new):
            return found
        if self.count + len(new) > np.iinfo(np.int32).max:
            raise ValueError(
                f"{self.count + len(new)} local weights are too many: make fewer features local"
            )
        slots = np.arange(self.count, self.count + len(new), dtype=np.int32)
        self.count += len(new)
        self._short = _merge(self._short, (new, slots))
        if len(self._short[0]) ** 2 > 64 * len(self._long[0]):
            self.sorted()
        return self.find(keys)

    def sorted(self) -> tuple[I64, I32]:
        """All keys, sorted, and their slots."""
        if len(self._short[0]):
            self._long = _merge(self._long, self._short)
            self._short = NO_KEYS, NO_SLOTS
        return self._long


def _look_up(known: I64, slots: I32, keys: I64) -> I32:
    if not len(known):
        return np.zeros(len(keys), np.int32)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[place] == keys, slots[place], np.int32(0))


def _merge(into: tuple[I64, I32], new: tuple[I64, I32]) -> tuple[I64, I32]:
    place = np.searchsorted(into[0], new[0])
    return np.insert(into[0], place, new[0]), np.insert(into[1], place, new[1])
