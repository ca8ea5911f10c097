"""How much memory there may be, and how many shards that asks for."""

import re
import sys
from math import inf
from pathlib import Path

from fedres.cluster.shards import MOST_SHARDS, Layout
from fedres.reading.formats import BATCH_ROWS
from fedres.tables.encoder import Encoder
from fedres.tables.view_columns import ViewColumns

# Control groups of both versions: the folder, its limit, and what is used.
GROUPS = (
    ("sys/fs/cgroup", ("memory.max", "memory.current")),
    ("sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BASE = 700 * 10**6  # the program itself, and the batches that it reads
A_ROW = 200  # bytes of a row's numbers, labels and order while it is worked on
AN_ENTRY = 40  # bytes of a feature: read, laid out, sorted by client
PROGRAM = 450 * 10**6  # the program itself
JUDGED, A_JUDGED_ROW = 100_000, 5_000  # rows that methods are judged on, and bytes of each
JUDGING = 1.6  # times the bytes of a row in a shard, for a table in memory beside its features
A_PREDICTED_ROW, LEAST_BATCH = 5_000, 1_000
A_WEIGHT, A_CELL = 60, 8  # bytes of a local weight, and of a covariance of two


def parse_size(text: str) -> int:
    """Bytes, of a text such as 2GB.

    Examples
    --------
    >>> parse_size("2GB"), parse_size("750 MB"), parse_size("1.5g")
    (2000000000, 750000000, 1500000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if found is None or float(found[1]) == 0:
        raise ValueError(f"{text!r} is no size of memory: write it as 2GB or 750MB")
    return round(float(found[1]) * UNITS[found[2]])


def shown_size(count: float) -> str:
    """Bytes as people write them.

    Examples
    --------
    >>> shown_size(2_310_000_000), shown_size(14_200_000)
    ('2.31 GB', '14 MB')
    """
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def count_shards(layout: Layout, rows: int, clients: int, memory: int, n_jobs: int) -> int:
    """How many shards there must be for so many to be worked on at once.

    Parameters
    ----------
    layout
        What a row holds.
    rows, clients
        How many there are.
    memory
        Bytes that may be taken.
    n_jobs
        How many shards are worked on at once.
    """
    a_row = layout.dtype.itemsize + bytes_a_row(layout.encoder, rows / max(1, clients))
    room = (memory - BASE) / n_jobs
    # Shards are not quite of one size.
    needed = int(1.2 * rows * a_row / room) + 1 if room > 0 else MOST_SHARDS + 1
    if needed > MOST_SHARDS:
        least = BASE + n_jobs * 1.2 * rows * a_row / MOST_SHARDS
        raise ValueError(
            f"{shown_size(memory)} of memory are too little for {rows:,} rows of {clients:,} "
            f"clients: give --memory {shown_size(1.1 * least).replace(' ', '')} or more"
        )
    return min(needed, max(1, clients))


def judged_rows(encoder: Encoder, rows_a_client: float, memory: int) -> int:
    """Return how many rows methods are judged on in memory: fewer if they are wide."""
    a_row = max(A_JUDGED_ROW, JUDGING * bytes_a_row(encoder, rows_a_client))
    return min(JUDGED, int((memory - PROGRAM) / a_row))


def rows_at_once(encoder: Encoder, rows_a_client: float, memory: int, most: int) -> int:
    """Return how many rows may be laid out in memory at once, at most `most`."""
    return min(most, int((memory - PROGRAM) / bytes_a_row(encoder, rows_a_client)))


def refuse_too_little(memory: int) -> None:
    """Refuse memory that is too little for any table, before one is read."""
    if memory < BASE + LEAST_BATCH * A_PREDICTED_ROW:
        raise ValueError(
            f"{shown_size(memory)} of memory are too little: give --memory "
            f"{shown_size(1.1 * BASE).replace(' ', '')} or more"
        )


def batch_rows(memory: int) -> int:
    """How many rows to predict at once."""
    refuse_too_little(memory)
    return min(BATCH_ROWS, (memory - BASE) // A_PREDICTED_ROW)


def bytes_a_row(encoder: Encoder, rows_a_client: float) -> float:
    """How much memory a row takes while its shard is solved."""
    columns = encoder.global_columns, encoder.local_columns
    shared, own = (
        1.0 + (len(side) if ViewColumns.of(side).sparse else sum(one.width for one in side))
        for side in columns
    )
    # A client has weights for features that it was seen with, and no more.
    weights = min(encoder.width_local + 1, own * rows_a_client)
    of_client = weights * A_WEIGHT + weights * (weights + 1) / 2 * A_CELL
    return A_ROW + AN_ENTRY * (shared + own) + of_client / rows_a_client


def peak_memory() -> int:
    """The most memory that this process ever had, in bytes."""
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) * (1 if sys.platform == "darwin" else 1024)


def free_memory(root: Path = Path("/")) -> int:
    """Return how many bytes of memory are free, within the limit of a container if there is one.

    Where the system does not tell, it is a modest guess.
    """
    try:
        text = (root / "proc/meminfo").read_text(encoding="utf-8")
        lines = dict(line.split(":", 1) for line in text.splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        free = 4 * 10**9
    left = (_left_of_group(root / folder, *files) for folder, files in GROUPS)
    return int(max(0, min(free, *left)))


def _left_of_group(folder: Path, limit: str, used: str) -> float:
    """Return what a control group may still take; infinity if it has no limit."""
    try:
        most, now = ((folder / name).read_text().strip() for name in (limit, used))
        return inf if most == "max" else int(most) - int(now)
    except (OSError, ValueError):
        return inf
