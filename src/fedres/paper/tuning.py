"""Step sizes, chosen by test accuracy on federations that no figure uses.

Adaptive schemes: eta from a grid, per data set, without delay. The paper's aligned form: its two
constants of eta and of eta_i (see `protocol.theorem_2`) per data set and number of clients, the
first without delay, the second at a delay of 80. All schemes are tuned alike: none is favoured.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from fedres.paper.protocol import BASELINES, CLIENTS, StepSizes, case_of
from fedres.paper.readings import Reading
from fedres.simulation.settings import SGD_METHODS
from fedres.simulation.sweep import Case, dataset

if TYPE_CHECKING:
    import pandas as pd

TUNING_SEEDS = range(10_000, 10_005)
ETAS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
FIRST = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # eta in units of 1 / (P * mean ||x||^2)
SHRINK = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # of the first constant, at a delay of 80
RATIO = (0.0, 0.5, 1.0)  # eta_i / eta = P to this power

Run = Callable[[Sequence[Case], str], "pd.DataFrame"]


def tune_adaptive(
    data: Sequence[str], many: Mapping[str, int], run: Run, reading: Reading
) -> dict[str, dict[str, float]]:
    """The adaptive step sizes of a reading: per data set, one a method."""
    if reading.step != "tuned":
        return {name: dict.fromkeys(SGD_METHODS, reading.step) for name in data}
    table = run(
        [
            case_of(reading, name, many[name], seed, scheme, 0, eta)
            for name, scheme, eta, seed in product(
                data, (*BASELINES, reading.form), ETAS, TUNING_SEEDS
            )
        ],
        f"tuning adaptive steps ({reading.name})",
    )
    etas = _best(table, ["data", "method"], ["eta"])
    return {name: {method: etas[name, method][0] for method in SGD_METHODS} for name in data}


def tune(
    data: Sequence[str], many: dict[str, int], grid: bool, run: Run, reading: Reading
) -> dict[str, StepSizes]:
    """Choose all step sizes, for the few and the `many` clients or for a grid of numbers.

    `many` stands for P = 50 in a set that cannot supply so many clients.
    """
    adaptive = tune_adaptive(data, many, run, reading)
    wanted = {
        name: [p for p in CLIENTS if p <= many[name] or many[name] == 50]
        if grid
        else sorted({min(10, many[name]), many[name]})
        for name in data
    }
    unit = {name: 1 / _norm(name, reading) for name in data}

    def aligned(name: str, p: int, delay: int, etas: Sequence[float]) -> list[Case]:
        return [
            case_of(reading, name, p, seed, "aligned", delay, eta, eta * p**power)
            for eta, power, seed in product(etas, RATIO, TUNING_SEEDS)
        ]

    pairs = [(name, p) for name in data for p in wanted[name]]
    table = run(
        [
            case
            for name, p in pairs
            for case in aligned(name, p, 0, [c * unit[name] / p for c in FIRST])
        ],
        "tuning the aligned form",
    )
    first = _best(table, ["data", "clients"], ["eta", "local_eta"])
    table = run(
        [
            case
            for name, p in first
            for case in aligned(name, p, 80, [c * first[name, p][0] for c in SHRINK])
        ],
        "tuning the aligned form under delay",
    )
    second = _best(table, ["data", "clients"], ["eta", "local_eta"])
    return {
        name: StepSizes(
            adaptive[name],
            {
                p: (first[name, p][0], second[name, p][0], first[name, p][1], second[name, p][1])
                for p in wanted[name]
                if (name, p) in second
            },
        )
        for name in data
    }


def _best(table: "pd.DataFrame", by: list[str], choice: list[str]) -> dict[Any, tuple[float, ...]]:
    """The choice of the highest mean accuracy in each group; groups that cannot run are absent."""
    means = table[table.problem == ""].groupby([*by, *choice]).accuracy.mean()
    best: dict[Any, Any] = means.groupby(level=by).idxmax().to_dict()
    return {group: place[len(by) :] for group, place in best.items()}


def _norm(data: str, reading: Reading) -> float:
    """The mean of ||x||^2 over (at most a thousand of) the rows."""
    x = dataset(data, reading.scale_on(data)).x
    rows = x[np.linspace(0, len(x) - 1, min(1000, len(x))).astype(int)]
    return float((rows**2).sum(axis=1).mean())
