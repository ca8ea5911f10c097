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


@cache
def digest_of_package() -> str:
    """A digest of every file of the package: what other code made is not taken for its own."""
    digest = blake2b(digest_size=12)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    return digest.hexdigest()
