"""Many binary tasks from one multiclass data set (section 6.1 of the paper).

1. |A| = floor(0.3 K) random classes are merged into the class C0.
2. The samples of A are dealt to all P clients, N <= N0 each, no sample twice.
3. The samples of every other class are cut into buckets of N; each client gets a random one.

So every client tells C0 (label 1) from one other class (label -1) with 2 N balanced samples.
A random half of the features is global, the other half local.
"""

from typing import Literal

import numpy as np

from fedres.data.dataset import Dataset, load
from fedres.data.federation import Federation, Rows
from fedres.data.views import matrix_view
from fedres.types import F32, I64

REDRAWS = 100


def federate(
    data: str | Dataset,
    clients: int = 10,
    seed: int = 0,
    *,
    samples: int = 30,
    fewest: int = 10,
    local: Literal["rest", "all"] = "rest",
    test_samples: int = 50,
) -> Federation:
    """Deal a multiclass data set to clients as the paper does.

    Parameters
    ----------
    data
        A data set or the name of one.
    clients
        P.
    seed
        Decides the classes, the deal, the features and the test rows.
    samples
        N0, the most samples a client gets of each of its two classes. Where the data do not
        suffice, N is less.
    fewest
        Below this N the merged classes are drawn again.
    local
        Local features: the half that is not global (``rest``), or ``all``.
    test_samples
        The most test rows a client gets of each of its two classes.

    Examples
    --------
    >>> federation = federate("digits", clients=10, seed=0)
    >>> federation.train.counts
    array([60, 60, 60, 60, 60, 60, 60, 60, 60, 60])
    >>> federation.width_global
    32
    """
    dataset = load(data) if isinstance(data, str) else data
    if clients < 1:
        raise ValueError(f"clients must be at least 1, not {clients}")
    if not 1 <= fewest <= samples:
        raise ValueError(f"need 1 <= fewest <= samples, not fewest={fewest}, samples={samples}")
    if local not in ("rest", "all"):
        raise ValueError(f"local must be 'rest' or 'all', not {local!r}")
    if not np.isfinite(dataset.x).all():
        raise ValueError(f"{dataset.name} has features that are not finite: remove such rows")
    rng = np.random.default_rng(seed)
    train, test = _held_out(dataset, rng)
    y = dataset.y[train]
    classes = np.unique(y)
    if len(classes) < 4:
        raise ValueError(
            f"{dataset.name} has {len(classes)} classes: at least 4 are needed to merge 30% of "
            "them and still have different tasks"
        )

    possible = 0
    for redraws in range(REDRAWS):  # noqa: B007
        merged = rng.choice(classes, int(0.3 * len(classes)), replace=False)
        shared = rng.permutation(train[np.isin(y, merged)])
        others = [rng.permutation(train[y == c]) for c in classes if c not in merged]
        n = _bucket_size(len(shared), [len(rows) for rows in others], clients, samples)
        if n >= fewest:
            break
        possible = max(
            possible, min(len(shared) // fewest, sum(len(rows) // fewest for rows in others))
        )
    else:
        raise ValueError(
            f"{dataset.name} cannot supply {clients} clients with {fewest} samples a class: "
            f"at most {possible} clients are possible; ask for fewer or lower `fewest`"
        )

    buckets = np.concatenate([rows[: len(rows) // n * n].reshape(-1, n) for rows in others])
    dealt = buckets[rng.permutation(len(buckets))[:clients]]
    rows = np.hstack([shared[: clients * n].reshape(clients, n), dealt])
    labels = np.tile(np.repeat(np.array([1, -1], np.float32), n), clients)
    tasks = dataset.y[dealt[:, 0]]

    x_test = dataset.x if dataset.x_test is None else dataset.x_test
    y_test = (dataset.y if dataset.y_test is None else dataset.y_test)[test]
    test_shared = test[np.isin(y_test, merged)]
    test_rows, test_labels = [], []
    for task in tasks:
        own = test[y_test == task]
        m = min(len(test_shared), len(own), test_samples)
        test_rows.append(
            np.concatenate([rng.choice(pool, m, replace=False) for pool in (test_shared, own)])
        )
        test_labels.append(np.repeat(np.array([1, -1], np.float32), m))

    width = dataset.x.shape[1]
    columns = rng.permutation(width)
    is_global = np.sort(columns[: width // 2])
    is_local = np.sort(columns[width // 2 :]) if local == "rest" else np.arange(width)

    def gather(x: F32, rows: list[I64], labels: F32) -> Rows:
        row_start = np.concatenate([[0], np.cumsum([len(part) for part in rows])]).astype(np.int64)
        picked = x[np.concatenate(rows)]
        x_global, x_local = (np.take(picked, side, axis=1) for side in (is_global, is_local))
        return Rows(
            matrix_view(x_global, row_start), matrix_view(x_local, row_start), labels, row_start
        )

    return Federation(
        tuple(range(clients)),
        gather(dataset.x, list(rows), labels),
        gather(x_test, test_rows, np.concatenate(test_labels)),
        np.flatnonzero(~np.isin(is_local, is_global)) if local == "all" else None,
        dataset.name,
        {"merged": merged.tolist(), "tasks": tasks.tolist(), "samples": n, "redraws": redraws},
    )


def _held_out(dataset: Dataset, rng: np.random.Generator) -> tuple[I64, I64]:
    """Which rows train and which test: the data set's own split, or a random third to test."""
    if dataset.y_test is not None:
        return np.arange(len(dataset.y)), np.arange(len(dataset.y_test))
    rows = rng.permutation(len(dataset.y))
    return rows[len(rows) // 3 :], rows[: len(rows) // 3]


def _bucket_size(shared: int, others: list[int], clients: int, samples: int) -> int:
    """N: the most samples, up to N0, of which every client can have that many of each class."""
    n = min(samples, shared // clients)
    while n > 0 and sum(rows // n for rows in others) < clients:
        n -= 1
    return n
