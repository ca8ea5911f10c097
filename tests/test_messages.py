from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, hstack

import fedres
from conftest import random_federation
from fedres.core.messages import (
    MOST_ROWS,
    RESIDUAL_BITS,
    GlobalModel,
    MessageError,
    Upload,
    model_bytes,
    upload_bytes,
)
from fedres.core.quantising import quantise
from fedres.core.views import client_rows

bits = st.sampled_from(RESIDUAL_BITS)


def on_arrival(residual, bits):
    return residual if bits == 32 else quantise(residual, bits, np.float32(-1), np.float32(1))


def upload(rows=3, width=4, bits=32, sparse=False, seed=0, outputs=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    if sparse:
        x = csr_array(np.where(rng.random(x.shape) < 0.5, x, 0).astype(np.float32))
    shape = rows if outputs == 1 else (rows, outputs)
    residual = on_arrival(rng.normal(size=shape).astype(np.float32), bits)
    return Upload(5, 6, 7, x, residual, rng.normal(size=rows).astype(np.float32), bits)


@given(
    st.integers(1, 20),
    st.integers(0, 9),
    bits,
    st.booleans(),
    st.integers(0, 999),
    st.integers(1, 4),
)
def test_uploads_survive_the_wire(rows, width, bits, sparse, seed, outputs):
    sent = upload(rows, width, bits, sparse, seed, outputs)
    data = sent.pack()
    features = sent.x_global.nnz if sparse else rows * width
    assert len(data) == upload_bytes(rows, features, bits, sparse, outputs)
    got = Upload.unpack(data, width, outputs=outputs)
    assert (got.client, got.round, got.version, got.bits) == (5, 6, 7, bits)
    np.testing.assert_array_equal(got.residual, sent.residual)
    np.testing.assert_array_equal(got.y, sent.y)
    difference = got.x_global - sent.x_global
    assert abs(difference).sum() == 0


@given(bits, st.floats(-3, 3, width=32))
def test_a_residual_is_off_by_half_a_cell_at_most(bits, residual):
    near = on_arrival(np.array([residual], np.float32), bits)[0]
    inside = np.clip(residual, -1, 1) if bits < 32 else residual
    assert abs(near - inside) <= 1 / 2**bits + 1e-6


def test_models_survive_the_wire():
    model = GlobalModel(9, np.float32([1, 2, 3]), -1.0, 1.0, {4: (7, 8), 5: (1,)})
    data = model.pack(4)
    assert len(data) == model_bytes(3, 2)
    got = GlobalModel.unpack(data, 4)
    assert (got.version, got.low, got.high, got.used) == (9, -1.0, 1.0, {4: (7, 8)})
    np.testing.assert_array_equal(got.weights, model.weights)


@given(st.integers(0, 10_000))
def test_a_cut_or_foreign_message_is_refused(cut):
    data = upload(sparse=cut % 2 == 1).pack()
    with pytest.raises(ValueError, match=r"cut short|at least|bytes"):
        Upload.unpack(data[: cut % len(data)], 4)


NAN = np.float32(np.nan).tobytes()


@pytest.mark.parametrize(
    ("change", "message", "reason"),
    [
        (lambda d: b"\x07" + d[1:], "version 7, this fedres reads 1", "schema version"),
        (lambda d: d + b"\0", "1 bytes too many", "wrong size"),
        (lambda d: d[:1] + b"\x0b" + d[2:], "11-bit residuals", "wrong size"),
        (lambda d: d[:16] + NAN + d[20:], "label that is not finite", "not finite"),
        (lambda d: d[:28] + NAN + d[32:], "residual that is not finite", "not finite"),
        (lambda d: d[:-4] + NAN, "feature that is not finite", "not finite"),
    ],
)
def test_broken_uploads_are_refused(change, message, reason):
    with pytest.raises(MessageError, match=message) as error:
        Upload.unpack(change(upload().pack()), 4)
    assert error.value.reason == reason


@given(st.booleans(), st.data())
def test_whatever_the_bytes_they_are_an_upload_or_no_message(sparse, data):
    sent = bytearray(upload(sparse=sparse).pack())
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MessageError):
        assert Upload.unpack(bytes(sent), 4).x_global.shape[1] == 4


@pytest.mark.parametrize("sparse", [False, True])
def test_an_upload_of_more_rows_than_a_message_counts(sparse):
    assert len(Upload.unpack(upload(MOST_ROWS, 1, sparse=sparse).pack(), 1).y) == MOST_ROWS
    with pytest.raises(ValueError, match="has 65536 rows, and a message holds 65535 at most"):
        upload(MOST_ROWS + 1, 1, sparse=sparse).pack()


def test_a_wrong_width_is_refused():
    with pytest.raises(ValueError, match="disagree on the number of features"):
        Upload.unpack(upload(width=4).pack(), 3)
    with pytest.raises(ValueError, match="the model only 1"):
        Upload.unpack(upload(width=4, sparse=True).pack(), 1)


def test_broken_models_are_refused():
    data = GlobalModel(9, np.float32([1, np.inf]), -1.0, 1.0).pack(0)
    with pytest.raises(ValueError, match="weight that is not finite"):
        GlobalModel.unpack(data, 0)
    with pytest.raises(ValueError, match="broken or cut short"):
        GlobalModel.unpack(data[:10], 0)
    with pytest.raises(ValueError, match="schema version"):
        GlobalModel.unpack(b"\x09" + data[1:], 0)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("method", ["central", "fedres", "fedres-erm", "fictitious-play"])
def test_the_ledger_of_a_run_is_the_size_of_its_messages(method, sparse):
    federation, batch = random_federation(3, sparse=sparse), 5
    bits = 3 if method in ("fedres", "fictitious-play") else None
    passes = {"passes": 2, "batch": batch, "shuffle": False}
    run = fedres.simulate(federation, method, residual_bits=bits, **passes)
    rows, up, messages = federation.train, 0, 0
    for i, count in enumerate(rows.counts):
        x, z = (client_rows(view, rows.row_start, i) for view in (rows.x_global, rows.x_local))
        y = rows.y[rows.row_start[i] : rows.row_start[i + 1]]
        for first in 2 * list(range(0, count, batch)):
            part = slice(first, first + batch)
            residual, features = np.zeros_like(y[part]), x[part]
            if method == "fedres-erm":  # it sends both views, and its model instead of residuals
                sides = x[part], z[part]
                features = csr_array(hstack(sides)) if sparse else np.hstack(sides)
                up += run.w_local[i].astype(np.float32).nbytes
            up += len(Upload(i, 0, 0, features, residual, y[part], bits or 0).pack())
            messages += 1
    assert run.bytes_up == up
    assert run.bytes_down == messages * len(GlobalModel(0, run.w_global, 0.0, 1.0).pack(0))


def test_waiting_clients_are_told_which_of_their_uploads_were_used():
    federation, options = random_federation(3), {"rounds": 20, "delay": fedres.Delay(up=2)}
    plain = fedres.simulate(federation, alignment="arrival", **options)
    told = fedres.simulate(federation, alignment="aligned", **options)
    assert told.bytes_down - plain.bytes_down == 4 * 3 * (20 - 2)
