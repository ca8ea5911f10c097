"""Vowpal Wabbit as a local learner."""

import re
from typing import Any

from fedres.core.extras import require
from fedres.core.types import F32, Matrix
from fedres.learners.local_learner import entries


class VowpalLearner:
    """A Vowpal Wabbit workspace that learns from simple labels.

    What the global model says enters as VW's ``initial`` label: so VW takes its loss, and clips,
    at the joint prediction. Features are numbered from 0, in a namespace ``l``.

    Parameters
    ----------
    arguments
        VW's command line, such as ``"--adaptive -l 0.5 -q ll"``, or a `vowpalwabbit.Workspace`.

    Examples
    --------
    >>> import numpy as np
    >>> learner = VowpalLearner("--adaptive -l 0.1")
    >>> x, y, offset = np.float32([[2.0]]), np.float32([1.0]), np.float32([0.25])
    >>> for _ in range(50):
    ...     learner.learn(x, y, offset)
    >>> round(learner.predict(x)[0], 2)
    0.75
    """

    def __init__(self, arguments: Any = "") -> None:
        self.workspace = _open(arguments) if isinstance(arguments, str) else arguments
        if self.workspace.get_label_type() != self.workspace.lSimple:
            raise ValueError(f"{self!r} does not learn from simple labels: it must be a regressor")
        loss = re.search(r"--loss_function (\w+)", self.workspace.get_arguments())
        self.loss = loss[1] if loss else "squared"

    def __repr__(self) -> str:
        return f"VowpalLearner('{self.workspace.get_arguments().strip()}')"

    def predict(self, x: Matrix) -> list[float]:
        """What the workspace says of every row, not clipped."""
        said = []
        for text in _examples(x):
            example = self.workspace.example(text)
            self.workspace.predict(example)
            said.append(example.get_partial_prediction())
            self.workspace.finish_example(example)
        return said

    def learn(self, x: Matrix, y: F32, offset: F32) -> None:
        """Learn row by row, with importance 1."""
        for text, label, initial in zip(_examples(x), y, offset, strict=True):
            example = self.workspace.example(f"{label:.9g} 1 {initial:.9g} {text}")
            self.workspace.learn(example)
            self.workspace.finish_example(example)


def _open(arguments: str) -> Any:
    require("vw", "VowpalLearner")
    from vowpalwabbit import Workspace

    try:
        return Workspace(f"{arguments} --quiet")
    except RuntimeError as error:
        raise ValueError(f"Vowpal Wabbit does not take {arguments!r}: {error}") from None


def _examples(x: Matrix) -> list[str]:
    return [
        "|l " + " ".join(f"{j}:{value:.9g}" for j, value in zip(*row, strict=True))
        for row in entries(x)
    ]
