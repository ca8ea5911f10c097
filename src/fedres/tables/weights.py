"""Models as users look at them: weights by the names of features."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedres.core.display import Displayed, Grid, first_rows
from fedres.core.types import F32, F64
from fedres.tables.client_ids import Clients
from fedres.tables.online_models import OnlineModels

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Weights(Displayed):
    """One linear model, in units of the label and of encoded features.

    Attributes
    ----------
    names
        Of the features.
    weights
        One a feature; (classes, features) where there are more than two classes.
    constant
        What is added: a number, or one a class.

    Examples
    --------
    >>> model = Weights(["size", "age"], np.array([3.0, 0.0]), np.float64(4.0))
    >>> model.norm
    5.0
    >>> model.table()
    size        3.0
    age         0.0
    constant    4.0
    dtype: float64
    """

    names: Sequence[str]
    weights: F64
    constant: Any

    @property
    def norm(self) -> float:
        """How much the model has to say: 0 for one that never moved."""
        return float(np.hypot(np.linalg.norm(self.weights), np.linalg.norm(self.constant)))

    def table(self) -> "pd.Series | pd.DataFrame":
        """Weights by name, the constant's last: a Series, or a DataFrame with a column a class."""
        import pandas as pd

        values = np.concatenate([self.weights, np.expand_dims(self.constant, -1)], axis=-1)
        names = [*self.names, "constant"]
        return pd.Series(values, names) if values.ndim == 1 else pd.DataFrame(values.T, names)

    def _display(self) -> Iterator[str | Grid]:
        features = f"{len(self.names):,} feature{'s' * (len(self.names) != 1)}"
        yield f"Linear model of {features} and a constant"
        weights = np.atleast_2d(self.weights)
        heads = ["weight"] if len(weights) == 1 else [f"class {k}" for k in range(len(weights))]
        by_size = np.argsort(-np.linalg.norm(weights, axis=0), kind="stable")
        rows = [[self.names[j], *(f"{w:.4g}" for w in weights[:, j])] for j in by_size]
        constant = ["constant", *(f"{c:.4g}" for c in np.atleast_1d(self.constant))]
        yield Grid(["feature", *heads], [*first_rows(rows), constant])


def unpack(names: Sequence[str], w: F32, scale: float, shift: float = 0.0) -> Weights:
    """Weights from (outputs, features and constant) in units of the models."""
    units = scale * w.astype(np.float64)
    weights, constant = units[:, :-1], units[:, -1] + shift
    if len(w) == 1:
        return Weights(names, weights[0], constant[0])
    return Weights(names, weights, constant)


class UnknownClientError(KeyError):
    """A client without a local model."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would add quotes


class LocalModels(Displayed, Mapping[Any, Weights]):
    """Every client's local model, by client; each is unpacked when asked for.

    A model has weights for those features only that its client was ever seen with.
    """

    def __init__(
        self, models: OnlineModels, clients: Clients, names: Sequence[str], scale: float
    ) -> None:
        self._models, self._clients, self._names, self._scale = models, clients, names, scale

    def __getitem__(self, client: Any) -> Weights:
        if client not in self._clients:
            known = next(iter(self._clients.ids), None)
            raise UnknownClientError(
                f"there is no local model of client {client!r}: "
                + (
                    "this model has none"
                    if known is None
                    else f"there are {len(self):,}, such as that of {known!r}"
                )
            )
        number = self._clients.find_one(client)
        columns, w = self._models.client(number)
        return unpack([self._names[j] for j in columns[:-1]], w, self._scale)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._clients.ids)

    def __len__(self) -> int:
        return len(self._clients)

    def __contains__(self, client: object) -> bool:
        return client in self._clients

    @property
    def norms(self) -> F64:
        """The norm of every client's model, in the order of clients."""
        return self._scale * self._models.client_norms(len(self))

    def _display(self) -> Iterator[str | Grid]:
        yield f"Local models of {len(self):,} clients, those with the largest norm first"
        ids, norms = self._clients.ids, self.norms if len(self) else np.zeros(0)
        by_size = np.argsort(-norms, kind="stable")
        rows = [[str(ids[i]), f"{norms[i]:.4g}"] for i in by_size]
        yield Grid(["client", "norm"], first_rows(rows))
