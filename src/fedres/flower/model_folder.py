"""From a run's weights to a model folder that `fedres predict` and `fedres.load_model` read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedres.core.models import LinearModel
from fedres.core.types import F32
from fedres.flower.app_settings import AppSettings
from fedres.flower.memory import Memory


def write_global(folder: Path, settings: AppSettings, model: LinearModel) -> None:
    """What the server knows: the global model, and no client."""
    _write(folder, settings, model.weights, [], np.empty((0, settings.width_local + 1)))


def write_personal(folder: Path, settings: AppSettings, memory: Memory) -> None:
    """What a client knows: the newest global model it was sent, and its own."""
    own = _with_constant(memory.local.weights, settings.width_local)[None]
    _write(folder, settings, memory.global_.weights, [memory.client], own)


def _write(
    folder: Path, settings: AppSettings, w_global: F32, clients: list[str], w_local: Any
) -> None:
    from fedres.tables.classifier import FedResClassifier
    from fedres.tables.client_ids import Clients
    from fedres.tables.encoder import Encoder
    from fedres.tables.labels import ClassLabels, NumberLabels
    from fedres.tables.online_models import ModelShape, OnlineModels
    from fedres.tables.regressor import FedResRegressor

    model: Any = (FedResClassifier if settings.positive else FedResRegressor)(
        client=settings.client_column or None
    )
    mean, scale = settings.label_mean, settings.label_scale
    model._labels = (
        ClassLabels(_classes(settings))
        if settings.positive
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
    shared = _with_constant(w_global, settings.width_global)[None]
    model._models = OnlineModels.unpack(
        ModelShape(settings.width_global, settings.width_local, settings.loss, settings.eta),
        {"weights": shared, "squares": np.ones_like(shared)},
        {
            "start": width * np.arange(len(clients) + 1),
            "columns": np.tile(np.arange(width, dtype=np.int32), len(clients)),
            "weights": w_local.reshape(-1, 1).astype(np.float32),
            "squares": np.ones((w_local.size, 1), np.float32),
        },
    )
    model.save(folder)


def _with_constant(weights: F32, width: int) -> F32:
    """A view of width zero has no constant here, and one of weight 0 there."""
    return weights if width else np.zeros(1, np.float32)


def _classes(settings: AppSettings) -> Any:
    names = [settings.negative, settings.positive]
    for kind in (int, float):
        try:
            return np.array([kind(name) for name in names])
        except ValueError:
            continue
    return np.array(names)
