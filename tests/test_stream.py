"""The stream is FedRes.SGD one row at a time, however the rows are cut and numbered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, hstack

import fedres
from fedres.core.losses import find_loss
from fedres.core.rule import Rule
from fedres.core.sgd import Linear, Message, apply, new_flight, new_models, predict
from fedres.core.sgd import learn as learn_local
from fedres.core.views import matrix_view
from fedres.tables.online_models import ModelShape, OnlineModels
from fedres.tables.weight_slots import Slots

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def rows_of(n=200, width_global=4, width_local=3, clients=5, seed=0, sparse=False, loss="squared"):
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=(n, width)).astype(np.float32) for width in (width_global, width_local)]
    if sparse:
        x = [csr_array(np.where(rng.random(one.shape) < 0.5, one, np.float32(0))) for one in x]
    y = rng.normal(size=n).astype(np.float32)
    return *x, rng.integers(0, clients, n), np.sign(y) if loss == "logistic" else y


def learn(x_global, x_local, client, y, width_local=3, **options):
    models = OnlineModels(ModelShape(x_global.shape[1], width_local, **options))
    return models, models.learn(models.rows(x_global, x_local, client), y[None])[0]


def by_the_core(x_global, x_local, client, y, loss="squared", eta=0.3, shrinkage=0.0):
    """Each row a message without delay; every client has a model of its own."""
    rule = Rule(fedres.Adaptive(eta, clip=False), find_loss(loss))
    clients = client.max() + 1
    terms, row_start = rule.terms(np.ones(clients, np.float32)), np.zeros(clients + 1, np.int64)
    xg, xl = matrix_view(x_global, row_start), matrix_view(x_local, row_start)
    # Streams have the constant of local models among the entries, which is a sum in another order.
    models = new_models(xg.width[:1], True, rule.reach), new_models(xl.width, False, rule.reach)
    models[1].squares[:] += np.float32(shrinkage)
    global_, local = (
        Linear(x, m, np.float32(eta), np.zeros(0, np.float32))
        for x, m in zip((xg, xl), models, strict=True)
    )
    flight, predictions = new_flight(1, 1, 1), []
    for k, i in enumerate(client):
        flight.row[0], flight.label[0] = k, y[k]
        message = Message(i, flight, 0, 1)
        predict(terms, global_, 0, local, message)
        predictions.append(flight.seen[0] + flight.own[0])
        learn_local(local, terms, message)
        apply(terms, global_, 0, 0, message)
    return predictions, models[0].weights, models[1].weights.reshape(clients, -1)[:, :-1]


def with_ones(x):
    return csr_array(hstack([csr_array(x), np.ones((x.shape[0], 1), np.float32)]))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shrinkage", [0.0, 10.0])
def test_is_fedres_without_delay_one_row_at_a_time(loss, sparse, shrinkage):
    x_global, x_local, client, y = rows_of(sparse=sparse, loss=loss)
    options = {"loss": loss, "eta": 0.3, "shrinkage": shrinkage}
    models, predictions = learn(x_global, x_local, client, y, **options)
    expected, w_global, w_local = by_the_core(x_global, with_ones(x_local), client, y, **options)
    np.testing.assert_array_equal(predictions, expected)
    np.testing.assert_array_equal(models.w_global[0], w_global)
    for i in range(5):
        np.testing.assert_array_equal(models.client(i)[1][0], w_local[i])


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_is_vws_wired_by_initial_labels(loss):
    from vowpalwabbit import Workspace

    x_global, x_local, client, y = rows_of(loss=loss, clients=3)
    _, predictions = learn(x_global, x_local, client, y, loss=loss, eta=0.3)
    options = "--adaptive -l 0.3 --quiet --min_prediction -1e6 --max_prediction 1e6"
    server, *locals_ = (Workspace(f"{options} --loss_function {loss}") for _ in range(4))

    def meet(vw, x, y, initial):
        """The sum, clipped by no one, before the row is learned from."""
        features = " ".join(f"{j}:{v:.9g}" for j, v in enumerate(x))
        for act in (vw.predict, vw.learn):
            example = vw.example(f"{y:g} 1 {initial:.9g} | {features}")
            act(example)
            if act == vw.predict:
                met = example.get_partial_prediction()
            vw.finish_example(example)
        return met

    for k, i in enumerate(client):
        example = server.example("| " + " ".join(f"{j}:{v:.9g}" for j, v in enumerate(x_global[k])))
        server.predict(example)
        seen = example.get_partial_prediction()
        server.finish_example(example)
        joint = meet(locals_[i], x_local[k], y[k], seen)
        assert joint == pytest.approx(predictions[k], abs=1e-4)
        meet(server, x_global[k], y[k], joint - seen)


def test_the_first_row_by_hand():
    x_global, x_local = np.float32([[1.0, 0.0]]), np.float32([[3.0]])
    models, predictions = learn(
        x_global, x_local, np.array([0]), np.float32([2.0]), 1, eta=0.5, shrinkage=9.0
    )
    assert predictions[0] == 0
    # slope -4: G = 16 on the global side; 9 + 144 and 9 + 16 on the local one
    np.testing.assert_allclose(models.w_global[0], [0.5, 0.0, 0.5])
    np.testing.assert_allclose(models.client(0)[1][0], [6 / np.sqrt(153), 2 / 5], rtol=1e-6)


@pytest.mark.parametrize("off", ["global", "local"])
def test_a_side_switched_off_has_no_model_and_no_constant(off):
    x_global, x_local, client, y = rows_of(clients=1)
    models = OnlineModels(ModelShape(*((None, 3) if off == "global" else (4, None)), eta=0.3))
    predictions = models.learn(models.rows(x_global, x_local, client), y[None])[0]
    nothing = np.empty((200, 0), np.float32)
    on = (nothing, with_ones(x_local)) if off == "global" else (x_global, nothing)
    np.testing.assert_array_equal(predictions, by_the_core(*on, client, y)[0])
    assert (models.w_global == 0).all() == (off == "global")
    assert models.client(0)[1].size == (4 if off == "global" else 0)


def test_a_local_model_without_features_is_a_constant():
    x_global, _, client, y = rows_of()
    models, _ = learn(x_global, np.empty((200, 0), np.float32), client, y, 0)
    columns, weights = models.client(2)
    assert columns.tolist() == [0]
    assert weights.shape == (1, 1)
    assert weights[0, 0] != 0


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_rows_in_pieces_are_the_same_rows(pieces, sparse, seed):
    n = sum(pieces)
    x_global, x_local, client, y = rows_of(n, seed=seed, sparse=sparse)
    whole, predictions = learn(x_global, x_local, client, y)
    models = OnlineModels(ModelShape(4, 3))
    ends = np.cumsum(pieces)
    for part in (slice(end - size, end) for size, end in zip(pieces, ends, strict=True)):
        rows = models.rows(x_global[part], x_local[part], client[part])
        np.testing.assert_array_equal(models.learn(rows, y[None, part])[0], predictions[part])
    np.testing.assert_array_equal(models.w_global, whole.w_global)
    for i in range(5):
        for mine, theirs in zip(models.client(i), whole.client(i), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_order_chooses_rows_and_predict_learns_nothing():
    x_global, x_local, client, y = rows_of(100)
    order = np.random.default_rng(0).permutation(100).astype(np.int32)[:60]
    models = OnlineModels(ModelShape(4, 3))
    rows = models.rows(x_global, x_local, client)
    shuffled, expected = learn(x_global[order], x_local[order], client[order], y[order])
    np.testing.assert_array_equal(models.learn(rows, y[None], order)[0], expected)
    np.testing.assert_array_equal(models.w_global, shuffled.w_global)
    first, again = models.predict(rows, order), models.predict(rows)
    np.testing.assert_array_equal(again[:, order], first)


def test_unknown_clients_and_columns_weigh_nothing():
    x_global, x_local, client, y = rows_of(50)
    x_local[:, 2] = 0
    models, _ = learn(x_global, x_local, client, y)
    expected = x_global @ models.w_global[0, :-1] + models.w_global[0, -1]
    rows = models.rows(x_global, x_local, np.full(50, -1), new=False)
    np.testing.assert_allclose(models.predict(rows)[0], expected, **CLOSE)
    before = models.slots.count
    known = models.predict(models.rows(x_global, x_local, client, new=False))
    x_local[:, 2] = 7
    rows = models.rows(x_global, x_local, client, new=False)
    np.testing.assert_allclose(models.predict(rows), known, **CLOSE)
    assert models.slots.count == before


def test_outputs_are_problems_of_their_own():
    x_global, x_local, client, y = rows_of()
    both = OnlineModels(ModelShape(4, 3), outputs=1)
    both.add_output()
    predictions = both.learn(both.rows(x_global, x_local, client), np.stack([y, -y]), n_jobs=2)
    for k, sign in enumerate((1, -1)):
        alone, expected = learn(x_global, x_local, client, sign * y)
        np.testing.assert_array_equal(predictions[k], expected)
        np.testing.assert_array_equal(both.client(1)[1][k], alone.client(1)[1][0])


@given(st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=40), max_size=40))
def test_slots_are_a_dictionary(batches):
    slots, expected = Slots(), {}
    for batch in batches:
        for key in sorted(set(batch) - expected.keys()):
            expected[key] = len(expected) + 1
        assert slots.add(np.array(batch)).tolist() == [expected[key] for key in batch]
        assert slots.count == len(expected) + 1
    everything = np.arange(-5, 310)
    assert slots.find(everything).tolist() == [expected.get(key, 0) for key in everything.tolist()]
    keys, numbers = slots.sorted()
    assert dict(zip(keys.tolist(), numbers.tolist(), strict=True)) == expected
    assert keys.tolist() == sorted(expected)
