"""The NumPy primitives and the compiled ones give the same bits, whatever the lengths of rows."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedres.core import elementary, primitives
from fedres.core.compiled import compiled
from fedres.core.primitives import Models, View
from fedres.core.sgd import new_models

ROWS, CLIENTS, BLOCKS = 4, 2, 2


class Case:
    """Two clients with two models each (blocks of weights, one after another) and four rows."""

    def __init__(self, width, sparse, constant, seed):
        rng = self.rng = np.random.default_rng(seed)
        self.width, self.constant = width, np.float32(constant and width > 0)
        self.models = new_models(np.full(CLIENTS, BLOCKS * width), constant, (-np.inf, np.inf))
        self.models.weights[:] = self.some(len(self.models.weights))
        self.models.squares[:] += abs(self.some(len(self.models.squares)))
        widths, start = np.full(CLIENTS, width), np.zeros(CLIENTS, np.int64)
        if sparse:
            rows = [np.flatnonzero(rng.random(width) < rng.random()) for _ in range(ROWS)]
            indices = np.concatenate(rows).astype(np.int32)
            ends = np.cumsum([0, *map(len, rows)])
            self.view = View(self.some(len(indices)), indices, ends, start, widths, True)
        else:
            nothing = np.empty(0, np.int64)
            values = self.some(ROWS * width)
            self.view = View(values, nothing.astype(np.int32), nothing, start, widths, False)
        self.m, self.row, self.block = map(int, rng.integers([CLIENTS, ROWS, BLOCKS]))
        self.at = self.m, self.view, self.m, self.row, self.block

    def some(self, count=None):
        """Numbers of many magnitudes, zero among them."""
        large = 10 ** self.rng.uniform(-3, 3, count)
        return np.float32(self.rng.normal(size=count) * large * (self.rng.random(count) < 0.9))

    def both(self, function, *arguments):
        """What either leaves of the models, and what it returns."""
        found = []
        for run in (function, compiled(function)):
            models = Models(*(array.copy() for array in self.models))
            found.append((run(models, *arguments), models))
        return found


cases = st.builds(
    Case, st.integers(0, 70), st.booleans(), st.booleans(), st.integers(0, 2**31)
)  # fmt: skip


def assert_same(one, two):
    assert np.asarray(one, np.float32).tobytes() == np.asarray(two, np.float32).tobytes()


@given(cases)
def test_predict_row(case):
    (numpy, _), (numba, _) = case.both(primitives.predict_row, *case.at)
    assert_same(numpy, numba)


@given(cases)
def test_predict_rows(case):
    m, view, i, *_ = case.at
    rows, blocks = np.int32(case.rng.integers([[ROWS], [BLOCKS]], size=(2, 5)))
    for predict in (primitives.predict_rows, compiled(primitives.predict_rows)):
        out = np.zeros(5, np.float32)
        predict(case.models, m, view, i, rows, blocks, 1, 4, out)
        one_by_one = [
            primitives.predict_row(case.models, m, view, i, rows[c], blocks[c]) for c in (1, 2, 3)
        ]
        assert_same(out, [0, *one_by_one, 0])


@given(cases)
def test_zeros_keep_their_sign(case):
    """So that a row of zeros gives the same bits whatever its width."""
    case.view.values[:] = 0
    (numpy, _), (numba, _) = case.both(primitives.predict_row, *case.at)
    assert_same(numpy, numba)


@given(cases)
def test_a_prediction_is_the_inner_product(case):
    """In whatever order it is added."""
    x = np.zeros(case.width)
    values, places = primitives._row(case.view, case.m, case.row)
    x[places] = values
    w = np.float64(case.models.weights.reshape(CLIENTS, -1)[case.m])
    begin = case.block * case.width
    products = np.append(x * w[begin : begin + case.width], case.constant * w[-1])
    found = primitives.predict_row(case.models, *case.at)
    assert found == pytest.approx(products.sum(), rel=1e-5, abs=1e-5 * abs(products).sum() + 1e-30)


@given(cases)
def test_descend_row(case):
    (_, numpy), (_, numba) = case.both(primitives.descend_row, *case.at, case.some())
    assert_same(numpy.weights, numba.weights)


@given(cases)
def test_adapt_row(case):
    numbers = case.some(), np.float32(case.rng.random()), np.float32(0.3)
    (_, numpy), (_, numba) = case.both(primitives.adapt_row, *case.at, *numbers)
    assert_same(numpy.weights, numba.weights)
    assert_same(numpy.squares, numba.squares)


@given(cases, st.integers(1, 5))
def test_adapt_mean_and_add_to_sums(case, count):
    rows = case.rng.integers(ROWS, size=count).astype(np.int32)
    slopes, weight = case.some(count), np.float32(case.rng.random())
    found = []
    for compile_ in (lambda function: function, compiled):
        add, adapt = compile_(primitives.add_to_sums), compile_(primitives.adapt_mean)
        models = Models(*(array.copy() for array in case.models))
        sums = np.zeros(BLOCKS * case.width + 1, np.float32)
        for row, slope in zip(rows, slopes, strict=True):
            add(sums, models.constant[case.m], case.view, case.m, row, slope)
        summed = sums.copy()
        where = case.m, case.view, case.m, rows, 0, count
        adapt(models, *where, weight, np.float32(0.3), sums)
        assert not sums.any()
        found.append(np.concatenate([summed, models.weights, models.squares]))
    assert_same(*found)


@given(cases, st.sampled_from([0.0, 0.5, 100.0, 1e9]))
def test_project(case, radius):
    (_, numpy), (_, numba) = case.both(primitives.project, case.m, np.float32(radius))
    assert_same(numpy.weights, numba.weights)
    inside = np.float64(numpy.weights.reshape(CLIENTS, -1)[case.m])
    assert np.linalg.norm(inside) <= radius * (1 + 1e-5)


@given(cases)
def test_copy_model(case):
    (_, numpy), (_, numba) = case.both(primitives.copy_model, case.m, 1 - case.m)
    assert_same(numpy.weights, numba.weights)
    assert_same(*numpy.weights.reshape(CLIENTS, -1))


@given(st.floats(-700, 700))
@example(-700.0)
@example(0.0)
@example(700.0)
def test_exp(x):
    found = elementary.exp(x)
    assert found == pytest.approx(math.exp(x), rel=1e-14, abs=0)
    assert found == compiled(elementary.exp)(x) == elementary.exp(np.array([x]))[0]


@pytest.mark.parametrize("x", [-np.inf, -800.0, 800.0, np.inf])
def test_exp_brings_what_lies_beyond_to_its_ends(x):
    assert (
        elementary.exp(x) == elementary.exp(math.copysign(700.0, x)) == compiled(elementary.exp)(x)
    )


@given(st.floats(0, 1, allow_subnormal=False))
@example(1.0)
def test_log1p(x):
    found = elementary.log1p(x)
    assert found == pytest.approx(math.log1p(x), rel=1e-14, abs=0)
    assert found == compiled(elementary.log1p)(x) == elementary.log1p(np.array([x]))[0]


@given(st.integers(1, 10**6), st.floats(-1, 1))
def test_power(base, exponent):
    found = elementary.power(base, exponent)
    assert found == pytest.approx(base**exponent, rel=1e-14, abs=0)
    assert found == compiled(elementary.power)(base, exponent)
