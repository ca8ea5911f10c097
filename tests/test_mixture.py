"""Clients that mix experts: exact numbers, the bound for every sequence, and whole runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedres
from fedres.core import elementary
from fedres.core.compiled import compiled
from fedres.core.losses import LOGISTIC, LOSSES, SQUARED
from fedres.core.mixture import mix, mix_rows, new_mixture
from fedres.core.theory import mixture_bound
from fedres.simulation.regret import rows_seen
from fedres.simulation.settings import SGD_METHODS

LABELS = (-1.0, 3.0)


def said(*predictions):
    return np.array(predictions, np.float32).reshape(-1, 1)


def predicted(mixture, experts):
    out = np.empty(1, np.float32)
    mix_rows(mixture, np.zeros(1, np.int64), experts, out)
    return out[0]


def told(mixture, experts, label):
    out = np.empty(1, np.float32)
    mix(mixture, experts, np.array([label], np.float32), out)


def weights(mixture):
    return (mixture.staying + mixture.moving)[:, 0]


def squared(experts, switching=0.0):
    return new_mixture(SQUARED.number, LABELS, 1, experts, switching)


def test_exp_of_nan_is_nan():
    assert np.isnan(elementary.exp(np.nan))
    assert np.isnan(elementary.exp(np.array([np.nan, 1.0]))[0])
    assert np.isnan(compiled(elementary.exp)(np.nan))


@given(st.floats(1e-300, 1e300))
def test_log(x):
    found = elementary.log(x)
    assert found == pytest.approx(math.log(x), rel=1e-14, abs=1e-16)
    assert found == compiled(elementary.log)(x)


@given(st.floats(0.125, 8, width=32).map(np.float32))
def test_log_of_middling(x):
    found = elementary.log_of_middling(x)
    assert isinstance(found, np.float32)
    assert found == pytest.approx(math.log(x), abs=5e-7)
    assert found == compiled(elementary.log_of_middling)(x)


@given(st.floats(-1, 1, width=32).map(np.float32))
def test_exp_of_small(x):
    found = elementary.exp_of_small(x)
    assert isinstance(found, np.float32)
    assert found == pytest.approx(math.exp(x), rel=4e-7)
    assert found == compiled(elementary.exp_of_small)(x)


@pytest.mark.parametrize("prediction", [-1.0, 0.5, 3.0])
def test_one_expert_is_followed(prediction):
    assert predicted(squared(1), said(prediction)) == pytest.approx(prediction, abs=1e-6)


def test_an_expert_beyond_all_labels_is_brought_back():
    assert predicted(squared(1), said(10.0)) == pytest.approx(3.0, abs=1e-6)


def test_weights_and_prediction_by_hand():
    # R = 4, eta = 1/8; losses 16 and 4 at the label 3: weights e^-2 and e^-0.5, over their sum.
    mixture, experts = squared(2), said(-1.0, 1.0)
    told(mixture, experts, 3.0)
    expected = np.exp([-2.0, -0.5]) / np.exp([-2.0, -0.5]).sum()
    np.testing.assert_allclose(weights(mixture), expected, rtol=1e-6)
    at_low = -8 * np.log(expected @ np.exp(np.array([0.0, -4.0]) / 8))
    at_high = -8 * np.log(expected @ np.exp(np.array([-16.0, -4.0]) / 8))
    assert predicted(mixture, experts) == pytest.approx(1 + (at_low - at_high) / 8, rel=1e-6)


def test_bayes_by_hand():
    # Two experts sure to 3/4 and 1/4 of the label 1, which comes: 5/8 after weights 3/4 and 1/4.
    mixture, experts = new_mixture(LOGISTIC.number, (-1, 1), 1, 2, 0.0), said(np.log(3), -np.log(3))
    assert predicted(mixture, experts) == pytest.approx(0, abs=1e-6)
    told(mixture, experts, 1.0)
    np.testing.assert_allclose(weights(mixture), [0.75, 0.25], rtol=1e-6)
    assert predicted(mixture, experts) == pytest.approx(np.log(5 / 3), rel=1e-6)


def test_of_the_moving_half_a_falling_share_is_dealt_out_again():
    # Likelihoods 3/4 and 1/4, weights 1/2 and 1/2: then 3/8 and 1/8 in each half, of which the
    # moving one deals out a half: 1/8 + 3/16 and 1/8 + 1/16.
    mixture, experts = new_mixture(LOGISTIC.number, (-1, 1), 1, 2), said(np.log(3), -np.log(3))
    told(mixture, experts, 1.0)
    np.testing.assert_allclose(mixture.staying[:, 0], [0.375, 0.125], rtol=1e-6)
    np.testing.assert_allclose(mixture.moving[:, 0], [0.3125, 0.1875], rtol=1e-6)
    told(mixture, experts, np.nan)  # no label, and nothing to learn
    np.testing.assert_allclose(mixture.moving[:, 0], [0.3125, 0.1875], rtol=1e-6)
    told(
        mixture, experts, 1.0
    )  # 3 x 5/16 and 1 x 3/16 of a half and a sixteenth, a third dealt out
    total = 3 * (0.375 + 0.3125) + 0.125 + 0.1875
    moved = np.array([3 * 0.3125, 0.1875]) / total
    expected = 2 / 3 * moved + 1 / 3 * moved.mean()
    np.testing.assert_allclose(mixture.moving[:, 0], expected, rtol=1e-6)


numbers = st.floats(-8, 8, width=32)
rounds_of = st.integers(1, 4).flatmap(
    lambda experts: st.lists(st.tuples(*[numbers] * (experts + 1)), min_size=1, max_size=60)
)


@given(rounds_of, st.sampled_from(["squared", "logistic"]), st.sampled_from([None, 0.0, 0.1]))
def test_no_sequence_exceeds_the_bound(sequence, loss, switching):
    *experts, labels = np.array(sequence, np.float32).T
    loss, reach = LOSSES[loss], None
    if loss is SQUARED:
        labels, reach = np.clip(labels, *LABELS), LABELS[1] - LABELS[0]
    else:
        labels = np.where(labels > 0, 1, -1).astype(np.float32)
    experts, out = np.stack(experts), np.empty_like(labels)
    mixture = new_mixture(loss.number, LABELS, 1, len(experts), switching)
    mix(mixture, experts, labels, out)
    lost = loss.value(out.astype(float), labels).sum()
    best = loss.value(experts.astype(float), labels).sum(axis=1).min()
    bound = mixture_bound(len(experts), reach, switching=switching)
    assert lost <= best + bound + 1e-5 * len(labels)
    assert weights(mixture).sum() == pytest.approx(1)


@given(st.lists(st.sampled_from(LABELS), min_size=2, max_size=60), st.none() | st.floats(0.01, 0.5))
def test_the_best_sequence_of_experts_is_followed(labels, switching):
    experts = np.tile(np.float32(LABELS)[:, None], len(labels))  # one of them is always right
    labels, out = np.array(labels, np.float32), np.empty(len(labels), np.float32)
    mix(squared(2, switching), experts, labels, out)
    switches = int((np.diff(labels) != 0).sum())
    options = {"switching": switching, "samples": len(labels), "switches": switches}
    assert ((out - labels) ** 2).sum() <= mixture_bound(2, 4.0, **options) + 1e-4


@pytest.mark.parametrize("switching", [None, 0.05])
def test_where_no_weight_moves_a_late_change_is_not_followed(switching):
    experts = np.tile(np.float32(LABELS)[:, None], 200)
    labels, out = np.repeat(np.float32(LABELS), 100), np.empty((2, 200), np.float32)
    for row, share in zip(out, (0.0, switching), strict=True):
        mix(squared(2, share), experts, labels, row)
    stuck, following = ((out - labels) ** 2).sum(axis=1)
    assert stuck > 5 * following


@pytest.fixture(scope="module")
def federation():
    return fedres.federate("digits", clients=10, seed=0, local="all")


def test_a_mixture_is_made_of_the_three_methods(federation):
    mixed = fedres.simulate(federation, "mixture", rounds=60, delay=4, residual_bits=4)
    alone = fedres.simulate(federation, "independent", rounds=60)
    central = fedres.simulate(federation, "central", rounds=60, delay=4)
    both = fedres.simulate(federation, rounds=60, delay=4, residual_bits=4)
    for run, expert in zip((alone, central, both), SGD_METHODS, strict=True):
        np.testing.assert_array_equal(run.predictions, mixed.experts[expert].predictions)
    assert mixed.bytes_up == both.bytes_up
    assert mixed.bytes_down == both.bytes_down + central.bytes_down
    assert mixed.expert_weights.shape == (10, 3)
    np.testing.assert_allclose(mixed.expert_weights.sum(axis=1), 1)
    low, high = federation.label_values[[0, -1]]
    assert low - 1e-6 <= mixed.predictions.min() < mixed.predictions.max() <= high + 1e-6


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_no_client_loses_more_than_its_best_expert_and_the_bound(federation, loss):
    mixed = fedres.simulate(federation, "mixture", rounds=60, loss=loss)
    lost = np.stack([run.loss_by_client for run in mixed.experts.values()]).min(axis=0)
    bound = mixture_bound(3, 2 if loss == "squared" else None)
    assert (60 * (mixed.loss_by_client - lost) <= bound + 1e-4).all()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_compiled_and_not_compiled_have_the_same_bits(federation, loss):
    options = {"rounds": 20, "loss": loss, "switching": 0.1}
    fast = fedres.simulate(federation, "mixture", **options)
    slow = fedres.simulate(federation, "mixture", **options, compiled=False)
    np.testing.assert_array_equal(fast.predictions, slow.predictions)
    np.testing.assert_array_equal(fast.test_predictions, slow.test_predictions)
    np.testing.assert_array_equal(fast.expert_weights, slow.expert_weights)


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC])
def test_losses_are_those_of_the_predictions_where_clients_rest(loss):
    rng = np.random.default_rng(0)
    x, client = rng.normal(size=(30, 3)), np.repeat(["ann", "bob"], [20, 10])
    y = rng.normal(size=30)
    own = fedres.Federation.from_arrays(x, x, np.sign(y) if loss is LOGISTIC else y, client)
    run = fedres.simulate(own, "mixture", shuffle=False, client_weight=[1, 2], loss=loss)
    y = [own.train.y[:20], own.train.y[20:]]
    losses = [
        loss.value(row[np.isfinite(row)], labels)
        for row, labels in zip(run.predictions, y, strict=True)
    ]
    np.testing.assert_allclose(run.loss_by_client, [part.mean() for part in losses], rtol=1e-6)
    assert run.loss == pytest.approx((losses[0].sum() + 2 * losses[1].sum()) / 40)


def test_what_a_mixture_cannot_take_is_refused(federation):
    with pytest.raises(ValueError, match="mixture takes no initial models"):
        fedres.simulate(federation, "mixture", rounds=2, initial_global=np.zeros(32))
    with pytest.raises(ValueError, match="switching must be from 0 to less than 1, not 1"):
        fedres.simulate(federation, "mixture", rounds=2, switching=1)
    with pytest.raises(ValueError, match=r"fedres does not know switching=0\.1"):
        fedres.simulate(federation, "fedres", rounds=2, switching=0.1)


def test_who_is_worse_off_than_alone_is_said():
    found = fedres.compare("digits", clients=20, seeds=3, rounds=100)
    fewer, more = found.worse_off("mixture"), found.worse_off("fedres")
    assert fewer < more
    assert f"{more:.1%} of clients with FedRes" in found.hurt()
    assert found.worse_off("independent") == 0
    losses = {method: found.score(method, "loss").mean for method in found.outcomes}
    assert min(losses, key=losses.get) == "mixture"


def test_a_sweep_runs_mixtures(federation):
    table = fedres.sweep("digits", ["mixture"], [10], [4], seeds=1, rounds=60, local="all")
    assert table.loss[0] == fedres.simulate(federation, "mixture", rounds=60, delay=4).loss


def test_the_demo_shows_what_the_software_is_for():
    """Shops with little data each, alike and yet different: both models beat either one."""
    found = fedres.compare("shops", clients=50, seeds=3, rounds=100)
    loss = {method: found.score(method, "loss").mean for method in found.outcomes}
    assert loss["mixture"] < loss["fedres"] < 0.9 * loss["central"] < loss["independent"]
    gains = [found.gain_over(method) for method in ("independent", "central")]
    assert all(gain.mean - gain.half > 0.03 for gain in gains)


def test_for_new_rows_a_row_counts_once_however_often_it_came(federation):
    """As if weights had been learned with as much smaller an eta."""
    runs = {passes: fedres.simulate(federation, "mixture", passes=passes) for passes in (1, 5)}
    for passes, run in runs.items():
        tested = np.stack([expert.test_predictions for expert in run.experts.values()])
        labels = federation.train.y[rows_seen(federation, run.settings)].T
        mixture = new_mixture(SQUARED.number, (-1.0, 1.0), 10, 3)
        experts = np.stack([expert.predictions.T.ravel() for expert in run.experts.values()])
        mix(mixture, experts, labels.ravel(), np.empty(labels.size, np.float32))
        halves = np.stack([mixture.staying, mixture.moving]) ** (1 / passes)
        weight = (halves / halves.sum(axis=(0, 1))).sum(axis=0)
        who = np.repeat(np.arange(10), federation.test.counts)
        s = np.clip(tested, -1, 1)
        high, low = (
            (weight[:, who] * np.exp(-((end - s) ** 2) / 2)).sum(axis=0) for end in (1, -1)
        )
        np.testing.assert_allclose(run.test_predictions, np.log(high / low) / 2, atol=1e-5)
