"""What a local model has to be able to do, and rows as other libraries want them."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedres.core.types import F32, Matrix


class LocalLearner(Protocol):
    """A local model: it predicts, and learns what the global model leaves over.

    Rows are what a client was given: dense float32 or CSR, one or more at a time.

    Examples
    --------
    The mean of what was left over so far:

    >>> class Mean:
    ...     loss = "squared"
    ...     total, rows = 0.0, 0
    ...     def predict(self, x):
    ...         return np.full(x.shape[0], self.total / max(self.rows, 1))
    ...     def learn(self, x, y, offset):
    ...         self.total += (y - offset).sum()
    ...         self.rows += len(y)
    >>> mean: LocalLearner = Mean()
    >>> mean.learn(np.ones((2, 1)), y=np.float32([3.0, 5.0]), offset=np.float32([1.0, 1.0]))
    >>> mean.predict(np.ones((1, 1)))
    array([3.], dtype=float32)
    """

    @property
    def loss(self) -> str:
        """Name of the loss that `learn` makes smaller; it has to be the federation's."""

    def predict(self, x: Matrix) -> ArrayLike:
        """One finite number a row: f(x^l; w_i). Learns nothing."""

    def learn(self, x: Matrix, y: F32, offset: F32) -> None:
        """Learn from rows, so that `offset + predict(x)` comes nearer to `y`.

        The offset is what the global model said. For the squared loss, to come nearer is to
        learn the target `y - offset`.
        """


def entries(x: Matrix) -> Iterator[tuple[list[int], list[float]]]:
    """The columns and values of each row; of CSR rows, those stored.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> list(entries(csr_array([[0.0, 2.0], [3.0, 0.0]])))
    [([1], [2.0]), ([0], [3.0])]
    """
    if isinstance(x, np.ndarray):
        columns = list(range(x.shape[1]))
        for row in x.tolist():
            yield columns, row
    else:
        for begin, end in pairwise(x.indptr):
            yield x.indices[begin:end].tolist(), x.data[begin:end].tolist()
