"""The tables of the documents are those of what is stored."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import bandit_tables
from stored_results import filled


def test_the_tables_of_the_page_on_bandits_are_those_that_were_measured():
    text = bandit_tables.PAGE.read_text()
    assert filled(text, bandit_tables.tables()) == text
