"""Names and colours that tables, plots and pages share."""

NAMES = {"independent": "Independent", "central": "Central", "fedres": "FedRes"}
COLOURS = {"independent": "#d97706", "central": "#64748b", "fedres": "#2563eb"}


def size(count: float) -> str:
    """Bytes in a readable unit.

    Examples
    --------
    >>> size(1_234_567)
    '1.2 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
