"""Single rows as dicts, river's convention: `learn_one` and `predict_one`."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedres.core.types import F32, F64, Matrix
from fedres.tables.cell_values import as_float
from fedres.tables.client_ids import NAMELESS, Clients, plain_id
from fedres.tables.dict_encoder import DictEncoder
from fedres.tables.encoder import Names
from fedres.tables.estimator import FedResEstimator, all_or_nothing
from fedres.tables.labels import Labels
from fedres.tables.online_models import SparseRow
from fedres.tables.prepared_rows import in_range


class OnlineEstimator(FedResEstimator):
    """An estimator that also learns from dicts, before or after any table."""

    _supervised: ClassVar[bool] = True  # river asks

    def learn_one(self, x: Mapping[str, Any], y: Any) -> None:
        """Learn from one row.

        After a table it equals `partial_fit` on that row. A model that begins with it hashes the
        names of features, learns their scale and that of the labels as it goes, and takes in new
        features and classes at any time.

        Parameters
        ----------
        x
            Features by name, with the client under the name that the parameter `client` holds.
        y
            The label.
        """
        self._refuse_batch()
        self._check_parameters()
        features, id_ = self._row(x, learn=True)
        offset = self._offset_of(features)
        label = self._check_label(y)
        with all_or_nothing(self):
            if not hasattr(self, "_models"):
                self.encoder_ = self._dict_encoder()
                self._labels, self._clients = self._no_labels(), Clients()
                self._begin_online()
            self._learn_row(features, id_, label, offset)

    def _dict_encoder(self) -> DictEncoder:
        shared, own = _names(self.global_features), _names(self.local_features)
        if self.method == "independent":
            own = ["*"] if shared is None else [*shared, *(own or [])]
        return DictEncoder(_names(self.categorical_features) or [], own, shared)

    def _learn_row(
        self, features: dict[str, Any], id_: Any, y: NDArray[Any], offset: F64 | None
    ) -> None:
        # All that may be refused comes before anything changes.
        encoder, labels = self.encoder_, self._labels
        x_global: Matrix | SparseRow
        x_local: Matrix | SparseRow
        if isinstance(encoder, DictEncoder):
            numbers = encoder.numbers_in(features)
            client = self._clients.learn_one(id_)
            encoder.see(numbers)
            for _ in range(labels.grow(y)):
                self._models.add_output()
            x_global, x_local = encoder.transform_one(features)
            targets, given = labels.targets(y), np.zeros((labels.outputs, 1))
        else:
            x_global, x_local = in_range(encoder.transform_one(features))
            targets, given = labels.targets(y), self._given(x_global, 1, offset)
            client = self._clients.learn_one(id_)
        self._learn((x_global, x_local), targets, np.array([client]), given)
        labels.see(y)

    def _score_one(self, x: Mapping[str, Any]) -> F32:
        """The sums of both models for one row, (outputs, 1)."""
        features, id_ = self._row(x, learn=False)
        client = np.array([self._clients.find_one(id_)])
        offset = self._offset_of(features)
        return self._sums(in_range(self.encoder_.transform_one(features)), client, offset)

    def _offset_of(self, features: dict[str, Any]) -> F64 | None:
        """The offset, which is then no feature."""
        if self.offset is None:
            return None
        offset = as_float(self.offset, features.pop(self.offset, None))
        if not np.isfinite(offset):
            raise ValueError(f"the row has no number under {self.offset!r}, which holds the offset")
        return np.array([offset])

    def _row(self, x: Mapping[str, Any], *, learn: bool) -> tuple[dict[str, Any], int | str]:
        """The features of a dict, and its client."""
        key = self.client or None
        features = {str(name): value for name, value in x.items() if name != key}
        id_ = None if key is None else x.get(key)
        if id_ is None:
            id_ = self._unnamed("the row", learn=learn) or NAMELESS
        return features, plain_id(id_)

    @abstractmethod
    def _check_label(self, y: Any) -> NDArray[Any]:
        """An array of one label."""

    @abstractmethod
    def _no_labels(self) -> Labels:
        """Labels of which none was seen yet."""


def _names(names: Names | None) -> list[str] | None:
    if names is None:
        return None
    return [names] if isinstance(names, str) else list(names)
