"""What operators read: lines in Flower's own log, by level.

ERROR: a node could not answer, the superlink is gone. WARNING: a client is refused, ignored, or has
a fault. INFO: who came, each round, why the run stopped. DEBUG: every task and upload.
"""

import logging

LOG = logging.getLogger("flwr.fedres")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def check_level(level: str) -> None:
    """Refuse a level that there is not."""
    if level not in LEVELS:
        raise ValueError(f"log-level must be one of {', '.join(LEVELS)}, not {level!r}")


def set_level(level: str) -> None:
    """Leave out what is below; Flower's own lines below INFO come with DEBUG."""
    from flwr.supercore.logger import update_console_handler

    check_level(level)
    LOG.setLevel(level)
    if level == "DEBUG":
        update_console_handler(level=logging.DEBUG, timestamps=True)
