"""Shared models that are not linear: boosted trees, or any model of scikit-learn.

They see numbers and columns of few categories. A column of many, such as films, is left to the
linear side, where every category has a weight that is shrunk as much as the rows ask for.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedres.core.types import F32, F64, I64, Matrix
from fedres.tables import skops_files
from fedres.tables.columns import Category, Column
from fedres.tables.lightgbm_text import checked_text

MOST_CATEGORIES = 32  # of a column that trees see
WIDEST_DENSE, MOST_DENSE = 1000, 2**26  # columns, and numbers, of what is made dense
TREES, GROWTH = 10, 5  # trees of the first step; each later one adds a fifth of all so far
RATE, LEAVES, FEWEST_IN_LEAF = 0.2, 15, 20
ALONE = 5_000_000  # numbers, up to which one core does as well as many
LIGHTGBM: dict[str, Any] = {
    "objective": "none",  # gradients are given
    "learning_rate": RATE,
    "num_leaves": LEAVES,
    "min_data_in_leaf": FEWEST_IN_LEAF,
    "deterministic": True,
    "verbosity": -1,
}
Text = NDArray[np.uint8]


class SharedModel(ABC):
    """A fitted shared model: scores of rows, in units of the models."""

    kind: str
    outputs: int = 1

    @abstractmethod
    def predict(self, x: Matrix) -> F64:
        """Scores of rows, (outputs, rows) or (rows,) of one."""

    @abstractmethod
    def pack(self, trust: Collection[str] = ()) -> Text:
        """Return the bytes that a model folder stores: data, never code.

        Parameters
        ----------
        trust
            Full names of classes to accept beside those of `fedres.tables.skops_files`.
        """

    @classmethod
    @abstractmethod
    def unpack(cls, text: Text, features: int, trust: Collection[str] = ()) -> "SharedModel":
        """Return the model that `pack` made bytes of, for rows of so many features."""


class BoostedTrees(SharedModel):
    """Trees that are added step by step, for one output."""

    @abstractmethod
    def grow(self, x: Matrix, rows: I64, left: F64, weight: F64, score: F64) -> F64:
        """Add trees.

        Parameters
        ----------
        x
            Features of all rows.
        rows
            Those to learn from.
        left, weight, score
            Of all rows: what is to be added to scores, how much that counts, and these scores.

        Returns
        -------
        score
            The new scores of all rows.
        """


class LightGbmTrees(BoostedTrees):
    """Trees of LightGBM, which writes them as text."""

    kind = "lightgbm"

    def __init__(self, data: Any = None, booster: Any = None) -> None:
        self.data, self.booster = data, booster

    @classmethod
    def prepare(cls, x: Matrix, seed: int) -> Callable[[], BoostedTrees]:
        """Sort features into bins, once for all models that learn from rows of x."""
        import lightgbm

        threads = _threads(x)
        # By rows gives the same trees in less time on one core, but copies all rows.
        way = "force_row_wise" if threads == 1 else "force_col_wise"
        parameters = {**LIGHTGBM, "seed": seed, "num_threads": threads, way: True}
        data = lightgbm.Dataset(_taken(x), np.zeros(x.shape[0]), params=parameters).construct()
        return lambda: cls(data)

    def grow(self, x: Matrix, rows: I64, left: F64, weight: F64, score: F64) -> F64:
        """Add trees."""
        import lightgbm

        if len(rows) < 2 * FEWEST_IN_LEAF:
            return score
        others = np.delete(np.arange(x.shape[0]), rows)
        if self.booster is None:
            part = self.data.subset(rows).construct() if len(others) else self.data
            self.booster = lightgbm.Booster(self.data.params, part)
            if len(others):
                self.booster.add_valid(self.data.subset(others).construct(), "others")
            self.data = None
        wanted, weights, before = (score + left)[rows], weight[rows], self.booster.num_trees()
        for _ in range(max(TREES, before // GROWTH)):
            self.booster.update(fobj=lambda now, _: (weights * (now - wanted), weights))
        score = score.copy()

        def keep(now: F64, data: Any) -> tuple[str, float, bool]:
            score[rows if data is self.booster.train_set else others] = now
            return "", 0.0, False

        # The booster knows the scores of all rows: to predict them anew would take longer.
        self.booster.eval_train(keep)
        self.booster.eval_valid(keep)
        return score

    @property
    def count(self) -> int:
        """The number of trees."""
        return 0 if self.booster is None else int(self.booster.num_trees())

    def __reduce__(self) -> Any:
        features = 0 if self.booster is None else self.booster.num_feature()
        return LightGbmTrees.unpack, (self.pack(), features)  # a copy needs no rows

    def predict(self, x: Matrix) -> F64:
        """Scores of rows."""
        if not self.count:
            return np.zeros(x.shape[0])
        return np.asarray(self.booster.predict(_taken(x), num_threads=_threads(x)), np.float64)

    def pack(self, trust: Collection[str] = ()) -> Text:  # noqa: ARG002
        """Return LightGBM's text, empty if rows were too few for a tree."""
        if self.booster is None:
            return np.zeros(0, np.uint8)
        return np.frombuffer(self.booster.model_to_string().encode(), np.uint8)

    @classmethod
    def unpack(
        cls,
        text: Text,
        features: int,
        trust: Collection[str] = (),  # noqa: ARG003
    ) -> "LightGbmTrees":
        """Return the trees that `pack` made text of, for rows of so many features."""
        if not len(text):
            return cls()
        import lightgbm

        try:
            checked = checked_text(text.tobytes().decode(), features)
            return cls(booster=lightgbm.Booster(model_str=checked))
        except (lightgbm.basic.LightGBMError, LookupError, ValueError) as error:
            raise ValueError(f"the trees of LightGBM are damaged: {error}") from None


class ForeignModel(SharedModel):
    """A regressor of scikit-learn's kind for each output, or a classifier for all.

    A classifier's scores are the log odds of its probabilities.
    """

    kind = "foreign"

    def __init__(self, fitted: Any, outputs: int = 1) -> None:
        self.fitted = fitted
        self.outputs = len(fitted) if isinstance(fitted, list) else outputs

    def predict(self, x: Matrix) -> F64:
        """Scores of rows."""
        scores = np.empty((self.outputs, x.shape[0]))
        try:
            for part in _parts(x):
                scores[:, part] = self._predict(x[part])
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            # A file may have lacked what its model needs.
            raise ValueError(f"the shared model cannot predict: {error!r}") from error
        return scores

    def _predict(self, x: Matrix) -> F64:
        if isinstance(self.fitted, list):
            return np.stack([np.ravel(one.predict(taken_by(one, x))) for one in self.fitted])
        share = np.zeros((x.shape[0], max(2, self.outputs)))  # none of a class that was not there
        share[:, self.fitted.classes_.astype(int)] = self.fitted.predict_proba(
            taken_by(self.fitted, x)
        )
        return log_odds(share, self.outputs)

    def pack(self, trust: Collection[str] = ()) -> Text:
        """Return the models in the skops format."""
        return np.frombuffer(skops_files.dump([self.fitted, self.outputs], trust), np.uint8)

    @classmethod
    def unpack(
        cls,
        text: Text,
        features: int,  # noqa: ARG003
        trust: Collection[str] = (),
    ) -> "ForeignModel":
        """Return the models that `pack` made bytes of; they know their features."""
        return cls(*skops_files.load(text.tobytes(), trust))


KINDS: dict[str, Any] = {model.kind: model for model in (LightGbmTrees, ForeignModel)}


def log_odds(probability: F64, outputs: int) -> F64:
    """Of the second of two classes, or of each: (outputs, rows).

    Examples
    --------
    >>> log_odds(np.array([[0.5, 0.5], [1.0, 0.0]]), 1).round(1)
    array([[ 0. , -6.9]])
    """
    share = np.asarray(probability, np.float64).clip(1e-3, 1 - 1e-3)  # some are sure of a few rows
    odds: F64 = np.log(share / (1 - share)).T
    return odds[len(odds) - outputs :]


def features_seen(columns: Sequence[Column]) -> NDArray[np.bool_]:
    """Which features of the global side a shared model sees.

    Examples
    --------
    >>> from fedres.tables.columns import Number, OneHot
    >>> film = OneHot("film", tuple(f"film {i}" for i in range(40)), missing=False)
    >>> features_seen([Number("age", 40.0, 0.1, missing=True), film]).nonzero()[0]
    array([0, 1])
    """
    seen = [not (isinstance(one, Category) and one.width > MOST_CATEGORIES) for one in columns]
    return np.repeat(seen, [one.width for one in columns]).astype(bool)


def seen_part(x_global: Matrix, seen: NDArray[np.bool_]) -> Matrix:
    """The columns that a shared model sees."""
    x = x_global if seen.all() else x_global[:, np.flatnonzero(seen)]
    return dense(x) if x.shape[1] <= WIDEST_DENSE and _numbers(x) <= MOST_DENSE else x


def dense(x: Matrix) -> F32:
    """An array, as not all models take sparse matrices."""
    return np.asarray(x.toarray() if sparse.issparse(x) else x, np.float32)


def taken_by(model: Any, x: Matrix) -> Any:
    """Rows as a model of scikit-learn's kind takes them: sparse ones only if it says it does."""
    from sklearn.utils import get_tags

    if sparse.issparse(x) and get_tags(model).input_tags.sparse:
        return x
    if sparse.issparse(x) and _numbers(x) > MOST_DENSE:
        raise _too_wide(f"shared={type(model).__name__}", x)
    return dense(x)


def _too_wide(what: str, x: Matrix) -> ValueError:
    return ValueError(
        f"{what} takes no sparse rows, and {x.shape[0]} rows of {x.shape[1]} columns are too many "
        "to be made dense: use shared='linear', shared='trees', or fewer columns"
    )


def _taken(x: Matrix) -> Any:
    """Rows as LightGBM takes them."""
    return sparse.csr_matrix(x) if sparse.issparse(x) else x


def _parts(x: Matrix) -> list[slice]:
    """Rows by so many at once that they may be made dense."""
    size = max(1, MOST_DENSE // max(1, x.shape[1]))
    return [slice(a, a + size) for a in range(0, x.shape[0], size)]


def _numbers(x: Matrix) -> int:
    return int(x.shape[0]) * int(x.shape[1])


def _threads(x: Matrix) -> int:
    return 1 if x.shape[0] * x.shape[1] <= ALONE else 0
