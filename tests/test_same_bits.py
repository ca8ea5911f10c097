"""The same seed gives the same run, bit for bit, on every x86-64 CPU, compiled or not.

Run as a script it prints a hash of all predictions and weights of each case. The tests run it once
a kind of CPU: numba, NumPy and OpenBLAS are told to do without what others do not have.
"""

import json
import os
import sys
from hashlib import blake2b
from itertools import product
from subprocess import PIPE, Popen

import numpy as np
import pandas as pd
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__

import fedres
from conftest import random_federation
from fedres.core.compiled import compiled
from fedres.core.losses import LOSSES
from fedres.core.mixture import mix, new_mixture, soften
from fedres.core.sgd import ALIGNMENTS

CPUS = {
    "host": {},
    "haswell": {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "",  # no more than that has
        "NPY_DISABLE_CPU_FEATURES": " ".join(
            f for f in __cpu_dispatch__ if "512" in f or "V4" in f
        ),
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "generic": {
        "NUMBA_CPU_NAME": "generic",
        "NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__),
        "OPENBLAS_CORETYPE": "Prescott",
    },
}
SIMULATIONS = {
    " ".join(map(str, case)): case
    for case in product(ALIGNMENTS, ["squared", "logistic"], ["dense", "sparse"], [1, 3])
}


def digest(*arrays):
    total = blake2b(digest_size=12)
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def simulation(name, compiled=True):
    """A run whose widths, delays and so on are drawn by its place in the list."""
    alignment, loss, layout, batch = SIMULATIONS[name]
    rng = np.random.default_rng(list(SIMULATIONS).index(name))
    random_lag, few_bits, ball, adaptive = rng.random(4) < 0.5
    federation = random_federation(
        rows=40,
        width_global=int(rng.integers(1, 41)),
        width_local=int(rng.integers(1, 41)),
        labels="signs" if loss == "logistic" else "numbers",
        sparse=layout == "sparse",
    )
    lag = fedres.Uniform(0, 4) if random_lag else 2
    run = fedres.simulate(
        federation,
        passes=2,
        delay=fedres.Delay(up=lag, down=lag),
        step=fedres.Adaptive(0.1) if adaptive else fedres.Sgd(0.001),
        alignment=alignment,
        loss=loss,
        batch=batch,
        radius=0.3 if ball else None,
        residual_bits=4 if few_bits else 32,
        shuffle=True,
        compiled=compiled,
    )
    assert np.isfinite(run.w_global).all()
    return digest(run.predictions, run.test_predictions, run.w_global, *run.w_local)


def mixed(name, compile_=compiled):
    """Ten clients that mix three experts for 40 rounds, of which they miss some."""
    rng = np.random.default_rng(0)
    said = rng.normal(size=(3, 400)).astype(np.float32)
    labels = np.sign(said[0] + rng.normal(size=400)).astype(np.float32)
    labels[rng.random(400) < 0.1] = np.nan
    mixture, out = new_mixture(LOSSES[name].number, (-1.0, 1.3), 10, 3), np.empty_like(labels)
    compile_(mix, allocates=True)(mixture, said, labels, out)
    trust = np.stack([mixture.staying, mixture.moving])
    compile_(soften)(trust, np.full(10, 0.7))
    return digest(out, mixture.staying, mixture.moving, trust)


def table(rows=300):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(rows, 20)), columns=[f"x{j}" for j in range(20)])
    frame["kind"] = rng.choice(["a", "b", "c"], rows)
    frame["user"] = rng.integers(0, 8, rows)
    return frame, frame["x0"] + np.where(frame["user"] % 2, frame["x1"], -frame["x2"])


def weights(model):
    return model._models.w_global, model._models.w_local


def fitted(estimator, labels):
    frame, y = table()
    model = estimator(client="user", solver="sgd", random_state=0).fit(frame, labels(y))
    soft = getattr(model, "predict_proba", model.predict)
    return digest(soft(frame), *weights(model))


def learned_one_by_one(estimator, labels):
    frame, y = table(100)
    model, predictions = estimator(client="user"), []
    for row, label in zip(frame.to_dict("records"), labels(y).tolist(), strict=True):
        model.learn_one(row, label)
        predictions.append(str(model.predict_one(row)).encode())
    return digest(predictions, *weights(model))


ESTIMATORS = {
    f"{how.__name__} {estimator.__name__}": (how, estimator, labels)
    for how in (fitted, learned_one_by_one)
    for estimator, labels in (
        (fedres.FedResRegressor, lambda y: y),
        (fedres.FedResClassifier, lambda y: np.digitize(y, [-0.5, 0.5])),
    )
}


@pytest.fixture(scope="module")
def digests():
    """Of each CPU, by case."""
    common = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_CPU")}
    common["PYTHONPATH"] = os.pathsep.join(sys.path)
    running = {
        cpu: Popen(
            [sys.executable, __file__], env=common | own, stdout=PIPE, stderr=PIPE, text=True
        )
        for cpu, own in CPUS.items()
    }
    said = {cpu: process.communicate() for cpu, process in running.items()}
    for cpu, process in running.items():
        assert process.returncode == 0, f"on {cpu}: {said[cpu][1]}"
    return {cpu: json.loads(output) for cpu, (output, _) in said.items()}


@pytest.mark.parametrize("cpu", list(CPUS)[1:])
def test_every_cpu_gives_the_same_bits(digests, cpu):
    assert len(digests["host"]) == len(SIMULATIONS) + len(LOSSES) + len(ESTIMATORS)
    assert digests[cpu] == digests["host"]


def test_so_does_the_reference(digests):
    reference = {name: simulation(name, compiled=False) for name in SIMULATIONS}
    reference |= {name: mixed(name, lambda function, **_: function) for name in LOSSES}
    assert reference == {name: digests["host"][name] for name in reference}
    assert len(set(reference.values())) == len(reference)


if __name__ == "__main__":
    found = {name: simulation(name) for name in SIMULATIONS}
    found |= {name: mixed(name) for name in LOSSES}
    found |= {name: how(*rest) for name, (how, *rest) in ESTIMATORS.items()}
    print(json.dumps(found))
