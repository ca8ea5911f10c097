"""Checks of models of scikit-learn that come from a file.

The compiled code of trees and sparse matrices follows the indices it finds, and much of the rest
allocates as many numbers as an attribute says. So an index must be inside its array, and a count
must not exceed the bytes that the model takes as a file. Classes whose compiled code relies on
more than that (nearest neighbours, kernel machines, gradient boosting that is not by histograms,
one-hot encoders) are not on the list of `fedres.tables.skops_files`.
"""

from operator import index
from typing import Any

import numpy as np
from scipy import sparse

from fedres.core.random_state import bit_generator

COUNTS = (
    "_n_out_full", "n_classes_", "n_components", "n_jobs", "n_output_features_", "n_outputs_",
    "n_trees_per_iteration_",
)  # fmt: skip
LEAF = -1
BITSET = 8  # words that have a bit for each of 256 categories


def refuse_unsafe(model: Any, size: int, is_trusted: bool = False) -> None:
    """Raise if predictions of a model would read or allocate beyond what it holds.

    Parameters
    ----------
    model
        Estimators of scikit-learn's kind, and lists and numbers around them.
    size
        Bytes that it takes as a file.
    is_trusted
        Whether its file has classes that a caller trusts by name.
    """
    left, seen = [model], set()
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, str | int | float | type | None):
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple | set):
            left += one
        elif isinstance(one, np.ndarray):
            left += one.flat if one.dtype == object else []
        elif sparse.issparse(one):
            one.check_format(full_check=True)
        elif isinstance(one, np.random.RandomState):
            bit_generator(one.get_state(legacy=False))
        elif isinstance(one, np.random.Generator):
            bit_generator(one.bit_generator.state)
        elif type(one).__module__ == "sklearn.tree._tree":
            raise ValueError("a tree is not part of an estimator, which would check its rows")
        elif hasattr(one, "__dict__"):
            left += _checked_attributes(one, size, is_trusted).values()


def _checked_attributes(one: Any, size: int, is_trusted: bool) -> dict[str, Any]:
    """Return what else of an object is to be checked; raise if its methods cannot rely on it."""
    has, kind = dict(vars(one)), type(one).__name__
    for name in has:
        if not is_trusted and callable(getattr(type(one), name, None)):
            raise ValueError(f"{kind}.{name} is a method, and no attribute")
    for name in COUNTS:
        for count in np.ravel(has.get(name, 0)).tolist():
            if isinstance(count, int) and count > size:
                raise ValueError(f"{kind}.{name} is {count}, in a model of {size} bytes")
    if type(one).__module__.startswith("sklearn.") and has.get("memory") is not None:
        raise ValueError(f"{kind} has a folder to cache in: call set_params(memory=None)")
    if type(has.get("tree_")).__module__ == "sklearn.tree._tree":
        tree = has.pop("tree_")
        if tree.n_features != index(one.n_features_in_) or tree.node_count > tree.capacity:
            raise ValueError(f"the tree of {kind} has other numbers of features or nodes")
        nodes = tree.__getstate__()["nodes"]
        leaf = nodes["left_child"] == LEAF
        if (nodes["right_child"][leaf] != LEAF).any():
            raise ValueError(f"a tree of {kind} has a leaf with a child")
        _refuse_nodes(nodes["left_child"], nodes["right_child"], nodes["feature"], leaf, one)
    if "_predictors" in has and type(one).__module__.startswith("sklearn."):
        _refuse_predictors(one, is_trusted)
    return has


def _refuse_predictors(model: Any, is_trusted: bool) -> None:
    """Raise unless the trees of histogram-based boosting stay inside their arrays."""
    categorical = np.asarray(model._bin_mapper.is_categorical_, bool)
    # What a transformer before it makes of rows is not counted again before its trees see it.
    if categorical.shape != (index(model.n_features_in_),) or (
        model._preprocessor is not None and not is_trusted
    ):
        raise ValueError(f"features of {type(model).__name__} are not those of its bins")
    for tree in (tree for step in model._predictors for tree in step):
        nodes, bits = tree.nodes, tree.raw_left_cat_bitsets
        leaf, splits = nodes["is_leaf"] != 0, nodes["is_categorical"] != 0
        _refuse_nodes(nodes["left"], nodes["right"], nodes["feature_idx"], leaf, model)
        splits &= ~leaf
        if bits.ndim != 2 or (len(bits) and bits.shape[1] != BITSET):
            raise ValueError(f"sets of categories have the shape {bits.shape}")
        if (nodes["bitset_idx"][splits] >= len(bits)).any():
            raise ValueError("a split of a tree has no set of categories")
        if not categorical[nodes["feature_idx"][splits]].all():
            raise ValueError("a split of a tree by categories is of a number")


def _refuse_nodes(left: Any, right: Any, feature: Any, leaf: Any, model: Any) -> None:
    """Raise unless children come after their parents, and features are those of the model."""
    inner, node = ~leaf, np.arange(len(leaf))
    for child in (left.astype(np.int64), right.astype(np.int64)):
        if not ((child > node) & (child < len(node)))[inner].all():
            raise ValueError(f"a tree of {type(model).__name__} has a child outside of it")
    if not (len(node) and ((feature >= 0) & (feature < model.n_features_in_))[inner].all()):
        raise ValueError(f"a tree of {type(model).__name__} splits by a feature that is not there")
