"""Cold start: the first rounds of clients that join a federation which has learned without them.

The global model is trained by the others when a newcomer comes; its local model begins at zero. A
fifth of the clients join after half of the rounds. Beside them the same clients alone, with the
global model only, and when all begin together.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedres.core.participation import Participation
from fedres.core.steps import Adaptive
from fedres.simulation.engine import simulate
from fedres.simulation.intervals import interval
from fedres.simulation.regret import rows_seen
from fedres.simulation.run import Run
from fedres.simulation.run_store import RunStore
from fedres.simulation.scaling import Scale
from fedres.simulation.settings import Method
from fedres.simulation.split import federate, relabelled
from fedres.simulation.sweep import dataset

if TYPE_CHECKING:
    import pandas as pd

ROUNDS, JOIN, FIRST = 500, 250, 60  # samples seen of a newcomer: at most its first pass
LABELS = {
    "fedres": "FedRes, joining",
    "central": "Central, joining",
    "independent": "Independent",
    "together": "FedRes, all beginning together",
}


@dataclass(frozen=True)
class Newcomers:
    """A federation that clients join, and the step sizes of the methods."""

    data: str
    fingerprint: str  # of the data, so that other numbers are not taken for these
    clients: int
    seed: int
    etas: tuple[tuple[Method, float], ...]
    labels: tuple[float, float]
    clip: bool
    scale: Scale


def first_rounds(job: Newcomers) -> dict[str, list[float]]:
    """The share of newcomers whose class was predicted right, round by round since they joined."""
    dealt = federate(dataset(job.data, job.scale), job.clients, job.seed)
    federation = relabelled(dealt, job.labels)
    new = np.arange(job.clients) >= job.clients - max(1, job.clients // 5)
    joining = Participation(join=np.where(new, JOIN, 0))

    def run(method: Method, participation: Participation | None) -> list[float]:
        step = Adaptive(dict(job.etas)[method], job.clip)
        rounds = FIRST if participation is None else JOIN + FIRST
        played = simulate(
            federation, method, rounds=rounds, step=step, seed=job.seed, participation=participation
        )
        return right_by_round(played)[new, -FIRST:].mean(axis=0).tolist()  # type: ignore[no-any-return]

    return {
        "fedres": run("fedres", joining),
        "central": run("central", joining),
        "independent": run("independent", None),
        "together": run("fedres", None),
    }


def right_by_round(run: Run) -> np.ndarray:
    """Whether each prediction was on the side of its label, (clients, rounds)."""
    middle = run.federation.label_values.mean()
    labels = run.federation.train.y[rows_seen(run.federation, run.settings)]
    return np.asarray((run.predictions > middle) == (labels > middle))


def newcomers(
    jobs: list[Newcomers],
    store: RunStore,
    n_jobs: int | None = None,
    progress: str | None = None,
) -> "pd.DataFrame":
    """Accuracy of the first samples so far, a row a data set, line and number of samples."""
    import pandas as pd

    found = store.map(first_rounds, jobs, n_jobs, progress)
    rows = []
    for data in dict.fromkeys(job.data for job in jobs):
        mine = [one for job, one in zip(jobs, found, strict=True) if job.data == data]
        for line in LABELS:
            right = np.array([one[line] for one in mine])
            so_far = np.cumsum(right, axis=1) / np.arange(1, FIRST + 1)
            for samples, values in enumerate(so_far.T, start=1):
                mean, half = interval(values)
                rows.append(
                    {"data": data, "line": line, "samples": samples, "accuracy": mean, "half": half}
                )
    return pd.DataFrame(rows)
