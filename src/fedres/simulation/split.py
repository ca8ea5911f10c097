"""Many binary tasks from one multiclass data set (section 6.1 of the paper).

1. |A| = floor(0.3 K) random classes are merged into the class C0.
2. The samples of A are dealt to all P clients, N <= N0 each, no sample twice.
3. The samples of every other class are cut into buckets of N; each client gets a random one.

So every client tells C0 (label 1) from one other class (label -1) with 2 N balanced samples.
A random half of the features is global, the other half local.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from fedres.core.types import F32, I64
from fedres.core.views import bad_value, matrix_view
from fedres.simulation.dataset import Dataset, load_data
from fedres.simulation.federation import Federation, Rows
from fedres.simulation.settings import at_least_1

Labels = tuple[float, float]  # of the client's other class, and of C0
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
    dataset = load_data(data) if isinstance(data, str) else data
    at_least_1(clients=clients)
    if not 1 <= fewest <= samples:
        raise ValueError(f"need 1 <= fewest <= samples, not fewest={fewest}, samples={samples}")
    if local not in ("rest", "all"):
        raise ValueError(f"local must be 'rest' or 'all', not {local!r}")
    if dataset.deal is not None:
        return dataset.deal(clients, seed)
    rng = np.random.default_rng(seed)
    own_test = dataset.y_test is not None
    rows, test_rows = dataset.rows_by_class
    classes = np.array(list(rows))
    # Without test rows of its own a set keeps a third of each class for testing.
    sizes = np.array([len(rows[c]) if own_test else len(rows[c]) - len(rows[c]) // 3 for c in rows])
    if len(classes) < 4:
        raise ValueError(
            f"{dataset.name} has {len(classes)} classes: at least 4 are needed to merge 30% of "
            "them and still have different tasks"
        )

    possible = 0
    for redraws in range(REDRAWS):  # noqa: B007
        merged = np.sort(rng.choice(len(classes), int(0.3 * len(classes)), replace=False))
        others = np.delete(np.arange(len(classes)), merged)
        shared = int(sizes[merged].sum())
        n = _bucket_size(shared, sizes[others], clients, samples)
        if n >= fewest:
            break
        possible = max(possible, min(shared // fewest, int((sizes[others] // fewest).sum())))
    else:
        raise ValueError(
            f"{dataset.name} cannot supply {clients} clients with {fewest} samples a class: "
            f"at most {possible} clients are possible; ask for fewer or lower `fewest`"
        )

    def deal(group: I64, buckets: int) -> tuple[I64, I64]:
        """Rows for so many buckets from these classes, and other rows of theirs to test on."""
        pool = np.concatenate([rows[c] for c in classes[group]])
        if own_test:
            tests = np.concatenate([test_rows[c] for c in classes[group]])
            return rng.choice(pool, buckets * n, replace=False), tests
        # A test row more than can ever be asked for need not be drawn.
        spare = min(len(pool) - int(sizes[group].sum()), 10 * test_samples)
        drawn = rng.choice(pool, buckets * n + spare, replace=False)
        return drawn[: buckets * n], drawn[buckets * n :]

    common, test_common = deal(merged, clients)
    taken = rng.multivariate_hypergeometric(sizes[others] // n, clients)
    decks = {int(c): deal(np.array([c]), int(k)) for c, k in zip(others, taken, strict=True) if k}
    tasks = rng.permutation(np.repeat(others, taken))
    next_bucket = dict.fromkeys(decks, 0)
    picked, labels, test_picked, test_labels = [], [], [], []
    for i, task in enumerate(tasks.tolist()):
        bucket, tests = decks[task]
        k = next_bucket[task]
        next_bucket[task] += 1
        picked.append(np.concatenate([common[i * n : (i + 1) * n], bucket[k * n : (k + 1) * n]]))
        labels.append(np.repeat(np.array([1, -1], np.float32), n))
        m = min(len(test_common), len(tests), test_samples)
        test_picked += [rng.choice(pool, m, replace=False) for pool in (test_common, tests)]
        test_labels.append(np.repeat(np.array([1, -1], np.float32), m))

    width = dataset.x.shape[1]
    columns = rng.permutation(width)
    is_global = np.sort(columns[: width // 2])
    is_local = np.sort(columns[width // 2 :]) if local == "rest" else np.arange(width)

    def gather(x: F32, picked: list[I64], labels: list[F32]) -> Rows:
        row_start = np.concatenate([[0], np.cumsum([len(part) for part in labels])])
        chosen = x[np.concatenate(picked)]
        if not np.isfinite(chosen).all():
            raise ValueError(f"{dataset.name} has {bad_value(chosen)}: remove such rows")
        x_global, x_local = (
            matrix_view(np.take(chosen, side, axis=1), row_start) for side in (is_global, is_local)
        )
        return Rows(x_global, x_local, np.concatenate(labels), row_start)

    x_test = dataset.x if dataset.x_test is None else dataset.x_test
    return Federation(
        tuple(range(clients)),
        gather(dataset.x, picked, labels),
        gather(x_test, test_picked, test_labels),
        np.flatnonzero(~np.isin(is_local, is_global)) if local == "all" else None,
        dataset.name,
        {
            "merged": classes[merged].tolist(),
            "tasks": classes[tasks].tolist(),
            "samples": n,
            "redraws": redraws,
        },
    )


def relabelled(federation: Federation, labels: Labels) -> Federation:
    """The same federation with other numbers for its two labels.

    Examples
    --------
    >>> relabelled(federate("digits", clients=2), (1.0, 2.0)).label_values
    array([1., 2.], dtype=float32)
    """
    low, high = labels
    if labels == (-1.0, 1.0):
        return federation
    if not np.isin(federation.label_values, (-1.0, 1.0)).all():
        raise ValueError(
            f"{federation.name} has labels other than -1 and 1: leave them as they are"
        )

    def coded(rows: Rows) -> Rows:
        return replace(rows, y=np.where(rows.y > 0, high, low).astype(np.float32))

    test = None if federation.test is None else coded(federation.test)
    return replace(federation, train=coded(federation.train), test=test)


def _bucket_size(shared: int, others: I64, clients: int, samples: int) -> int:
    """N: the most samples, up to N0, of which every client can have that many of each class."""
    n = min(samples, shared // clients)
    while n > 0 and (others // n).sum() < clients:
        n -= 1
    return n
