"""Results of studies, kept as JSON beside the scripts that make them and the documents they feed.

Documents hold tables between two comments, `<!-- table: name -->` and `<!-- end -->`; a script
writes them from what is stored, and a test compares.
"""

import json
import re
import time
from pathlib import Path

from fedres.report.reproduction_tables import markdown

__all__ = ["Store", "filled", "markdown"]

HERE = Path(__file__).parent


class Store:
    """Numbers, or lists of them, by the name of what was run."""

    def __init__(self, name):
        self.path = HERE / "results" / name
        self.kept = self.read()

    def read(self):
        """What is on disk."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def __getitem__(self, key):
        return self.kept[key]

    def __contains__(self, key):
        return key in self.kept

    def fill(self, jobs, run, seconds=float("inf")):
        """Run the jobs that are missing, for about so long; stores what there is every few."""
        from fedres.simulation.parallel import with_bar

        missing = {key: job for key, job in jobs.items() if key not in self.kept}
        end = saved = time.monotonic()
        end += seconds
        for key, job in with_bar(list(missing.items()), len(missing), self.path.stem):
            if time.monotonic() > end:
                break
            self.kept[key] = run(*job)
            if time.monotonic() > saved + 5:
                saved = time.monotonic()
                self.save()
        self.save()

    def save(self):
        """Whole or not at all, with what another process has put there."""
        self.kept = self.read() | self.kept
        self.path.parent.mkdir(exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.kept, indent=0, sort_keys=True) + "\n")
        new.replace(self.path)


def filled(text, tables):
    """A page with these tables in their places."""
    for name, table in tables.items():
        begin = f"<!-- table: {name} -->"
        if begin not in text:
            raise ValueError(f"the page has no place for the table {name!r}: write {begin} into it")
        pattern = re.escape(begin) + ".*?<!-- end -->"
        whole = f"{begin}\n{table}\n<!-- end -->"
        text = re.sub(pattern, lambda _, whole=whole: whole, text, count=1, flags=re.DOTALL)
    return text
