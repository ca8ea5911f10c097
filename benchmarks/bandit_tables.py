"""Put the tables of all bandit studies, as they are stored, into `docs/bandits.md`."""

from pathlib import Path

import bandit_defaults
import bandit_delays
import bandit_study
import bandits
from stored_results import filled

PAGE = Path(__file__).parents[1] / "docs" / "bandits.md"


def tables():
    """By the names of their places in the page."""
    of = (bandits, bandit_study, bandit_defaults, bandit_delays)
    return {name: table for study in of for name, table in study.tables().items()}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), tables()))
