"""`fedres.load`: models that were saved, and data sets."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedres.simulation.dataset import Dataset
from fedres.simulation.dataset import load as load_data
from fedres.tables.storage import open_folder
from fedres.tables.storage.index import NAME

if TYPE_CHECKING:
    from fedres.tables.estimator import FedResEstimator


def load(name: str | PathLike[str], client: Any = None) -> "Dataset | FedResEstimator":
    """Return the model saved in a folder; or the data set of that name, or in that file.

    Parameters
    ----------
    name
        A folder that a model was saved in; the name of a set; or the path of a svmlight, CSV or
        Parquet file (see `fedres.load_data`).
    client
        Of a model, return what this client needs and read no other's weights: the global model
        and its own, which it can predict with and go on learning.

    Examples
    --------
    >>> load("digits").x.shape
    (1797, 64)
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from fedres import FedResRegressor
    >>> X, y, user = np.ones((4, 1)), [1.0, 2.0, 3.0, 4.0], ["ann", "ann", "bob", "bob"]
    >>> model = FedResRegressor().fit(X, y, client=user)
    >>> with TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     load(folder).clients_, load(folder, client="bob").clients_
    (['ann', 'bob'], ['bob'])
    """
    folder = Path(name).expanduser()
    if client is None and not (folder / NAME).exists():
        return load_data(name)
    from fedres.tables.stored_estimator import KINDS, restore

    stored = open_folder(folder)
    if stored.meta.get("kind") not in KINDS:
        raise ValueError(
            f"{folder} holds a {stored.meta.get('kind', 'model of an unknown kind')}, not a model "
            f"that can be loaded: those are {' and '.join(KINDS)}"
        )
    return restore(stored, client)
