"""The run of a mixture, made of the runs of its experts: they see the same samples."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from fedres.core.mixture import mix, mix_rows, new_mixture
from fedres.simulation.federation import Federation
from fedres.simulation.regret import rows_seen
from fedres.simulation.run import Run
from fedres.simulation.settings import Method, MixtureOptions, Settings


def mix_runs(
    federation: Federation,
    settings: Settings,
    experts: Mapping[Method, Run],
    compile_: Callable[..., Any],
) -> Run:
    """What clients who mix these experts would have predicted and lost."""
    assert isinstance(settings.options, MixtureOptions)
    began = perf_counter()
    rows = rows_seen(federation, settings).T
    seen = rows >= 0
    labels = np.where(seen, federation.train.y[rows], np.float32(np.nan))
    values = federation.label_values
    reach = float(values[0]), float(values[-1])
    clients, switching = len(federation.clients), settings.options.switching
    mixture = new_mixture(settings.loss.of_sum.number, reach, clients, len(experts), switching)
    predictions = np.full(labels.shape, np.nan, np.float32)
    said = np.stack([run.predictions.T.ravel() for run in experts.values()])
    compile_(mix, allocates=True)(mixture, said, labels.ravel(), predictions.ravel())

    losses = np.where(seen, settings.loss.of_sum.value(predictions, labels), 0).astype(float)
    weight = settings.weights(federation).astype(float)
    rounds = np.arange(0, len(labels), settings.batch)
    lost = np.add.reduceat(losses @ weight, rounds)
    mass = np.add.reduceat(seen @ weight, rounds)
    tested = None
    if federation.test is not None:
        tested = np.empty(len(federation.test.y), np.float32)
        said = np.stack([run.test_predictions for run in experts.values()])  # type: ignore[misc]
        compile_(mix_rows, allocates=True)(mixture, said, federation.test.row_start, tested)
    fedres, central = experts["fedres"], experts["central"]
    seconds = sum(run.seconds for run in experts.values()) + perf_counter() - began
    with np.errstate(invalid="ignore"):  # rounds in which all clients rest have no loss
        return replace(
            fedres,
            settings=settings,
            predictions=predictions.T,
            loss=float(lost.sum() / mass.sum()),
            loss_by_round=lost / mass,
            loss_by_client=losses.sum(axis=0) / seen.sum(axis=0),
            bytes_down=fedres.bytes_down + central.bytes_down,
            test_predictions=tested,
            seconds=seconds,
            experts=experts,
            expert_weights=mixture.weight.T,
        )
