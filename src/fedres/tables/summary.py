"""`summary()` of a fitted estimator: variance components, shared weights and how it was chosen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedres.core.display import MOST_ROWS, Displayed, Grid, first_rows
from fedres.core.types import F64
from fedres.tables.arrow import WIDEST_SOLVED
from fedres.tables.columns import Category
from fedres.tables.encoder import Encoder
from fedres.tables.labels import ClassLabels, CountLabels
from fedres.tables.verdict_words import which_shared, which_tastes

if TYPE_CHECKING:
    import pandas as pd

    from fedres.tables.estimator import FedResEstimator


@dataclass(frozen=True, repr=False)
class ModelSummary(Displayed):
    """Summary of a fitted estimator; prints as text, and as tables in a notebook.

    Attributes
    ----------
    title
        Estimator, rows and clients.
    facts
        Label, method and choices, by name.
    components
        Variance components as in `variance_components_`; None if they are not known.
    weights
        Shared weights as in `coef_`, the constant first, with standard errors where they are known
        (otherwise NaN); None if the shared model is not linear.
    notes
        What is not known, and why.
    verdict
        Result of the comparison with other methods; None if none was made.
    """

    title: str
    facts: dict[str, str]
    components: "pd.DataFrame | None"
    weights: "pd.DataFrame | None"
    notes: tuple[str, ...]
    verdict: str | None

    def _display(self) -> Iterator[str | Grid]:
        yield self.title
        yield "\n".join(f"{name}: {fact}" for name, fact in self.facts.items())
        if self.components is not None:
            table = self.components
            words = [name for name in ("class", "part", "column") if name in table]
            rows = [
                [*map(str, row[words]), f"{row['variance']:.4g}", f"{row['share']:.1%}"]
                for _, row in table.iterrows()
            ]
            yield "Variance components"
            heads = [*words, "variance", "share"]
            yield from _some(Grid(heads, rows, len(words)), "components")
        if self.weights is not None:
            table = self.weights
            words = [name for name in ("class", "column") if name in table]
            has_errors = bool(table["standard_error"].notna().any())
            heads = [*words, "weight", *["standard error", "z"] * has_errors]
            rows = [
                [*map(str, row[words]), *_numbers(row["weight"], row["standard_error"], has_errors)]
                for _, row in table.iterrows()
            ]
            yield "Shared weights, in units of the columns"
            yield from _some(Grid(heads, rows, len(words)), "weights")
        yield from self.notes
        if self.verdict is not None:
            yield f"Verdict: {self.verdict}"


def _some(grid: Grid, name: str) -> Iterator[str | Grid]:
    """Yield the first rows of a table, and where the others are."""
    yield grid._replace(rows=first_rows(grid.rows))
    if len(grid.rows) > MOST_ROWS:
        yield f"All {len(grid.rows):,} rows: summary().{name}"


def summarise(model: "FedResEstimator") -> ModelSummary:
    """Return the summary of a fitted estimator."""
    posterior = model._posterior
    notes = []
    components = None
    if posterior is None:
        notes.append(f"no variance components: {_no_posterior(model)}")
    else:
        components = model.variance_components_
        notes += _on_components(model, components)
    weights = None
    if hasattr(model, "coef_"):
        weights, why = _weights(model)
        notes += [f"no standard errors: {why}"] if why else []
        columns = [] if why else model.encoder_.global_columns  # type: ignore[union-attr]
        names = [column.name for column in columns if isinstance(column, Category)]
        if names:
            notes.append(
                f"standard errors of categories, such as those of {names[0]}, are not those of "
                "their differences: what all of them have in common, the constant may have as well"
            )
    else:
        notes.append(f"no shared weights, no standard errors: {_no_weights(model)}")
    return ModelSummary(
        title_of(model),
        _facts(model),
        components,
        weights,
        tuple(notes),
        getattr(model, "verdict_", None),
    )


def _on_components(model: "FedResEstimator", components: "pd.DataFrame") -> list[str]:
    what = "labels"
    if isinstance(model._labels, ClassLabels):
        what = "log odds, whose residual is pi^2 / 3"
    elif isinstance(model._labels, CountLabels):
        what = "the logarithm of the mean"
    notes = [f"share: of the variance of {what}; variance times the mean square of the features"]
    own = components[components["part"] == "client"].groupby("column", sort=False)["variance"].max()
    if names := [str(name) for name in own.index[own == 0]]:
        notes.append(f"no weights of clients for {', '.join(names[:10])}: their variance is 0")
    return notes


def title_of(model: "FedResEstimator") -> str:
    """Return the kind of a fitted estimator and what it was fitted to, in one line."""
    rows, clients = getattr(model, "n_samples_seen_", None), len(model.clients_)
    of_rows = "rows" if rows is None else f"{rows:,} row{'s' * (rows != 1)}"
    of_clients = f"{clients:,} client{'s' * (clients != 1)}"
    return f"{type(model).__name__} fitted to {of_rows} of {of_clients}"


def shared_line(model: "FedResEstimator") -> tuple[F64, F64]:
    """Return weights, (outputs, features), and constants of the shared model in original units."""
    if why := _no_weights(model):
        raise AttributeError(f"this model has no coef_ and intercept_: {why}")
    scale, origin = model.encoder_.units_global  # type: ignore[union-attr]
    factor, shift = model._labels.units
    w = factor * model._models.w_global.astype(np.float64)
    weights = w[:, :-1] * scale
    return weights, w[:, -1] + shift - weights @ origin


def _no_weights(model: "FedResEstimator") -> str | None:
    """Return why a model has no shared weights in units of columns, or None if it has."""
    if model._shared:
        return f"the shared model is not linear ({model.shared_})"
    if model.method == "independent":
        return "method='independent' has no shared model"
    if model.method == "mixture":
        return "method='mixture' predicts by several models; see global_model_"
    if not isinstance(model.encoder_, Encoder):
        return "it began with learn_one, whose features are hashed; see global_model_"
    return None


def _no_posterior(model: "FedResEstimator") -> str:
    if model.solver_ == "bayes":
        return "a table fitted in shards keeps none"
    return f"solver={model.solver_!r} estimates none; fit with solver='bayes'"


def _weights(model: "FedResEstimator") -> tuple["pd.DataFrame", str | None]:
    """Return shared weights with standard errors, and why there are none."""
    import pandas as pd

    encoder, posterior = model.encoder_, model._posterior
    weights, constant = shared_line(model)
    values = np.column_stack([constant, weights])
    errors, why = np.full_like(values, np.nan), None
    if posterior is None:
        why = _no_posterior(model)
    elif len(values[0]) > WIDEST_SOLVED:
        why = f"the shared model has more than {WIDEST_SOLVED:,} features"
    else:
        scale, origin = encoder.units_global  # type: ignore[union-attr]
        for k in range(len(values)):
            variance, of_constant = posterior.shared_variances(k, np.append(-scale * origin, 1.0))
            parts = np.append(of_constant, scale**2 * variance[:-1])
            errors[k] = model._labels.units[0] * np.sqrt(parts)
    names = ["constant", *encoder.names_global]
    tables = [
        pd.DataFrame({"column": names, "weight": values[k], "standard_error": errors[k]})
        for k in range(len(values))
    ]
    if len(tables) > 1:
        for table, output in zip(tables, model._labels.names, strict=True):
            table.insert(0, "class", output)
    return pd.concat(tables, ignore_index=True), why


def _facts(model: "FedResEstimator") -> dict[str, str]:
    encoder = model.encoder_
    facts = {
        "label": _label(model),
        "method": f"{model.method}, solver {model.solver_}",
        "shared model": _side(model.shared_, encoder, "global", model.method != "independent"),
        "local models": _side("linear", encoder, "local", model.method != "central"),
    }
    if model.offset is not None:
        facts["offset"] = f"column {model.offset}, added to the sum of both models"
    trials = model.validation_
    losses: dict[Any, float]
    if losses := {one["shared"]: one["loss"] for one in trials if "shared" in one}:
        facts["validation losses"] = _losses(losses)
        if {"linear", "trees"} <= set(losses):
            facts["chosen"] = str(which_shared(losses, model.shared_)).removeprefix(
                "Shared model: "
            )
    if losses := {one["taste_strength"]: one["loss"] for one in trials if "taste_strength" in one}:
        facts["validation losses"] = _losses(
            {f"taste strength {k:g}": v for k, v in losses.items()}
        )
        facts["tastes"] = str(which_tastes(losses, model.latent_)).removeprefix("Tastes: ")
    if model.eta_ is not None:
        facts["step"] = (
            f"eta {model.eta_:g}, shrinkage {model.shrinkage_:g}, passes {model.passes_}"
        )
        if tried := [one["loss"] for one in trials if np.isfinite(one["loss"])]:
            facts["validation losses"] = f"{min(tried):.4g}, the lowest of {len(tried)} tried"
    return facts


def _label(model: "FedResEstimator") -> str:
    labels = model._labels
    name = (getattr(model, "columns_", None) or {}).get("label")
    if isinstance(labels, ClassLabels):
        classes = list(map(str, labels.classes.tolist()))
        more = f" and {len(classes) - 8} more" if len(classes) > 8 else ""
        what = f"classes {', '.join(classes[:8])}{more}"
    else:
        kind = "counts" if isinstance(labels, CountLabels) else "numbers"
        what = f"{kind} from {labels.low:g} to {labels.high:g}"
    return what if name is None else f"{name}, {what}"


def _side(kind: str, encoder: Any, side: str, exists: bool) -> str:
    if not exists:
        return "none"
    if not isinstance(encoder, Encoder):
        return f"{kind}, hashed features"
    columns, width = getattr(encoder, f"{side}_columns"), getattr(encoder, f"width_{side}")
    of_columns = f"{len(columns):,} column{'s' * (len(columns) != 1)}"
    return f"{kind}, {width:,} feature{'s' * (width != 1)} of {of_columns}, and a constant"


def _losses(losses: dict[Any, float]) -> str:
    return ", ".join(f"{name} {loss:.4g}" for name, loss in losses.items())


def _numbers(weight: float, error: float, has_errors: bool) -> list[str]:
    shown = [f"{weight:.4g}"]
    if not has_errors:
        return shown
    if np.isnan(error):
        return [*shown, "", ""]
    return [*shown, f"{error:.4g}", f"{weight / error:.2f}" if error > 0 else ""]
