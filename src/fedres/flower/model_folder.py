"""From a run's weights to a model folder that `fedres predict` and `fedres.load_model` read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedres.core.types import F32
from fedres.flower.app_settings import AppSettings
from fedres.flower.memory import Memory
from fedres.flower.own_mixture import OwnMixture
from fedres.flower.run_folder import read_model


def write_global(folder: Path, settings: AppSettings, w_global: F32) -> None:
    """What the server knows: the global model, and no client."""
    nobody = np.empty((0, settings.outputs), np.float32)
    _write(folder, settings, w_global, [], nobody)


def write_newest(folder: Path, run: Path) -> int:
    """The global model of a run, be it under way; how many uploads it has learned from."""
    config, version, weights = read_model(run)
    settings = AppSettings.from_config(config)
    if not settings.features:
        raise ValueError(f"rows of the run in {run} come from a function: it has no columns")
    write_global(folder, settings, weights)
    return version


def write_personal(folder: Path, settings: AppSettings, memory: Memory) -> None:
    """What a client knows: the newest global model it was sent, and its own."""
    own = _by_output(memory.local.weights, settings.width_local, settings.outputs)
    _write(folder, settings, memory.global_.weights, [memory.client], own.T, memory.own)


def _write(
    folder: Path,
    settings: AppSettings,
    w_global: F32,
    clients: list[str],
    w_local: F32,
    mixture: OwnMixture | None = None,
) -> None:
    from fedres.tables.classifier import FedResClassifier
    from fedres.tables.client_ids import Clients
    from fedres.tables.encoder import Encoder
    from fedres.tables.labels import ClassLabels, NumberLabels
    from fedres.tables.online_models import ModelShape, OnlineModels
    from fedres.tables.regressor import FedResRegressor

    model: Any = (FedResClassifier if settings.classes else FedResRegressor)(
        client=settings.client_column or None
    )
    mean, scale = settings.label_mean, settings.label_scale
    model._labels = (
        ClassLabels(_classes(settings))
        if settings.classes
        else NumberLabels(
            mean, scale, mean + scale * settings.label_low, mean + scale * settings.label_high
        )
    )
    described = settings.table
    # Nodes clip what the server may see; what they leave behind must, too.
    model.encoder_ = replace(
        Encoder.from_dict(described["encoder"]), limit_global=settings.feature_limit
    )
    model.feature_names_in_ = np.array(described["columns"], object)
    model.n_features_in_ = len(described["columns"])
    model.eta_, model.shrinkage_, model.passes_ = settings.eta, 0.0, max(1, settings.passes)
    model.validation_ = []
    model.columns_ = {
        "client": settings.client_column or None,
        "label": settings.label,
        "time": settings.time_column or None,
    }
    model._clients = Clients(clients)
    width = settings.width_local + 1
    shared = _by_output(w_global, settings.width_global, settings.outputs)
    model._models = OnlineModels.unpack(
        ModelShape(settings.width_global, settings.width_local, settings.loss, settings.eta),
        {"weights": shared, "squares": np.ones_like(shared)},
        {
            "start": width * np.arange(len(clients) + 1),
            "columns": np.tile(np.arange(width, dtype=np.int32), len(clients)),
            "weights": w_local,
            "squares": np.ones_like(w_local),
        },
    )
    if mixture is not None:
        model.method, model._models = "mixture", _mixed(settings, model._models, mixture)
    model.save(folder)


def _mixed(settings: AppSettings, both: Any, mixture: OwnMixture) -> Any:
    """The models of one client who mixes."""
    from fedres.tables.mixed_models import MixedModels

    own = mixture.alone.weights.reshape(settings.outputs, -1).T
    reach = settings.label_scale * (settings.label_high - settings.label_low)
    return MixedModels.unpack_beside(
        both,
        {"own": mixture.columns.tolist(), "reach": reach},
        {"alone_weights": both.w_global, "alone_squares": both.squares_global},
        {
            "start": np.array([0, len(own)]),
            "columns": np.arange(len(own), dtype=np.int32),
            "weights": own,
            "squares": np.ones_like(own),
            "trust": mixture.trust.reshape(1, -1),
            "labels": mixture.labels[None],
        },
    )


def _by_output(weights: F32, width: int, outputs: int) -> F32:
    """A row of weights each; a view of width zero has no constant here, and one of 0 there."""
    return weights.reshape(outputs, -1) if width else np.zeros((outputs, 1), np.float32)


def _classes(settings: AppSettings) -> Any:
    names = settings.class_names
    for kind in (int, float):
        try:
            numbers = np.array([kind(name) for name in names])
        except ValueError:
            continue
        if len(np.unique(numbers)) == len(names):  # not so 1 and 01
            return numbers
    return np.array(names)
