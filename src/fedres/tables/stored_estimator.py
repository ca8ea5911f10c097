"""Estimators on disk; `fedres.tables.storage` says how."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedres.tables.classifier import FedResClassifier
from fedres.tables.client_ids import Clients, plain_id
from fedres.tables.columns import Tastes
from fedres.tables.dict_encoder import DictEncoder
from fedres.tables.encoder import Encoder
from fedres.tables.estimator import FedResEstimator
from fedres.tables.labels import ClassLabels, CountLabels, NumberLabels
from fedres.tables.mixed_models import MixedModels
from fedres.tables.online_models import ModelShape, OnlineModels
from fedres.tables.posterior import Posterior
from fedres.tables.regressor import FedResRegressor
from fedres.tables.shared_models import KINDS as SHARED_KINDS
from fedres.tables.shared_models import ForeignModel, SharedModel
from fedres.tables.storage import Stored, open_folder, pack_ids, unpack_ids, write

KINDS: dict[str, tuple[type[FedResEstimator], Any]] = {
    "regressor": (FedResRegressor, NumberLabels),
    "classifier": (FedResClassifier, ClassLabels),
}
CHOSEN = (
    "solver_", "shared_", "latent_", "eta_", "shrinkage_", "passes_", "validation_",
    "n_features_in_",
    "columns_",  # which of a table's columns is what: `fedres fit` notes it, to read new tables
)  # fmt: skip


def save(model: FedResEstimator, folder: str | PathLike[str]) -> None:
    """Write a model, all that is needed to predict and to go on learning."""
    global_, local = model._models.pack(len(model._clients))
    meta = describe(model, model._models.settings)
    groups = {"global": global_, "local": local, "clients": pack_ids(model._clients.ids)}
    if model._posterior is not None:
        packed = model._posterior.pack(len(model._clients))
        meta["posterior"], known_to_all, groups["posterior"] = packed
        global_.update(known_to_all)
    if isinstance(model._models, MixedModels):
        packed = model._models.pack_beside(len(model._clients))
        meta["mixture"], known_to_all, groups["mixture"] = packed
        global_.update(known_to_all)
    if isinstance(model.encoder_, Encoder) and model.encoder_.tastes is not None:
        global_["factors"] = model.encoder_.tastes.factors
    if model._shared:
        meta["shared"] = [one.kind for one in model._shared]
        groups["shared"] = {str(k): one.pack() for k, one in enumerate(model._shared)}
    write(folder, meta, groups)


def describe(model: FedResEstimator, shape: ModelShape) -> dict[str, Any]:
    """What of a model is no array, as plain JSON."""
    parameters = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    if not isinstance(model.shared, str):
        parameters["shared"] = None  # the fitted model says what it was
    return {
        "kind": next(kind for kind, (cls, _) in KINDS.items() if isinstance(model, cls)),
        "parameters": parameters,
        "chosen": {name: _plain(getattr(model, name)) for name in CHOSEN if hasattr(model, name)},
        "names": list(getattr(model, "feature_names_in_", [])),
        "encoder": model.encoder_.to_dict(),
        "labels": model._labels.to_dict(),
        "settings": shape._asdict(),
    }


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy and pandas as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else value


def load_model(folder: str | PathLike[str], client: Any = None) -> FedResEstimator:
    """Return the model that was saved in a folder.

    Parameters
    ----------
    folder
        Where `save`, ``fedres fit`` or a run of Flower wrote it.
    client
        Return what this client needs and read no other's weights: the global model and its own,
        which it can predict with and go on learning.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> X, y, user = np.ones((4, 1)), [1.0, 2.0, 3.0, 4.0], ["ann", "ann", "bob", "bob"]
    >>> model = FedResRegressor().fit(X, y, client=user)
    >>> with TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     load_model(folder).clients_, load_model(folder, client="bob").clients_
    (['ann', 'bob'], ['bob'])
    """
    stored = open_folder(Path(folder).expanduser())
    meta = stored.meta
    if meta.get("kind") not in KINDS:
        raise ValueError(
            f"{folder} holds a {meta.get('kind', 'model of an unknown kind')}, not a model that "
            f"can be loaded: those are {' and '.join(KINDS)}"
        )
    cls, labels = KINDS[meta["kind"]]
    model = cls(**meta["parameters"])
    for name, value in meta["chosen"].items():
        setattr(model, name, value)
    if meta["names"]:
        model.feature_names_in_ = np.array(meta["names"], object)
    encoder = DictEncoder if "seen" in meta["encoder"] else Encoder
    model.encoder_ = encoder.from_dict(meta["encoder"])
    labels = CountLabels if meta["parameters"].get("loss") == "poisson" else labels
    model._labels = labels.from_dict(meta["labels"])
    if client is None:
        stored.verify()
        ids, local = unpack_ids(stored.group("clients")).tolist(), stored.group("local")
    else:
        ids, local = [plain_id(client)], _one_client(stored, "local", plain_id(client))
    global_ = stored.group("global", finite=True)
    if isinstance(model.encoder_, Encoder) and "factors" in global_:
        tastes = Tastes(str(model.item), np.array(global_["factors"]))
        model.encoder_ = replace(model.encoder_, tastes=tastes)
    model._models = OnlineModels.unpack(ModelShape(**meta["settings"]), global_, local)
    if "posterior" in meta:
        known = stored.group("posterior") if client is None else _posterior_of(stored, ids[0])
        model._posterior = Posterior.unpack(
            meta["posterior"], global_, known, model._groups, model._models
        )
    if "mixture" in meta:
        own = stored.group("mixture") if client is None else _mixture_of(stored, ids[0])
        model._models = MixedModels.unpack_beside(model._models, meta["mixture"], global_, own)
    if "shared" in meta:
        texts = stored.group("shared")
        model._shared = tuple(
            SHARED_KINDS[kind].unpack(texts[str(k)]) for k, kind in enumerate(meta["shared"])
        )
    if model.shared is None:
        model.shared = _as_given(model._shared)
    model._clients = Clients(ids)
    return model


def _as_given(shared: Sequence[SharedModel]) -> Any:
    from sklearn.base import clone

    if not shared:  # as in ``independent``
        return "linear"
    (one,) = shared
    assert isinstance(one, ForeignModel)
    return clone(one.fitted[0] if isinstance(one.fitted, list) else one.fitted)


def _one_client(stored: Stored, group: str, client: int | str) -> dict[str, Any]:
    row = stored.find("clients", client)
    if row is None:
        raise ValueError(f"the model in {stored.folder} knows no client {client!r}")
    first, last = stored.slice(group, "start", row, row + 2).tolist()
    own = {
        name: stored.slice(group, name, first, last) for name in ("columns", "weights", "squares")
    }
    return {"start": np.array([0, last - first]), **own}


def _mixture_of(stored: Stored, client: int | str) -> dict[str, Any]:
    row = stored.find("clients", client)
    assert row is not None
    trust = {name: stored.slice("mixture", name, row, row + 1) for name in ("trust", "labels")}
    return _one_client(stored, "mixture", client) | trust


def _posterior_of(stored: Stored, client: int | str) -> dict[str, Any]:
    row = stored.find("clients", client)
    assert row is not None
    first, last = stored.slice("posterior", "start", row, row + 2).tolist()
    corner, end = stored.slice("posterior", "first_cell", row, row + 2).tolist()
    own = {
        name: stored.slice("posterior", name, first, last)
        for name in ("columns", "across", "root_local")
    }
    return {
        "start": np.array([0, last - first]),
        "first_cell": np.array([0, end - corner]),
        "cells": stored.slice("posterior", "cells", corner, end),
        **own,
    }
