"""Estimators on disk; `fedres.tables.storage` says how."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fedres.core.types import I64
from fedres.tables.classifier import FedResClassifier
from fedres.tables.client_ids import Clients, plain_id
from fedres.tables.columns import Tastes, ragged
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
from fedres.tables.stored_checks import (
    check_begins,
    check_local,
    check_mixture,
    check_posterior,
    check_shape,
    check_shared,
)

KINDS: dict[str, tuple[type[FedResEstimator], Any]] = {
    "regressor": (FedResRegressor, NumberLabels),
    "classifier": (FedResClassifier, ClassLabels),
}
WEIGHTS = ("columns", "weights", "squares")
POSTERIOR = {"start": ("columns", "across", "root_local"), "first_cell": ("cells",)}
CHOSEN = (
    "solver_", "shared_", "latent_", "eta_", "shrinkage_", "passes_", "validation_",
    "n_features_in_", "n_samples_seen_",
    "verdict_",  # in words, if the model was compared with others
    "columns_",  # which of a table's columns is what: `fedres fit` notes it, to read new tables
)  # fmt: skip
P = ParamSpec("P")
T = TypeVar("T")


def save(model: FedResEstimator, folder: str | PathLike[str], trust: Collection[str] = ()) -> None:
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
        groups["shared"] = {str(k): one.pack(trust) for k, one in enumerate(model._shared)}
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


def _one_sentence(read: Callable[P, T]) -> Callable[P, T]:
    """Raise ValueError if a folder has the digests of a model but not its content."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"the model is damaged, or of another fedres: {error!r}") from None
        except MemoryError as error:
            raise ValueError(f"the model is damaged, or larger than memory: {error}") from None

    return reading


def load_model(
    folder: str | PathLike[str], client: Any = None, trust: Collection[str] = ()
) -> FedResEstimator:
    """Return the model that was saved in a folder.

    Parameters
    ----------
    folder
        Where `save`, ``fedres fit`` or a run of Flower wrote it.
    client
        Return what this client needs and read no other's weights: the global model and its own,
        which it can predict with and go on learning.
    trust
        Full names of classes and functions that the shared model may have beside the classes of
        scikit-learn that are known to be safe to load. Trust only what you know: a folder from
        someone else can name anything that is installed, and run it.

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
    model, global_ = without_clients(stored, trust)
    if client is None:
        stored.verify()
        return with_clients(model, stored, global_, unpack_ids(stored.group("clients")).tolist())
    id_ = plain_id(client)
    row = stored.find("clients", id_)
    if row is None:
        known = [repr(one) for one in unpack_ids(stored.group("clients")).tolist()[:1]]
        such = f", such as {known[0]}" if known else ""
        raise ValueError(f"the model in {stored.folder} knows no client {id_!r}{such}")
    return with_clients(model, stored, global_, [id_], np.array([row]))


@_one_sentence
def without_clients(
    stored: Stored, trust: Collection[str] = ()
) -> tuple[FedResEstimator, dict[str, Any]]:
    """Return what of a stored model all clients share, and the arrays of it."""
    meta = stored.meta
    if meta.get("kind") not in KINDS:
        raise ValueError(
            f"{stored.folder} holds a {meta.get('kind', 'model of an unknown kind')}, not a model "
            f"that can be loaded: those are {' and '.join(KINDS)}"
        )
    cls, labels = KINDS[meta["kind"]]
    model = cls(**meta["parameters"])
    for name in CHOSEN:
        if name in meta["chosen"]:
            setattr(model, name, meta["chosen"][name])
    if meta["names"]:
        model.feature_names_in_ = np.array(meta["names"], object)
    encoder = DictEncoder if "seen" in meta["encoder"] else Encoder
    model.encoder_ = encoder.from_dict(meta["encoder"])
    labels = CountLabels if meta["parameters"].get("loss") == "poisson" else labels
    model._labels = labels.from_dict(meta["labels"])
    global_ = stored.group("global", finite=True)
    if isinstance(model.encoder_, Encoder) and "factors" in global_:
        tastes = Tastes(str(model.item), np.array(global_["factors"]))
        model.encoder_ = replace(model.encoder_, tastes=tastes)
    check_shape(ModelShape(**meta["settings"]), model.encoder_, model.method)
    check_shared(global_, meta, model.encoder_, model._labels.outputs)
    if "shared" in meta:
        texts, features = stored.group("shared"), int(model._seen.sum())
        model._shared = tuple(
            SHARED_KINDS[kind].unpack(texts[str(k)], features, trust)
            for k, kind in enumerate(meta["shared"])
        )
        if sum(index(one.outputs) for one in model._shared) != model._labels.outputs:
            raise ValueError(f"the shared models are not those of {model._labels.outputs} outputs")
    if model.shared is None:
        model.shared = _as_given(model._shared)
    return model, global_


@_one_sentence
def with_clients(
    model: FedResEstimator,
    stored: Stored,
    global_: Mapping[str, Any],
    ids: list[Any],
    rows: I64 | None = None,
) -> FedResEstimator:
    """Give a model the clients of these ids, in these rows of the stored ones; all if None."""
    meta, shape, outputs = (
        stored.meta,
        ModelShape(**stored.meta["settings"]),
        len(global_["weights"]),
    )
    local = _arrays_of(stored, "local", {"start": WEIGHTS}, rows)
    check_local(local, len(ids), shape.width_local, outputs)
    model._models = OnlineModels.unpack(shape, global_, local)
    if "posterior" in meta:
        known = _arrays_of(stored, "posterior", POSTERIOR, rows)
        rank, groups = global_["root"].shape[-1], model._groups
        check_posterior(known, meta["posterior"], local, len(groups.names), (outputs, rank))
        model._posterior = Posterior.unpack(
            meta["posterior"], global_, known, groups, model._models
        )
    if "mixture" in meta:
        own = _arrays_of(stored, "mixture", {"start": WEIGHTS}, rows)
        every = slice(None) if rows is None else rows
        own |= {name: stored.mapped("mixture", name)[every].copy() for name in ("trust", "labels")}
        check_mixture(own, meta["mixture"]["own"], len(ids), shape, outputs)
        model._models = MixedModels.unpack_beside(model._models, meta["mixture"], global_, own)
    model._clients = Clients(ids)
    return model


def _arrays_of(
    stored: Stored, group: str, names: Mapping[str, Sequence[str]], rows: I64 | None
) -> dict[str, Any]:
    """Those arrays of clients that each of `names` tells the begin of, and these begins."""
    arrays = stored.group(group) if rows is None else {}
    found: dict[str, Any] = {}
    for start, of_clients in names.items():
        if rows is None:
            found |= {name: arrays[name] for name in of_clients}
            _, counts = check_begins(arrays[start], len(arrays[of_clients[0]]))
        else:
            mapped = {name: stored.mapped(group, name) for name in of_clients}
            entries = len(mapped[of_clients[0]])
            first, counts = check_begins(stored.mapped(group, start), entries, rows)
            which = ragged(first, counts)
            found |= {name: array[which] for name, array in mapped.items()}
        found[start] = np.append(0, np.cumsum(counts))
    return found


def _as_given(shared: Sequence[SharedModel]) -> Any:
    from sklearn.base import clone

    if not shared:  # as in ``independent``
        return "linear"
    (one,) = shared
    assert isinstance(one, ForeignModel)
    return clone(one.fitted[0] if isinstance(one.fitted, list) else one.fitted)
