"""The HTML report: one file that opens offline."""

import platform
from collections.abc import Iterable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from fedres.core.files import whole_file
from fedres.report.plots import accuracy_plot, bytes_plot, clients_plot, loss_plot, to_svg
from fedres.simulation.comparison import SimulatedComparison


def write_comparison(result: SimulatedComparison, path: Path) -> None:
    """Write a comparison as a page."""
    plots = [accuracy_plot(result), loss_plot(result), clients_plot(result), bytes_plot(result)]
    write_page(path, "comparison.html", plots, result=result, rows=result.table().rows)


def write_page(path: Path, template: str, figures: Iterable[Figure], **values: Any) -> None:
    """Fill in a page, with its figures, the style all pages share and the versions that made it."""
    folder = files("fedres.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    text = environment.from_string(folder.joinpath(template).read_text(encoding="utf-8"))
    made_by = {name: version(name) for name in ("fedres", "numba", "numpy")}
    page = text.render(
        style=Markup(folder.joinpath("style.css").read_text(encoding="utf-8")),
        versions={**made_by, "Python": platform.python_version()},
        figures=[Markup(to_svg(figure)) for figure in figures],
        **values,
    )
    with whole_file(path) as file:
        file.write(page.encode())
