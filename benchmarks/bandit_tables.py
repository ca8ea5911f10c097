"""Put the tables of all bandit studies, as they are stored, into `docs/bandits.md`."""

from pathlib import Path

import bandit_defaults
import bandit_delays
import bandits
from stored_results import filled

PAGE = Path(__file__).parents[1] / "docs" / "bandits.md"


def tables():
    """By the names of their places in the page."""
    return bandits.tables() | bandit_defaults.tables() | bandit_delays.tables()


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), tables()))
