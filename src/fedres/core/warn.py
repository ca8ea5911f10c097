"""Warnings that point at the code of the user.

Python 3.12 has `skip_file_prefixes` for this; the package supports older ones.
"""

import sys
import warnings

PACKAGE = __name__.partition(".")[0]


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line on the stack that is outside the package."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)
