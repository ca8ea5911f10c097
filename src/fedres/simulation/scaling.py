"""The same data set with its features on another scale: what step sizes mean depends on it."""

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from fedres.core.types import F32
from fedres.simulation.dataset import Dataset, load_data, read_files
from fedres.simulation.known_sets import SETS
from fedres.simulation.settings import choose

Scale = Literal["given", "raw", "0..1", "-1..1"]
SCALES: tuple[Scale, ...] = get_args(Scale)


def scaled_data(name: str, scale: Scale = "given") -> Dataset:
    """A data set as it is ``given``, ``raw``, or feature by feature between two numbers.

    The least and the greatest value of a feature in the training rows become 0 and 1, or -1 and 1;
    a feature that never changes becomes 0. For ``raw``, an unscaled file has to be in the data
    folder: LIBSVM's own, or ``NAME.raw.train.libsvm`` (and ``NAME.raw.test.libsvm``).

    Examples
    --------
    >>> digits = scaled_data("digits", "-1..1")
    >>> float(digits.x.min()), float(digits.x.max())
    (-1.0, 1.0)
    """
    choose("scale", scale, SCALES)
    data = load_data(name)
    if scale == "given":
        return data
    if data.deal is not None:
        raise ValueError(f"{data.name} has one scale only: leave it as given")
    if scale == "raw":
        raw = (
            read_files(SETS[data.name], SETS[data.name].raw_sources) if data.name in SETS else None
        )
        if raw is None:
            raise ValueError(
                f"there are no unscaled features of {data.name}: put {data.name}.raw.train.libsvm "
                "into the folder FEDRES_DATA"
            )
        return replace(raw, note=data.note)
    low, high = (float(end) for end in scale.split(".."))
    least, most = data.x.min(axis=0), data.x.max(axis=0)
    if np.isin(least, (low, high)).all() and np.isin(most, (low, high)).all():
        return data

    def scaled(x: F32) -> F32:
        span = np.where(most > least, most - least, 1)
        between = low + (high - low) * (x - least) / span
        return np.where(most > least, between, 0).astype(np.float32)

    x_test = None if data.x_test is None else scaled(data.x_test)
    return replace(data, x=scaled(data.x), x_test=x_test)
