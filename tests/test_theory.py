from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedres.core import theory
from fedres.paper import erratum

BALL = {"sigma": 0.5, "gamma": 3.0, "radius": 2.0}
SHAPE = theory.Problem(norm_global=2.0, norm_local=1.0, gradient=1.5, **BALL)
WIDTHS = {"width_global": 5, "width_local": 2, **BALL}


def test_sgd_bound_by_hand():
    # W = 4 + 5; sqrt(9 / 4 / 5000) + (3 * 16 * 9 / 4 * 64)^(1/3) / 100 + 2 * 1.5 * 8 / 1000
    expected = np.sqrt(9 / 4 / 5000) + (108 * 64) ** (1 / 3) / 100 + 0.024
    assert theory.sgd_bound(1000, 5, 8, SHAPE) == pytest.approx(expected)


def test_batches_add_to_the_delay():
    assert theory.sgd_bound(1000, 5, 8, SHAPE, batch=4) == theory.sgd_bound(1000, 5, 12, SHAPE)


def test_step_sizes_by_hand():
    plain = np.sqrt(9 / (5000 * 0.25))
    assert theory.sgd_step_size(1000, 5, 0, SHAPE) == pytest.approx((plain, plain))
    late = np.cbrt(4 / (3 * 2.25 * 64 * 1000))
    assert theory.sgd_step_size(1000, 5, 8, SHAPE) == pytest.approx((late / 5, late))
    # batches of 4: 250 rounds, variance 1/16, delay 3
    late = np.cbrt(4 / (3 * 2.25 * 9 * 250))
    batched = theory.sgd_step_size(1000, 5, 8, SHAPE, batch=4)
    assert batched == pytest.approx((late / 5, min(np.sqrt(9 / (250 * 5 / 16)), late)))


def test_full_bound_by_hand():
    expected = (4 / 0.1 + 5 / 0.2) / 5000 + 0.3 / 4 + 3 * 2.25 * 64 * (0.25 + 0.04) + 0.024
    assert theory.sgd_full_bound(1000, 5, 8, SHAPE, 0.1, 0.2) == pytest.approx(expected)


@given(
    rounds=st.integers(10, 10**7),
    clients=st.integers(1, 2000),
    delay=st.integers(0, 5000),
    share=st.floats(0.0, 1.0),
    others=st.tuples(*[st.floats(0.01, 100)] * 4),
)
def test_with_the_pair_the_full_bound_is_within_four_times_that_of_theorem_2(
    rounds, clients, delay, share, others
):
    names = ("sigma", "gamma", "radius", "gradient")
    shape = dict(zip(names, others, strict=True))
    problem = theory.Problem(shape["radius"], share * shape["radius"], **shape)
    run = rounds, clients, delay
    pair = theory.sgd_step_size(*run, problem)
    stated = theory.sgd_bound(*run, problem)
    assert theory.sgd_full_bound(*run, problem, *pair) <= 4.0001 * stated


def test_with_one_step_size_it_grows_with_the_clients():
    """Whatever that one step size is: the best of them is not much better than the paper's."""
    run = erratum.ROUNDS, 500, erratum.DELAY
    stated = theory.sgd_bound(*run, erratum.PROBLEM)
    best = min(
        theory.sgd_full_bound(*run, erratum.PROBLEM, eta, eta) for eta in np.geomspace(1e-8, 1, 999)
    )
    table = erratum.bound_ratios().set_index("clients")
    assert table["one step size"][500] == pytest.approx(best / stated, rel=0.1)
    growth = table["one step size"][500] / table["one step size"][50]
    assert growth == pytest.approx(10 ** (2 / 3), rel=0.05)
    assert table["the pair"].between(2, 4).all()


def test_the_page_has_the_numbers():
    page = (Path(__file__).parents[1] / "docs" / "theory.md").read_text(encoding="utf-8")
    for row in erratum.bound_ratios().itertuples(index=False):
        clients, stated, one, ratio_one, eta, local_eta, ratio_pair = row
        line = f"| {clients} | {stated:.4f} | {one:.1e} | {ratio_one:.1f} |"
        assert f"{line} {eta:.1e} | {local_eta:.1e} | {ratio_pair:.1f} |" in page


def test_erm_bound_by_hand():
    # 5 + 3 * 2 = 11 weights, 1 + D^2 gamma = 13
    expected = np.sqrt(11 / 4 / 30_000) + 13 * (16 / 10_000) ** 0.75 + (13 * 16 + 11) / 10_000
    assert theory.erm_bound(10_000, 3, 16, **WIDTHS) == pytest.approx(expected)


def test_bandit_bound_by_hand():
    # W = 9, gamma D^4 G^2 = 108, D G = 3, K = 2
    expected = (
        (16 * 9 / 4 / (5 * 4096)) ** 0.2
        + (64 * 108) ** 0.125 / 8
        + (2 * (108 * 9) ** (1 / 6) + 12 ** (1 / 3)) / 16
        + 2 * np.sqrt(9 / 4096)
    )
    assert theory.bandit_bound(4096, 5, 2, 3, SHAPE) == pytest.approx(expected)


def test_explore_every_by_hand():
    first = (5 * 10**8 / (16 * 9 / 4)) ** 0.2
    second = 100 / (64 * 108) ** 0.125
    third = np.cbrt(10**8 / 12)
    assert theory.explore_every(10**8, 5, 2, SHAPE) == round(min(first, second, third)) == 27
    assert theory.explore_every(10, 5, 20, SHAPE) == 1


@pytest.mark.parametrize(
    ("bound", "slope"),
    [
        (lambda t, tau: theory.sgd_bound(t, 5, tau, SHAPE), -1 / 2),
        (lambda t, tau: theory.erm_bound(t, 5, tau, **WIDTHS), -1 / 2),
        (lambda t, tau: theory.bandit_bound(t, 5, 4, tau, SHAPE), -1 / 5),
    ],
    ids=["sgd", "erm", "bandit"],
)
def test_the_delay_moves_only_lower_order_terms(bound, slope):
    late = [bound(10**k, 50) / bound(10**k, 0) for k in (4, 12, 60)]
    assert late == sorted(late, reverse=True)
    assert late[-1] == pytest.approx(1, abs=1e-2)
    fitted = np.log(bound(10**61, 50) / bound(10**60, 50)) / np.log(10)
    assert fitted == pytest.approx(slope, abs=0.01)


def test_sharing_beats_learning_alone():
    """The global model costs all clients together what it would cost each of them alone."""
    many = theory.sgd_bound(1000, 50, 0, SHAPE)
    alone = theory.sgd_bound(1000, 1, 0, SHAPE)
    assert many == pytest.approx(alone * np.sqrt((4 / 50 + 1) / (4 + 1)))


def test_norms_a_client():
    each = replace(SHAPE, norm_local=[1.0, 2.0, 0.0])
    assert theory.sgd_bound(100, 3, 0, each) == pytest.approx(np.sqrt(9 / 4 / 300))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": -1}, "sigma must be a number from 0 up, not -1"),
        ({"radius": 0}, "radius must be a positive number, not 0"),
        ({"gamma": np.nan}, "gamma must be a positive number, not nan"),
        ({"norm_local": [1.0, 2.0]}, "norm_local has 2 values for 3 clients"),
        ({"norm_local": -2.0}, "norm_local must be a number from 0 up, not -2.0"),
        ({"norm_local": 0.0, "norm_global": 0.0}, "all 0"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        theory.sgd_bound(100, 3, 0, replace(SHAPE, **change))
