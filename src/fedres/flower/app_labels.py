"""What the labels of an app are to its models: numbers, -1 and 1, or the numbers of classes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedres.core.one_against_all import targets_of
from fedres.core.types import F32
from fedres.flower.app_settings import AppSettings


def labels(settings: AppSettings, y: Any) -> F32:
    """Labels as messages carry them.

    Examples
    --------
    >>> labels(AppSettings(1, 1, classes='["well", "ill"]'), np.array(["ill", "well"]))
    array([ 1., -1.], dtype=float32)
    >>> labels(AppSettings(1, 1, classes='["0", "1"]'), np.array([0.0, 1.0]))
    array([-1.,  1.], dtype=float32)
    >>> three = AppSettings(1, 1, classes='["a", "b", "c"]', loss="logistic")
    >>> labels(three, np.array(["c", "a"]))
    array([2., 0.], dtype=float32)
    >>> labels(AppSettings(1, 1, label_mean=10.0, label_scale=2.0), np.array([11, 12]))
    array([0.5, 1. ], dtype=float32)
    """
    if settings.classes:
        known = settings.class_names
        same: Callable[[Any], Any] = _number_or_text
        if len({same(name) for name in known}) < len(known):
            same = str  # such as 1 and 01
        codes = (-1, 1) if len(known) == 2 else range(len(known))
        code = {same(name): number for name, number in zip(known, codes, strict=True)}
        for label in y:
            if same(label) not in code:
                raise ValueError(
                    f"a label is {label!r}, and the classes are {', '.join(map(repr, known))}: "
                    "remove such rows"
                )
        return np.array([code[same(label)] for label in y], np.float32)
    try:
        numbers = np.asarray(y, np.float64)
    except ValueError:
        raise ValueError(f"labels must be numbers, and one is {y[0]!r}") from None
    return ((numbers - settings.label_mean) / settings.label_scale).astype(np.float32)


def _number_or_text(label: Any) -> float | str:
    """A label by its meaning: one clinic writes 0, another 0.0."""
    try:
        return float(str(label))
    except ValueError:
        return str(label)


def unfit(settings: AppSettings, y: F32) -> F32:
    """Those labels that no row of the app can have."""
    if settings.outputs > 1:
        fine = (y % 1 == 0) & (y >= 0) & (y < settings.outputs)
    else:
        fine = (settings.label_low <= y) & (y <= settings.label_high)
        if (only := settings.rule.loss.of_sum.labels) is not None:
            fine &= np.isin(y, only)
    return np.asarray(y[~fine], np.float32)


def targets(settings: AppSettings, y: F32) -> F32:
    """What each output is to predict: (outputs, rows)."""
    return y[None] if settings.outputs == 1 else targets_of(y, np.arange(settings.outputs))


def accuracy(settings: AppSettings, joint: F32, y: F32) -> float | None:
    """The share of rows whose class is predicted, by (outputs, rows); None of numbers."""
    if not settings.classes:
        return None
    guess = joint.argmax(axis=0) if settings.outputs > 1 else np.where(joint[0] > 0, 1, -1)
    return float((guess == y).mean())
