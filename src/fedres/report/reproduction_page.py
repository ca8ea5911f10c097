"""The report of a reproduction: figures, numbers, claims and one page."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fedres.paper.protocol import CLIENTS, SCHEMES
from fedres.paper.readings import READING_SEEDS_FROM, READINGS, VW_DEFAULT_ETA, Reading
from fedres.paper.reproduction import Reproduction
from fedres.paper.rulings import Ruling
from fedres.paper.tuning import TUNING_SEEDS
from fedres.report.page import write_page
from fedres.report.plots import styled, to_svg
from fedres.report.reproduction_figures import draw
from fedres.report.reproduction_tables import markdown_tables, schemes_of, summary


@styled
def write_reproduction(result: Reproduction, folder: Path) -> Path:
    """Write everything into a folder and return the page's path."""
    pictures = folder / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    drawings = []
    for name, _, figure, numbers in draw(result):
        figure.savefig(pictures / f"{name}.png", dpi=110)
        svg = to_svg(figure)
        (pictures / f"{name}.svg").write_text(svg, encoding="utf-8")
        numbers.to_csv(pictures / f"{name}.csv", index=False, float_format="%.6g")
        drawings.append({"name": name, "svg": Markup(svg)})
    (folder / "claims.json").write_text(json.dumps(claims_as_dicts(result), indent=2) + "\n")
    tables = markdown_tables(result)
    (folder / "tables.json").write_text(json.dumps(tables, indent=2) + "\n", encoding="utf-8")

    path = folder / "report.html"
    write_page(
        path,
        "reproduction.html",
        (),
        result=result,
        rows=list(summary(result)),
        schemes=SCHEMES,
        columns=schemes_of(result),
        drawings=drawings,
        forms={form: SCHEMES[form].label for form in result.claims},
        counts={form: count_in_words(_verdicts(result, form)) for form in result.claims},
        again=_options(result.reading),
        redraws=_redraws(result),
        protocol={
            "clients": CLIENTS,
            "tuning": f"{TUNING_SEEDS[0]} to {TUNING_SEEDS[-1]}",
            "vw_eta": VW_DEFAULT_ETA,
            "reading_seeds": READING_SEEDS_FROM,
        },
    )
    return path


def claims_as_dicts(result: Reproduction) -> dict[str, list[dict[str, Any]]]:
    """Every claim, by form of FedRes, as plain values."""
    return {form: [asdict(claim) for claim in claims] for form, claims in result.claims.items()}


def _verdicts(result: Reproduction, form: str) -> list[Ruling]:
    return [claim.verdict for claim in result.claims[form]]


def count_in_words(verdicts: Sequence[Ruling]) -> str:
    """How many claims hold, and how many do not.

    Examples
    --------
    >>> count_in_words(["holds", "undecided", "does not hold", "does not hold"])
    '1 holds, 2 do not hold, 1 is undecided'
    """
    words: dict[Ruling, tuple[str, str]] = {
        "holds": ("holds", "hold"),
        "does not hold": ("does not hold", "do not hold"),
        "undecided": ("is undecided", "are undecided"),
        "confounded": ("is confounded", "are confounded"),
    }
    counts = {verdict: verdicts.count(verdict) for verdict in words}
    return ", ".join(f"{n} {words[verdict][n > 1]}" for verdict, n in counts.items() if n)


def _options(reading: Reading) -> str:
    """A reading as options of the command."""
    name = reading.name.split(",")[0]
    words = [f"--reading {name}"] if name != "library" else []
    for key, value in vars(reading).items():
        if key == "name" or value == getattr(READINGS[name], key):
            continue
        words.append(f"--{key} {value}" if key != "clip" else "--clip" if value else "--no-clip")
    return "".join(f" {word}" for word in words)


def _redraws(result: Reproduction) -> dict[str, str]:
    """Per set, how often the merged classes had to be drawn again."""
    if result.table.empty:
        return {}
    once = result.table.drop_duplicates(["data", "clients", "seed", "local"])
    found = once.groupby("data", sort=False).redraws.agg(["sum", "size"]).astype(int)
    found = found[found["sum"] > 0]
    return {name: f"{sum_} times for {size} federations" for name, sum_, size in found.itertuples()}
