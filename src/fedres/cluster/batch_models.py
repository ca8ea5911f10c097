"""A model of any number of clients, of which each batch of rows is given what its clients need."""

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedres.cluster.client_keys import Distinct, keys_of
from fedres.cluster.memory import batch_rows
from fedres.cluster.row_progress import with_rate
from fedres.reading.formats import BATCH_ROWS
from fedres.reading.table_files import TableFiles
from fedres.tables.client_ids import ClientWarning, predicted_by, warn_unknown
from fedres.tables.estimator import FedResEstimator
from fedres.tables.read_table import client_ids
from fedres.tables.storage import open_folder
from fedres.tables.stored_estimator import with_clients, without_clients
from fedres.tables.unseen import Unseen, UnseenWarning

if TYPE_CHECKING:
    import pandas as pd


class Batch(NamedTuple):
    """Some rows, and a model that knows their clients.

    Attributes
    ----------
    path, frame
        The file and its rows, all columns that were asked for.
    model
        What predicts them.
    client
        The client of every row, for the model; False where rows have none.
    """

    path: str
    frame: "pd.DataFrame"
    model: FedResEstimator
    client: Any


class BatchModel:
    """A stored model; of its local ones, those are read that a batch needs.

    Attributes
    ----------
    model
        What all clients share.
    rows, unseen_rows
        How many rows there were, and how many of them had a client that the model does not know.
    missing_rows
        How many rows had no client.
    unseen
        About how many clients these were.
    example
        One of them.
    names_clients
        Whether the table has the column of clients.
    new_values
        How many rows had other values that training never saw.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._stored = open_folder(Path(folder).expanduser())
        self.model, self._global = without_clients(self._stored)
        self._are_texts = "ids_text" in self._stored.arrays("clients")
        self.rows = self.unseen_rows = self.missing_rows = 0
        self.names_clients = True
        self.unseen, self.example = Distinct(), None
        self.new_values = Unseen()

    def batches(
        self,
        parts: TableFiles,
        columns: Sequence[str] | None,
        memory: int | None = None,
        progress: str | None = None,
    ) -> Iterator[Batch]:
        """Rows of a table in batches, each with a model of its clients.

        Parameters
        ----------
        parts
            The table.
        columns
            Those to be read, if they are there; None for all.
        memory
            Bytes that may be taken; None for enough.
        progress
            What to write before a progress bar; None for no bar.
        """
        if columns is not None:
            columns = [name for name in parts.names if name in columns]
        rows = BATCH_ROWS if memory is None else batch_rows(memory)
        named = self.model.client if self.model.client in (columns or parts.names) else None
        self.names_clients = named is not None
        batches = parts.batches(columns, rows, categories=True)
        sized = (((file, frame), len(frame)) for file, frame in batches)
        for file, frame in with_rate(sized, parts.count(), progress):
            ids: Any = False
            if named is not None:
                kind = np.empty(0, object if self._are_texts else np.int64)
                ids = client_ids(frame[named], kind)
            model = self._knowing(ids)
            self.rows += len(frame)
            with warnings.catch_warnings():
                # `warn_unknown` counts the rows of all batches.
                warnings.simplefilter("ignore", ClientWarning)
                warnings.simplefilter("ignore", UnseenWarning)
                needed = [*getattr(model, "feature_names_in_", ())]
                if needed and {*needed} <= {*frame}:
                    self.new_values.add(Unseen.of(model.encoder_, frame[needed]))
                yield Batch(file.name, frame, model, ids)

    def warn_unknown(self) -> None:
        """Warn of rows in all batches so far whose clients or values training never saw."""
        self.new_values.warn()
        if self.is_personal:
            unknown, missing = self.unseen_rows, self.missing_rows
            how = predicted_by(self.model.method)
            warn_unknown(self.rows, unknown, missing, self.example, how)

    @property
    def is_personal(self) -> bool:
        """Whether predictions depend on the client."""
        many = len(self._stored.mapped("clients", "ids_key")) > 1
        return many and self.model.method != "central"

    def _knowing(self, ids: Any) -> FedResEstimator:
        """The model with those of these clients that it knows."""
        import pandas as pd

        distinct = np.empty(0, object)
        if ids is not False:
            codes, uniques = pd.factorize(ids)
            distinct = np.asarray(uniques)
            self.missing_rows += int((codes < 0).sum())
            if not self._are_texts:
                whole = np.array([not isinstance(id_, str) for id_ in distinct.tolist()], bool)
                sought = np.where(whole, distinct, 0).astype(np.int64)
                rows = np.where(whole, self._stored.find_all("clients", sought), -1)
            else:
                rows = self._stored.find_all("clients", distinct)
            new = rows < 0
            if new.any():
                self.unseen_rows += int(new[codes[codes >= 0]].sum())
                self.example = distinct[new].tolist()[0]
                self.unseen.see(keys_of(pd.Series(distinct[new].astype(str)), False).keys)
            distinct, rows = distinct[~new], rows[~new]
        else:
            rows = np.empty(0, np.int64)
        return with_clients(copy(self.model), self._stored, self._global, distinct.tolist(), rows)
