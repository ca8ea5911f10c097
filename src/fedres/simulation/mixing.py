"""The run of a mixture, made of the runs of its experts: they see the same samples."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from fedres.core.losses import value
from fedres.core.mixture import mix, mix_rows, new_mixture, soften
from fedres.core.sgd import U
from fedres.core.types import F32, F64
from fedres.simulation.federation import Federation
from fedres.simulation.run import Run
from fedres.simulation.settings import Method, MixtureOptions, Settings


def mix_runs(
    federation: Federation,
    settings: Settings,
    experts: Mapping[Method, Run],
    labels: F32,
    compile_: Callable[..., Any],
) -> Run:
    """What clients who mix these experts would have predicted and lost.

    `labels` are those of all samples, (samples, clients), NaN where a client rested.
    """
    assert isinstance(settings.options, MixtureOptions)
    began = perf_counter()
    values = federation.label_values
    reach = float(values[0]), float(values[-1])
    clients, switching = len(federation.clients), settings.options.switching
    loss = settings.loss.of_sum.number
    mixture = new_mixture(loss, reach, clients, len(experts), switching)
    predictions = np.empty_like(labels)
    said = np.stack([run.predictions.T.ravel() for run in experts.values()])
    compile_(mix, allocates=True)(mixture, said, labels.ravel(), predictions.ravel())

    lost, mass = np.zeros((2, settings.turns(federation)))
    by_client, weight = np.zeros(clients), settings.weights(federation)
    compile_(tally)(loss, predictions, labels, weight, settings.batch, lost, mass, by_client)
    tested = None
    if federation.test is not None:
        tested = np.empty(len(federation.test.y), np.float32)
        said = np.stack([run.test_predictions for run in experts.values()])  # type: ignore[misc]
        who = np.repeat(np.arange(clients), federation.test.counts)
        # Of rows that are new, a row that came ten times tells as much as one that came once.
        each = federation.train.counts / np.maximum(settings.seen(federation), 1)
        trust = np.stack([mixture.staying, mixture.moving])
        compile_(soften)(trust, np.minimum(each, 1.0))
        fresh = mixture._replace(staying=trust[0], moving=trust[1])
        compile_(mix_rows, allocates=True)(fresh, who, said, tested)
    fedres, central = experts["fedres"], experts["central"]
    seconds = sum(run.seconds for run in experts.values()) + perf_counter() - began
    with np.errstate(invalid="ignore"):  # rounds in which all clients rest have no loss
        return replace(
            fedres,
            settings=settings,
            predictions=predictions.T,
            loss=float(lost.sum() / mass.sum()),
            loss_by_round=lost / mass,
            loss_by_client=by_client / settings.seen(federation),
            bytes_down=fedres.bytes_down + central.bytes_down,
            test_predictions=tested,
            seconds=seconds,
            experts=experts,
            expert_weights=(mixture.staying + mixture.moving).T,
        )


def tally(
    loss: int,
    predictions: F32,
    labels: F32,
    weight: F32,
    batch: int,
    loss_by_round: F64,
    weight_by_round: F64,
    loss_by_client: F64,
) -> None:
    """Add up losses, in rounds of `batch` samples by weight; samples without a label have none."""
    samples, clients = labels.shape
    for n in range(samples):
        total = mass = np.float64(0)
        for i in range(U(clients)):
            if not np.isnan(labels[U(n), i]):
                lost = value(loss, predictions[U(n), i], labels[U(n), i])
                loss_by_client[i] += lost
                total += weight[i] * lost
                mass += weight[i]
        loss_by_round[n // batch] += total
        weight_by_round[n // batch] += mass
