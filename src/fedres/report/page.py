"""The HTML report: one file that opens offline."""

import platform
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from rich.filesize import decimal

from fedres.report.names import NAMES
from fedres.report.plots import accuracy_plot, bytes_plot, clients_plot, loss_plot, to_svg
from fedres.simulation.comparison import SimulatedComparison
from fedres.simulation.intervals import interval


def write_comparison(result: SimulatedComparison, path: Path) -> None:
    """Write a comparison as a page."""
    rows = [
        {
            "method": NAMES[method],
            "accuracy": interval(outcome.accuracy),
            "loss": interval(outcome.loss),
            "up": decimal(outcome.bytes_up),
            "down": decimal(outcome.bytes_down),
            "seconds": f"{outcome.seconds:.3f}",
        }
        for method, outcome in result.outcomes.items()
    ]
    plots = [accuracy_plot(result), loss_plot(result), clients_plot(result), bytes_plot(result)]
    page = render(
        "comparison.html",
        result=result,
        rows=rows,
        figures=[Markup(to_svg(plot)) for plot in plots],
    )
    path.write_text(page, encoding="utf-8")


def render(template: str, **values: Any) -> str:
    """Fill in a page, with the style all pages share and the versions that made it."""
    folder = files("fedres.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(folder.joinpath(template).read_text(encoding="utf-8")).render(
        style=Markup(folder.joinpath("style.css").read_text(encoding="utf-8")),
        versions={
            "fedres": version("fedres"),
            "numba": version("numba"),
            "numpy": version("numpy"),
            "Python": platform.python_version(),
        },
        **values,
    )
