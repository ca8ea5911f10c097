"""Text of LightGBM models, checked before LightGBM parses it.

LightGBM allocates what the text says and follows its children and features without a look at
where they are. So its trees are read here first, line by line, and written anew under a header
of our own, with no more than predictions need.
"""

import re
from typing import Any

import numpy as np

FACTS = {"num_cat": "0", "is_linear": "0"}  # no categories, and constants in leaves
SPLITS: dict[str, type] = {
    "split_feature": np.int64,
    "threshold": np.float64,
    "decision_type": np.int64,
    "left_child": np.int64,
    "right_child": np.int64,
}
LEAVES: dict[str, type] = {"leaf_value": np.float64}
PLAIN = re.compile("[-+.0-9einfa ]*")  # numbers that Python and LightGBM read alike
DECISIONS = 12  # a bit for categories, one for where missing values go, three kinds of missing


def checked_text(text: str, features: int) -> str:
    """Return the text of the same trees; raise unless they stay inside their arrays.

    Parameters
    ----------
    text
        What LightGBM wrote, of a model of one output.
    features
        How many features rows have.
    """
    head, *trees = text.partition("\nend of trees")[0].split("\nTree=")
    header = dict(line.partition("=")[::2] for line in head.split("\n"))
    found = {name: header.get(name) for name in ("num_class", "num_tree_per_iteration")}
    if found != {"num_class": "1", "num_tree_per_iteration": "1"}:
        raise ValueError(f"they are not those of one output: {found}")
    if header.get("max_feature_idx") != str(features - 1):
        raise ValueError(
            f"the last feature is {header.get('max_feature_idx')}, where rows have {features}"
        )
    parts = [f"Tree={i}\n{_checked_tree(tree, features)}" for i, tree in enumerate(trees)]
    lines = [
        *("tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0"),
        f"max_feature_idx={features - 1}",
        f"feature_names={' '.join(f'Column_{i}' for i in range(features))}",
        f"feature_infos={' '.join(['none'] * features)}",
        f"tree_sizes={' '.join(str(len(part)) for part in parts)}",
    ]
    return "\n".join([*lines, "", f"{''.join(parts)}end of trees", ""])


def _checked_tree(text: str, features: int) -> str:
    """Return the lines of a tree that predictions need; raise if one leads outside of it."""
    number, *lines = text.strip().split("\n")
    has = dict(line.partition("=")[::2] for line in lines)
    if len(has) != len(lines) or any(has.get(name) != fact for name, fact in FACTS.items()):
        raise ValueError(f"tree {number} has lines twice, categories, or linear models in leaves")
    leaves = int(has["num_leaves"])
    kinds = {**SPLITS, **LEAVES}
    if not all(PLAIN.fullmatch(has[name]) for name in kinds):
        raise ValueError(f"tree {number} has values that are not numbers")
    values: dict[str, Any] = {
        name: np.array(has[name].split(), dtype) for name, dtype in kinds.items()
    }
    if any(len(values[name]) != leaves - (name in SPLITS) for name in values):
        raise ValueError(f"tree {number} has {leaves} leaves, and lists that are not as long")
    if not np.isfinite(values["leaf_value"]).all():  # but a threshold may be inf
        raise ValueError(f"tree {number} has values that are not finite")
    for name in ("left_child", "right_child"):
        child = values[name]
        inner, leaf = (child > np.arange(leaves - 1)) & (child < leaves - 1), ~child
        if not (inner | ((leaf >= 0) & (leaf < leaves))).all():
            raise ValueError(f"tree {number} has a child outside of it")
    if not ((values["split_feature"] >= 0) & (values["split_feature"] < features)).all():
        raise ValueError(f"tree {number} splits by a feature that is not there")
    if not np.isin(values["decision_type"], range(0, DECISIONS, 2)).all():
        raise ValueError(f"tree {number} splits in a way that is not known")
    kept = {"num_leaves": str(leaves), **FACTS, "shrinkage": str(float(has["shrinkage"]))}
    kept |= {name: has[name] for name in values}
    return "".join(f"{name}={value}\n" for name, value in kept.items()) + "\n\n"
