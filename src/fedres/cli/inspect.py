"""`fedres inspect`."""

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedres.cli import table_options as shared
from fedres.core.display import printable

if TYPE_CHECKING:
    from fedres.tables.weights import Weights

SHOWN = 10


def inspect(
    model: Annotated[Path, shared.MODEL],
    client: Annotated[
        str | None, typer.Option(help="Show this client's local model, and read no other's.")
    ] = None,
    effects: Annotated[
        bool, typer.Option("--effects", help="Print clients' weights with standard errors, as CSV.")
    ] = False,
    json: Annotated[bool, shared.JSON] = False,
) -> None:
    """Show what is in a model: features, clients, weights, and who leans on a local model.

    Weights are in units of the label (of classes: log odds) and of features as encoded: numbers
    are standardised, and a category is 0 or 1.

    Example: fedres inspect model --client 42
    """
    shared.refuse_missing(model=model)
    if effects:
        table = shared.open_model(model, None if client is None else _id(model, client)).effects_
        print(table.to_json(orient="records") if json else table.to_csv(index=False), end="")
        return
    found = _whole(model) if client is None else _one(model, client)
    if json:
        print(json_.dumps(found, indent=2))
    elif client is None:
        _print_whole(found)
    else:
        _print_one(found)


def _whole(folder: Path) -> dict[str, Any]:
    import numpy as np

    model = shared.open_model(folder)
    norms, encoder = model.local_models_.norms, model.encoder_
    leaning = np.argsort(-norms, kind="stable")[:SHOWN].tolist()
    # Without local models, as Central has none, there are no norms.
    quartiles = np.quantile(norms, [0, 0.25, 0.5, 0.75, 1]).tolist() if len(norms) else []
    return {
        "task": "classes" if hasattr(model, "predict_proba") else "numbers",
        **({"classes": model.classes_.tolist()} if hasattr(model, "predict_proba") else {}),
        "columns": getattr(model, "columns_", {"client": model.client}),
        "global": {"features": encoder.width_global, "columns": _names(encoder, "global_columns")},
        "local": {"features": encoder.width_local, "columns": _names(encoder, "local_columns")},
        "shared": _shared(model),
        "method": model.method,
        "solver": getattr(model, "solver_", "sgd"),
        "variance": _variance(model),
        "eta": model.eta_,
        "shrinkage": model.shrinkage_,
        "passes": model.passes_,
        "clients": len(model.clients_),
        "global_norm": model.global_model_.norm,
        "local_norm_quartiles": quartiles,
        "leaning_on_local_model": [
            {"client": model.clients_[i], "norm": float(norms[i])} for i in leaning
        ],
        "largest_global_weights": [
            # A shared model that is not linear leaves few columns, or none, to weights.
            one
            for one in _largest(model.global_model_)
            if not model._shared or np.any(one["weight"])
        ][:SHOWN],
    }


def _shared(model: Any) -> dict[str, Any]:
    """The kind of the shared model, and of trees how many there are."""
    kind = None if model.method == "independent" else getattr(model, "shared_", "linear")
    trees = [one.count for one in model._shared if hasattr(one, "count")]
    return {"kind": kind, **({"trees": sum(trees)} if trees else {})}


def _variance(model: Any) -> list[dict[str, Any]] | None:
    """How much of the labels' variance is whose, where that is known."""
    if model._posterior is None:  # as of sgd, and of tables that were fitted in shards
        return None
    found: list[dict[str, Any]] = model.variance_components_.to_dict("records")
    return found


def _names(encoder: Any, side: str) -> list[str] | None:
    """The names of a side's columns; a model that began with single dicts has no list of them."""
    if not hasattr(encoder, side):
        return None
    return [column.name for column in getattr(encoder, side)]


def _id(folder: Path, client: str) -> int | str:
    """What is typed is a text, even where clients are numbers."""
    from fedres.tables.client_ids import WHOLE
    from fedres.tables.storage import open_folder

    is_number = open_folder(folder).find("clients", client) is None and WHOLE.fullmatch(client)
    return int(client) if is_number else client


def _one(folder: Path, client: str) -> dict[str, Any]:
    id_ = _id(folder, client)
    model = shared.open_model(folder, id_)
    if id_ not in model.local_models_:
        raise ValueError(f"the model in {folder} is {model.method}: it has no local models")
    own = model.local_models_[id_]
    shared_weights = dict(_by_name(model.global_model_))
    return {
        "client": id_,
        "local_norm": own.norm,
        "global_norm": model.global_model_.norm,
        "weights": [
            {**weight, "global": shared_weights.get(weight["feature"])} for weight in _largest(own)
        ],
    }


def _by_name(weights: "Weights") -> list[tuple[str, Any]]:
    """Weights and the constant, by name; of several classes each is a list."""
    import numpy as np

    values = [*weights.weights.T.tolist(), np.asarray(weights.constant).tolist()]
    return list(zip([*weights.names, "constant"], values, strict=True))


def _largest(weights: "Weights") -> list[dict[str, Any]]:
    """All weights, those of most effect first."""
    import numpy as np

    by_size = sorted(_by_name(weights), key=lambda one: -np.linalg.norm(one[1]))
    return [{"feature": name, "weight": weight} for name, weight in by_size]


def _print_whole(found: dict[str, Any]) -> None:
    columns = ", ".join(f"{role} {name}" for role, name in found["columns"].items() if name)
    task = ", ".join(map(str, [found["task"], *found.get("classes", [])][:SHOWN]))
    lines = {
        "predicts": task,
        "columns": columns or "-",
        "global": _side(found["global"]),
        "local": _side(found["local"]),
        "shared": _kind(found["shared"]),
        "method": f"{found['method']}, solver {found['solver']}",
        "trained": _trained(found),
        "clients": f"{found['clients']:,}",
        "norms": f"global model {found['global_norm']:.3g}; local models, least to greatest by "
        "quartiles: " + (", ".join(f"{norm:.3g}" for norm in found["local_norm_quartiles"]) or "-"),
    }
    for name, text in lines.items():
        print(printable(f"{name:9} {text}"))
    leaning = [[str(one["client"]), one["norm"]] for one in found["leaning_on_local_model"]]
    weights = [list(one.values()) for one in found["largest_global_weights"]]
    _print_rows("Clients that lean on their local model most", ["client", "norm"], leaning)
    if weights:
        _print_rows("Largest weights of the global model", ["feature", "weight"], weights)


def _kind(shared: dict[str, Any]) -> str:
    trees = f" (LightGBM, {shared['trees']:,} trees)" if "trees" in shared else ""
    return f"{shared['kind'] or 'none'}{trees}"


def _trained(found: dict[str, Any]) -> str:
    if found["variance"] is None and found["eta"] is None:
        return "by empirical Bayes, in shards, which keep no variances"
    if found["variance"] is None:
        return f"eta {found['eta']}, shrinkage {found['shrinkage']}, passes {found['passes']}"
    # Of several classes, the largest part of any.
    by_size = sorted(found["variance"], key=lambda part: -part["share"])
    parts = {f"{part['part']} {part['column']}".strip(): part["share"] for part in by_size[::-1]}
    shown = [f"{name} {share:.0%}" for name, share in list(parts.items())[::-1] if share >= 0.005]
    return "by empirical Bayes; of the variance, " + ", ".join(shown[:SHOWN])


def _side(side: dict[str, Any]) -> str:
    if side["columns"] is None:
        return "whatever rows have, hashed"
    names = [*side["columns"][:SHOWN], *["..."] * (len(side["columns"]) > SHOWN)]
    return f"{side['features']:,} features of {', '.join(names) or 'no column'}, and a constant"


def _print_one(found: dict[str, Any]) -> None:
    rows = [list(one.values()) for one in found["weights"]]
    title = (
        f"Client {found['client']}: norm of its local model {found['local_norm']:.3g}, of the "
        f"global model {found['global_norm']:.3g}"
    )
    _print_rows(title, ["feature", "local", "global"], rows)


def _print_rows(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from fedres.report.terminal_table import terminal_table

    shown = [[escape(name), *map(_number, values)] for name, *values in rows]
    print(printable(title))
    Console().print(terminal_table(columns, shown, columns[:1]))


def _number(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_number, value))
    return "-" if value is None else f"{value:.3f}"
