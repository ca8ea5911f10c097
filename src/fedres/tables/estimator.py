"""What both estimators share: from tables and dicts to models, and back to scores."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedres.core.types import F32, F64, I64, Matrix
from fedres.core.warn import warn
from fedres.tables import skops_files
from fedres.tables.arrow import Arrow, TooWideError
from fedres.tables.cell_values import as_floats, place_of, unfit
from fedres.tables.client_ids import Clients, predicted_by
from fedres.tables.column_notes import LabelColumn, LabelWarning, label_doubts
from fedres.tables.columns import Tastes
from fedres.tables.contributions import linear_parts
from fedres.tables.dict_encoder import DictEncoder
from fedres.tables.empirical_bayes import Solution, models_of, train
from fedres.tables.encoder import EncodedTable, Encoder, EstimatorMethod
from fedres.tables.input_rows import as_pandas, check_aligned
from fedres.tables.labels import Labels
from fedres.tables.mixed_models import MixedModels
from fedres.tables.online_models import ModelShape, OnlineModels, SparseRow
from fedres.tables.origins import counted_from, nearer_to_zero, zeros_of
from fedres.tables.parameters import Parameters
from fedres.tables.posterior import Posterior
from fedres.tables.prepared_rows import Begun, Prepared, in_range
from fedres.tables.read_table import Table
from fedres.tables.sgd_tuning import DEFAULT, Encoded, Trial, or_default, tune_and_train
from fedres.tables.shared_models import SharedModel, features_seen, seen_part
from fedres.tables.shared_training import train_foreign, train_trees
from fedres.tables.tastes import Items, train_tastes
from fedres.tables.unseen import Unseen
from fedres.tables.weight_groups import Groups
from fedres.tables.weights import LocalModels, Weights, unpack

if TYPE_CHECKING:
    import pandas as pd

    from fedres.tables.summary import ModelSummary


class FedResEstimator(Parameters):
    """The common part of `FedResRegressor` and `FedResClassifier`."""

    _labels: Labels
    _clients: Clients
    _models: OnlineModels
    encoder_: Encoder | DictEncoder
    validation_: list[dict[str, Any]]
    solver_: str
    shared_: str
    latent_: int
    n_samples_seen_: int
    verdict_: str
    _shared: tuple[SharedModel, ...] = ()  # none where the shared model is linear

    def fit(self, X: Any, y: Any, client: Any = None, sample_weight: Any = None) -> Self:
        """Learn from a table, and forget what was learned before.

        Parameters
        ----------
        X
            Rows of features: a DataFrame (of numbers, texts, dates, missing values), an array or
            a sparse matrix.
        y
            The label of each row.
        client
            The client of each row, a string or a whole number. If None, the column that the
            estimator was made with names it. False if rows have no clients.
        sample_weight
            How many rows each row stands for; one if None.
        """
        with all_or_nothing(self):
            self._train(self._prepare(X, y, client, sample_weight))
        return self

    def fit_each(
        self, methods: Iterable[EstimatorMethod], train: Table, held: Table
    ) -> Iterator[tuple[Self, F32]]:
        """Fit a copy by each method, and predict other rows; all are encoded once.

        Yields each copy, and its sums of both models for the rows held out, (outputs, rows).
        """
        whole = clone(self).set_params(method="fedres")
        rows = whole._prepare(train.frame, train.y, train.client)
        encoder: Encoder = whole.encoder_
        frame, client, offset = whole._split(held.frame, held.client, reset=False, learn=False)
        new, numbers = encoder.encode(frame), whole._clients.find(client, len(held))
        del train, held, frame
        for method in methods:
            one = deepcopy(whole).set_params(method=method)
            one.encoder_ = encoder.of_method(method)
            one._train(rows)
            if method != self.method:
                one._posterior = None  # whoever compares asks for scores, and it is large
            yield one, one._sums(in_range(one.encoder_.views(new)), numbers, offset)

    def save(self, folder: str | PathLike[str], trust: Collection[str] = ()) -> None:
        """Write the model to a folder, from which `fedres.load_model` reads it.

        Parameters
        ----------
        folder
            Created if absent; a model in it is replaced.
        trust
            Full names of classes and functions that a shared model of scikit-learn's kind may have
            beside the classes of scikit-learn that are known to be safe to load.
        """
        from fedres.tables.stored_estimator import save

        check_is_fitted(self)
        save(self, folder, trust)

    def summary(self) -> "ModelSummary":
        """Return variance components, shared weights and how the model was chosen.

        Standard errors of shared weights are those of the posterior of ``bayes``; where there are
        none, the summary gives the reason. It prints as text, and as tables in a notebook.

        Examples
        --------
        >>> from fedres import FedResRegressor
        >>> rng = np.random.default_rng(0)
        >>> X, user = rng.normal(size=(600, 2)), rng.integers(0, 12, 600)
        >>> y = 3 * X[:, 0] + rng.normal(size=12)[user] + rng.normal(size=600)
        >>> found = FedResRegressor(local_features=[]).fit(X, y, client=user).summary()
        >>> found.title
        'FedResRegressor fitted to 600 rows of 12 clients'
        >>> found.components[["part", "column"]].to_numpy().tolist()
        [['shared', 'numbers'], ['client', 'constant'], ['residual', '']]
        >>> found.weights.columns.tolist()
        ['column', 'weight', 'standard_error']
        """
        from fedres.tables.summary import summarise

        check_is_fitted(self)
        return summarise(self)

    @property
    def coef_(self) -> F64:
        """Weights of a linear shared model, in units of the label and of the original columns.

        One per name in ``encoder_.names_global``: (features,) for numbers, where ``X @ coef_ +
        intercept_`` is the prediction for an unknown client before it is clipped to the range of
        labels seen (of counts: its logarithm), and (1, features) or (classes, features) for
        classes, where it is log odds. A category is 1 or 0. A missing number stands for the mean
        of its column, and its feature ``=missing`` is 1. Columns of a model trained with a
        `feature_limit` count only up to that limit.
        """
        return self._line[0]

    @property
    def intercept_(self) -> Any:
        """Constant of a linear shared model, where all original columns are 0: see `coef_`."""
        return self._line[1]

    @property
    def _line(self) -> tuple[F64, Any]:
        from fedres.tables.summary import shared_line

        check_is_fitted(self)
        weights, constant = shared_line(self)
        return (weights, constant) if self._loss == "logistic" else (weights[0], float(constant[0]))

    @property
    def clients_(self) -> list[Any]:
        """The ids of all clients known."""
        check_is_fitted(self)
        return self._clients.ids

    @property
    def global_model_(self) -> Weights:
        """The model that all clients share."""
        check_is_fitted(self)
        models, encoder = self._models, self.encoder_
        names = [] if models.settings.width_global is None else encoder.names_global
        return unpack(names, models.w_global, *self._labels.units)

    @property
    def local_models_(self) -> LocalModels:
        """Every client's own model, by client."""
        check_is_fitted(self)
        models, names = self._models, self.encoder_.names_local
        clients = Clients() if models.settings.width_local is None else self._clients
        return LocalModels(models, clients, names, self._labels.units[0])

    @property
    def variance_components_(self) -> "pd.DataFrame":
        """How much of the labels' variance is whose, where ``bayes`` fitted.

        `part` is ``shared``, ``client`` or ``residual``; `variance` is that of the weights of a
        column, `share` that of what it adds to the labels: times the mean square of the features.
        A shared model that is not linear is one part, the variance of what it predicts. Of classes
        they are parts of the log odds, whose residual is that of the logistic distribution; of
        counts, of the logarithm of the mean, and there is no residual.
        """
        known, labels = self._known, self._labels
        shared, seen = None, np.zeros(0, np.int64)
        if self._shared:
            shared, seen = self.shared_, known.groups.of_global[:-1][self._seen]
        residual = labels.residual(known.noise)
        return known.components(labels.units[0], labels.names, residual, shared, set(seen.tolist()))

    @property
    def effects_(self) -> "pd.DataFrame":
        """Every client's weights with standard errors, where ``bayes`` fitted."""
        return self._known.effects(
            self._models,
            self._clients.ids,
            self.encoder_.names_local,
            self._labels.units[0],
            self._labels.names,
        )

    def contributions(self, X: Any, client: Any = None) -> "pd.DataFrame":
        """What each column adds to the prediction of each row, as shared and as the client's own.

        Columns of the result are pairs: ``shared`` or ``client``, and the column or ``constant``;
        a shared model that is not linear is one of them. They add up to the prediction (of
        classes: to the log odds of the second one; of counts: to the logarithm) before it is
        clipped to the range of labels seen.
        """
        import pandas as pd

        check_is_fitted(self)
        if self.method == "mixture":
            raise ValueError("contributions are of a sum of models, which a mixture is not")
        if self._labels.outputs > 1:
            raise ValueError(
                f"contributions are of numbers or of two classes, not of {self._labels.outputs}"
            )
        table, numbers, offset = self._known_rows(X, client)
        views, encoder = self._views(table), self.encoder_
        assert isinstance(encoder, Encoder)
        columns = encoder.global_columns, encoder.local_columns
        parts = linear_parts(self._models, columns, views, numbers)
        if self._shared:
            parts["shared", self.shared_] = self._shared_scores(views[0])[0].astype(np.float64)
        scale, begin = self._labels.units
        parts = {name: scale * part for name, part in parts.items()}
        if offset is not None:
            parts["shared", str(self.offset)] = offset
        nothing = np.zeros(len(numbers))
        parts["shared", "constant"] = begin + parts.get(("shared", "constant"), nothing)
        return pd.DataFrame(parts).sort_index(
            axis=1, level=0, ascending=False, sort_remaining=False
        )

    @property
    def _known(self) -> Posterior:
        check_is_fitted(self)
        if self._posterior is None:
            raise AttributeError(
                "this model was fitted in shards, which keep no variances: fit some clients in "
                "memory for them"
                if self.solver_ == "bayes"
                else f"solver={self.solver_!r} estimates no variances: fit with solver='bayes'"
            )
        return self._posterior

    @property
    def _groups(self) -> Groups:
        encoder = self.encoder_
        assert isinstance(encoder, Encoder)
        return Groups.of(
            None if self.method == "independent" else encoder.global_columns,
            None if self.method == "central" else encoder.local_columns,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_models")

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        unfitted = str(super().__repr__(N_CHAR_MAX))
        if not self.__sklearn_is_fitted__():
            return unfitted
        from fedres.tables.summary import title_of

        fitted = title_of(self).removeprefix(type(self).__name__).strip()
        return f"{unfitted}\n  {fitted}, shared model {self.shared_}, solver {self.solver_}"

    def _repr_html_inner(self) -> str:
        return str(self._repr_mimebundle_().get("text/html", ""))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Return scikit-learn's diagram, and below it the summary of a fitted model."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle and self.__sklearn_is_fitted__():
            bundle["text/html"] += self.summary()._repr_html_()
        return bundle

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    # What the two kinds of labels differ in.

    @abstractmethod
    def _check_labels(self, y: Any) -> Any: ...

    @abstractmethod
    def _learn_labels(
        self, y: Any, classes: Any, offset: F64 | None = None, weight: F64 | None = None
    ) -> Labels: ...

    # Tables.

    def _begin(self, X: Any, y: Any, client: Any, sample_weight: Any = None) -> "Begun":
        """Forget everything and learn the encoder; the table, labels and clients of its rows."""
        if hasattr(self, "verdict_"):
            del self.verdict_
        self._check_parameters()
        check_aligned(X=X, y=y, client=client, sample_weight=sample_weight)
        table, client, offset = self._split(X, client, reset=True)
        y = self._check_labels(y)
        check_consistent_length(table, y)
        begun = Begun(table, y, client, offset, None)
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight, y, dtype=np.float64, ensure_non_negative=True
            )
            begun = begun._replace(weight=weight).where(weight > 0)
        encoder = Encoder.fit(
            begun.table,
            categorical=self.categorical_features,
            local=self.local_features,
            global_=self.global_features,
            item=self.item,
        )
        client = begun.client
        if client is not False:
            client = Clients().learn(client, len(begun.y))
        label = LabelColumn("y", begun.y, self._loss == "logistic", client)
        for i, why in label_doubts(encoder, begun.table, label).items():
            what = "label" if i is None else f"column {encoder.columns[i].name!r}"
            warn(f"{what}: {why}", LabelWarning)
        if not isinstance(self.shared, str) and (why_not := skops_files.doubt(self.shared)):
            warn(why_not, skops_files.SaveWarning)
        self.encoder_, self._clients = encoder.of_method(self.method), Clients()
        return begun

    def _prepare(self, X: Any, y: Any, client: Any, sample_weight: Any = None) -> "Prepared":
        """Forget everything and learn encoder, labels and clients: all but the models."""
        if self.method == "mixture":
            raise ValueError(
                "method='mixture' learns whom to trust from rows that come one by one: use "
                "partial_fit or learn_one"
            )
        table, y, client, offset, weight = self._begin(X, y, client, sample_weight)
        self._labels = self._learn_labels(y, None, offset, weight)
        targets, numbers = self._labels.targets(y), self._clients.learn(client, len(y))
        assert isinstance(self.encoder_, Encoder)
        offset = None if offset is None else offset / self._labels.units[0]
        if self._loss == "poisson":  # whose scores begin at the logarithm of the mean
            offset = np.full(len(y), self._labels.units[1]) + (0.0 if offset is None else offset)
        return Prepared(self.encoder_.encode(table), targets, numbers, weight, offset)

    def _partial_fit(self, X: Any, y: Any, client: Any, classes: Any) -> Self:
        """Learn from the rows of a table once, in their order."""
        self._refuse_batch()
        if hasattr(self, "_models"):
            check_aligned(X=X, y=y, client=client)
            table, client, offset = self._split(X, client, reset=False)
            if table.shape[0]:
                y = self._check_labels(y)
                check_consistent_length(table, y)
                self._go_on(table, y, client, offset)
            return self
        with all_or_nothing(self):
            table, y, client, *_ = self._begin(X, y, client)
            self._labels = self._learn_labels(y, classes)
            self._begin_online()
            self._go_on(table, y, client, None)
        return self

    def _go_on(self, table: Any, y: Any, client: Any, offset: F64 | None) -> None:
        # All that may be refused comes before anything changes.
        views, targets = self._views(table), self._labels.targets(y)
        offset = self._given(views[0], len(y), offset)
        self._learn(views, targets, self._clients.learn(client, len(y)), offset)
        self._labels.see(y)

    def _learn(
        self,
        views: tuple[Matrix | SparseRow, Matrix | SparseRow],
        targets: F32,
        client: I64,
        offset: F64,
    ) -> None:
        """Learn from rows one by one: from what ``bayes`` knows, or by gradients."""
        if hasattr(self, "n_samples_seen_"):  # models saved by earlier versions do not count rows
            self.n_samples_seen_ += len(client)
        if isinstance(self._models, MixedModels):
            low, high = self._labels.limits
            low, high = min(low, float(targets.min())), max(high, float(targets.max()))
            self._models.between(low, high)
            self._models.widen((high - low) * self._labels.units[0])
        if self._posterior is None:
            self._models.learn(self._models.rows(*views, client), targets)
        else:
            rows = *views, client, targets, offset
            self._posterior.learn(self._models, *rows, self.forgetting_factor)

    def _given(self, x_global: Matrix | SparseRow, rows: int, offset: F64 | None) -> F64:
        """What of the scores of rows is not for linear models to learn, (outputs, rows)."""
        given = np.zeros((self._labels.outputs, rows))
        if self._shared:
            given += self._shared_scores(x_global)
        if self._loss == "poisson":  # whose scores begin at the logarithm of the mean
            given += self._labels.units[1]
        return given if offset is None else given + offset / self._labels.units[0]

    def _scores(self, X: Any, client: Any) -> F32:
        """The sums of both models for the rows of a table, (outputs, rows)."""
        table, numbers, offset = self._known_rows(X, client)
        return self._sums(self._views(table), numbers, offset)

    def _known_rows(self, X: Any, client: Any, *, loud: bool = True) -> tuple[Any, I64, F64 | None]:
        """Return features, the number of each row's client (-1 if unknown), and offsets.

        With `loud`, unknown and missing clients raise warnings, if that makes a difference, and so
        do values that training never saw.
        """
        check_is_fitted(self)
        if loud:
            check_aligned(X=X, client=client)
        table, client, offset = self._split(X, client, reset=False, learn=False)
        if loud:
            Unseen.of(self.encoder_, table).warn()
        loud = loud and self.method != "central" and len(self._clients) > 1
        how = predicted_by(self.method) if loud else None
        return table, self._clients.find(client, table.shape[0], how=how), offset

    def _sums(
        self,
        views: tuple[Matrix | SparseRow, Matrix | SparseRow],
        client: I64,
        offset: F64 | None = None,
    ) -> F32:
        if isinstance(self._models, MixedModels):
            self._models.between(*self._labels.limits)
        sums = self._models.predict(self._models.rows(*views, client, new=False))
        if self._shared:
            sums += self._shared_scores(views[0])
        if offset is not None:
            sums += (offset / self._labels.units[0]).astype(np.float32)
        return sums

    def _shared_scores(self, x_global: Matrix | SparseRow) -> F32:
        """What a shared model that is not linear says, (outputs, rows)."""
        x = seen_part(x_global, self._seen)
        return np.concatenate(
            [np.atleast_2d(one.predict(x)) for one in self._shared], dtype=np.float32
        )

    @property
    def _seen(self) -> Any:
        encoder = self.encoder_
        assert isinstance(encoder, Encoder)
        return features_seen(encoder.global_columns)

    def _split(
        self, X: Any, client: Any, *, reset: bool, learn: bool = True
    ) -> tuple[Any, Any, F64 | None]:
        """Features, clients and offsets, checked."""
        import pandas as pd

        X, client = as_pandas(X), _one_column(as_pandas(client))
        if not reset and isinstance(self.encoder_, DictEncoder):
            raise ValueError(
                "this model began with learn_one, and learned of no table: go on with learn_one "
                "and predict_one, or fit anew"
            )
        if isinstance(X, pd.DataFrame):
            X = X.rename(columns=str)
            if self.client in X.columns:
                client = X[self.client] if client is None else client
                X = X.drop(columns=self.client)
        X, offset = self._take_offset(X)
        if isinstance(X, pd.DataFrame) and (reset or hasattr(self, "feature_names_in_")):
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            X = self._validated_array(X, reset)
        if not reset and hasattr(self, "feature_names_in_") and isinstance(X, np.ndarray):
            X = pd.DataFrame(X, columns=self.feature_names_in_)
        if client is None:
            only = self._unnamed("X", learn=learn)
            client = False if only is False else np.full(X.shape[0], only)
        return X, client, offset

    def _validated_array(self, X: Any, reset: bool) -> Any:
        """Return an array or a sparse matrix of numbers."""
        try:
            return validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                ensure_all_finite="allow-nan",
                ensure_min_samples=int(reset),
            )
        except ValueError as error:
            what, _, value = str(error).partition("could not convert string to float: ")
            if what or not value:
                if np.asarray(X).dtype.kind not in "US":
                    raise
                value = repr(np.asarray(X).flat[0].item())
            names = getattr(self, "feature_names_in_", ())
            columns = f" with the columns {', '.join(names)}" if len(names) else ""
            raise ValueError(
                f"X is an array that holds {value}, and arrays are read as numbers: give a "
                f"DataFrame{columns}"
            ) from None

    def _take_offset(self, X: Any) -> tuple[Any, F64 | None]:
        """Rows without the column of offsets, and these."""
        import pandas as pd

        if self.offset is None:
            return X, None
        if not isinstance(X, pd.DataFrame) or self.offset not in X.columns:
            raise ValueError(f"X has no column {self.offset!r}, which holds the offset: add it")
        offset = as_floats(self.offset, X[self.offset]).astype(np.float64)
        if (bad := np.flatnonzero(~np.isfinite(offset))).size:
            place = place_of(X[self.offset], int(bad[0]))
            raise unfit(self.offset, offset[bad[0]], "not a finite number", place)
        return X.drop(columns=self.offset), offset

    def _unnamed(self, what: str, *, learn: bool) -> Any:
        """The client of rows that name none, False if they need none."""
        one_row = what == "the row"
        named = "entry" if one_row else "column"
        if not learn and len(self._clients) == 1:
            return self._clients.ids[0]
        if self.method == "central" and not (learn and self.client):
            return False
        if not learn and len(self._clients) > 1:
            remedy = (
                "set_params(client=...) names the entry that has it"
                if one_row
                else "pass client=, one id per row; client=False predicts by the shared model alone"
            )
            raise ValueError(
                f"the model has {len(self._clients)} clients and {what} names none: {remedy}"
            )
        if learn and self.client:
            raise ValueError(f"{what} has no {self.client!r}, which names the clients: add it")
        if learn and self.client is None:
            passed = "" if one_row else "pass client=, one id per row, or "
            raise ValueError(
                f"{what} names no client: {passed}let the parameter client of "
                f"{type(self).__name__} name the {named} that has it, or be False if all rows are "
                "one client's"
            )
        return False

    def _views(self, table: Any) -> tuple[Matrix, Matrix]:
        assert isinstance(self.encoder_, Encoder)
        return in_range(self.encoder_.transform(table))

    # Training.

    def _train(self, rows: "Prepared") -> None:
        assert isinstance(self.encoder_, Encoder)
        self.n_samples_seen_ = len(rows.client)
        views, items = in_range(self.encoder_.views(rows.table)), self._items(rows.table)
        data = Encoded(
            *views, rows.targets, rows.client, self._labels.limits, rows.weight, rows.offset
        )
        del rows, views  # unless others need them, they make room
        rng = check_random_state(self.random_state)
        settings = self._settings(0.0, 0.0)
        self._posterior, self._shared, self.shared_, self.latent_ = None, (), "linear", 0
        self.solver_ = self._chosen_solver(data)
        if self.solver_ == "bayes":
            try:
                self._train_bayes(data, items, rng)
                return
            except TooWideError:
                if self.solver == "bayes" or self._only_bayes(data):
                    raise
                self.solver_ = "sgd"
        given = self.eta, self.shrinkage, self.passes
        self._models, best, trials = tune_and_train(settings, data, *given, rng)
        self._keep(best, trials)

    def _items(self, table: EncodedTable) -> Items | None:
        """The items of rows, if clients may have tastes for them."""
        encoder = self.encoder_
        if self.latent is None or self.method != "fedres":
            return None
        assert isinstance(encoder, Encoder)
        assert encoder.item is not None
        if self._labels.outputs > 1:
            raise ValueError(
                f"latent is for numbers and for two classes, not for {self._labels.outputs}"
            )
        column, features = encoder.columns[encoder.item], table.features[encoder.item]
        if (features.counts > 1).any():
            row = int(np.argmax(features.counts > 1))
            raise ValueError(
                f"row {row} has {features.counts[row]} categories in column {self.item!r}, and an "
                "item is one: name another column by item, or write items without |"
            )
        return Items(features.indices, column.width, self.latent)

    def _train_bayes(self, data: Encoded, items: Items | None, rng: Any) -> None:
        settings = self._settings(DEFAULT.eta, 0.0)
        losses: dict[str, float] = {}
        arrow = None
        if items is not None:
            self._train_tastes(settings, data, items, rng)
            return
        if (
            self.shared != "linear"
            and self.latent is None
            and self.method != "independent"
            and self._seen.any()
        ):
            rows = settings, data, self._groups, self._seen, rng
            if isinstance(self.shared, str):
                trained = train_trees(*rows, or_linear=self.shared == "auto")
            else:
                trained = train_foreign(*rows, self.shared)
            arrow, found, shared, losses, spread = trained
        if arrow is None:
            arrow, found = self._train_linear(settings, data, rng)
        else:
            self._shared = tuple(shared)
            self.shared_ = "trees" if isinstance(self.shared, str) else type(self.shared).__name__
        self._models = models_of(settings, arrow, found)
        self._posterior = Posterior.of(arrow, found)
        if self._shared:
            self._posterior.of_shared = spread
        self._keep(None, [])
        self.validation_ = [{"shared": name, "loss": loss} for name, loss in losses.items()]

    def _train_linear(
        self, settings: ModelShape, data: Encoded, rng: Any
    ) -> tuple[Arrow, list[Solution]]:
        """Fit both models, and once more where some slopes of clients had better begin at zero."""
        state, encoder, groups = rng.get_state(), self.encoder_, self._groups
        assert isinstance(encoder, Encoder)
        arrow, found = train(settings, data, groups, rng)
        zeros = zeros_of(encoder.local_columns)
        if self.method == "central" or len(found) > 1 or np.isnan(zeros).all():
            return arrow, found
        features = nearer_to_zero(arrow, found[0], zeros)
        if not len(features):
            return arrow, found
        origin = np.zeros(len(zeros))
        origin[features] = zeros[features]
        column = np.repeat(encoder.local, [one.width for one in encoder.local_columns])
        self.encoder_ = replace(encoder, from_zero=tuple(column[features].tolist()))
        rng.set_state(state)
        data = data._replace(x_local=counted_from(data.x_local, origin))
        return train(settings, data, groups, rng)

    def _train_tastes(self, settings: ModelShape, data: Encoded, items: Items, rng: Any) -> None:
        encoder = self.encoder_
        assert isinstance(encoder, Encoder)
        groups = self._groups
        tastes = Tastes(str(self.item), np.zeros((0, items.factors), np.float32))
        self.encoder_ = replace(encoder, tastes=tastes)
        found = train_tastes(settings, data, (groups, self._groups), items, rng)
        self.latent_ = found.factors.shape[1]
        self.encoder_ = encoder
        if self.latent_:
            self.encoder_ = replace(encoder, tastes=replace(tastes, factors=found.factors))
        self._models = models_of(self._settings(DEFAULT.eta, 0.0), found.arrow, found.found)
        self._posterior = Posterior.of(found.arrow, found.found)
        self._keep(None, [])
        self.validation_ = [
            {"taste_strength": strength, "loss": loss} for strength, loss in found.losses.items()
        ]

    def _begin_online(self) -> None:
        self.solver_, self.shared_, self._posterior, self._shared = "sgd", "linear", None, ()
        self.latent_ = self.n_samples_seen_ = 0
        best = or_default(self.eta, self.shrinkage, passes=1)
        self._keep(best, [])
        settings = self._settings(best.eta, best.shrinkage)
        if self.method == "mixture":
            encoder = self.encoder_
            own = encoder.only_local if isinstance(encoder, Encoder) else None
            self._models = MixedModels(settings, self._labels.outputs, own=own)
        else:
            self._models = OnlineModels(settings, self._labels.outputs)

    def _keep(self, best: Trial | None, trials: Sequence[Trial]) -> None:
        self.eta_ = None if best is None else best.eta
        self.shrinkage_ = None if best is None else best.shrinkage
        self.passes_ = None if best is None else best.passes
        self.validation_ = [trial._asdict() for trial in trials]

    def _settings(self, eta: float, shrinkage: float) -> ModelShape:
        encoder = self.encoder_
        return ModelShape(
            None if self.method == "independent" else encoder.width_global,
            None if self.method == "central" else encoder.width_local,
            self._loss,
            eta,
            shrinkage,
        )


def _one_column(client: Any) -> Any:
    """Return ids that came as a table of one column as that."""
    import pandas as pd

    if isinstance(client, dict):
        raise ValueError("client is a dict: give one id per row")
    if not isinstance(client, pd.DataFrame):
        return client
    if client.shape[1] != 1:
        raise ValueError(f"client is a table of {client.shape[1]} columns: give one id per row")
    return client.iloc[:, 0]


def finite_labels(y: Any, labels: NDArray[Any]) -> None:
    """Raise if a label is missing or infinite, with the first such row.

    Parameters
    ----------
    y
        Labels as they were given, perhaps with an index.
    labels
        Those as an array.
    """
    import pandas as pd

    absent = pd.isna(labels)
    bad = absent | np.isinf(labels) if labels.dtype.kind == "f" else absent
    if bad.any():
        row = int(bad.argmax())
        what = "NaN" if absent[row] else "infinity"
        place = place_of(y if isinstance(y, pd.Series) else labels, row)
        raise ValueError(
            f"Input y contains {what} in {place}: correct or leave out such rows, {bad.sum():,} in "
            "all"
        )


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """Let the estimator be as it was before, should the block fail."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
