"""A client that is to begin again: its state was damaged, or is of columns it no longer has."""

import os
from pathlib import Path

from fedres.core.files import locked
from fedres.flower.memory import STATE
from fedres.flower.own_columns import OWN
from fedres.flower.samples import ROWS

OLD = f"old-{STATE}"


def reset(folder: Path) -> Path | None:
    """Set a client's state aside; where it is now, if there was one.

    What was made from its table, its rows as features and how its own columns are encoded, is made
    again with the next message.
    """
    if not any((folder / name).exists() for name in (STATE, ROWS, OWN)):
        raise ValueError(
            f"{folder} holds no state of a client: name the folder below `state` of the node's "
            "configuration that is called like the client"
        )
    with locked(folder):
        for name in (ROWS, OWN):
            (folder / name).unlink(missing_ok=True)
        if not (folder / STATE).exists():
            return None
        os.replace(folder / STATE, folder / OLD)
        return folder / OLD
