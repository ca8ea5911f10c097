"""Put the tables and figures of a reproduction into `docs/reproduction.md`.

fedres reproduce && python benchmarks/reproduction_page.py [reproduction]
"""

import json
import re
import shutil
import sys
from pathlib import Path

from stored_results import filled

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"


def main(folder):
    """Fill the page from what `fedres reproduce` left in a folder."""
    tables = json.loads((folder / "tables.json").read_text(encoding="utf-8"))
    text = filled(PAGE.read_text(encoding="utf-8"), tables)
    PAGE.write_text(text, encoding="utf-8")
    for name in re.findall(r"\(figures/(.+?\.png)\)", text):
        shutil.copy(folder / "figures" / name, PAGE.parent / "figures" / name)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "reproduction"))
