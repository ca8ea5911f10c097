"""What the compiler, and whoever keeps results, has to know of the source of fedres."""

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def apart(function: F) -> F:
    """Mark a function that compiled code shall call, not lay out in every caller: it is rare."""
    function.apart = True  # type: ignore[attr-defined]
    return function


def digest(*parts: bytes) -> str:
    """A short name for bytes.

    Examples
    --------
    >>> digest(b"fedres") == digest(b"fed", b"res")
    False
    """
    sum_ = blake2b(digest_size=12)
    for part in parts:
        sum_.update(len(part).to_bytes(8, "little") + part)
    return sum_.hexdigest()


@cache
def digest_of_code(*rooms: str) -> str:
    """A name for the code of these rooms: what other code made is not taken for theirs."""
    package = Path(__file__).parents[1]
    files = (file for room in sorted(rooms) for file in sorted((package / room).rglob("*.py")))
    return digest(*(file.read_bytes() for file in files))
