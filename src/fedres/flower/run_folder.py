"""A run's folder on the server: its checkpoint, and a log of the uploads that were applied."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CHECKPOINT, LOG = "checkpoint.safetensors", "applied.jsonl"
Line = dict[str, Any]


def append_log(folder: Path, lines: Iterable[Line]) -> None:
    """Add lines at the end."""
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def read_log(folder: Path) -> list[Line]:
    """A line for every upload that was applied, in that order."""
    lines: list[Line] = []
    if not (folder / LOG).exists():
        return lines
    for line in (folder / LOG).read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # cut short by a crash, so never confirmed
            break
    return lines


def cut_log(folder: Path, version: int) -> None:
    """Drop what the log has beyond a version of the global model.

    The log is written before the checkpoint: what it has beyond was never confirmed.
    """
    kept = [line for line in read_log(folder) if line["made"] <= version]
    (folder / LOG).write_bytes(b"")
    append_log(folder, kept)
