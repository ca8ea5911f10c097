"""Many configurations: on the cores of one machine or the machines of a Ray cluster."""

import json
import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedres.core.sgd import ALIGNMENTS, Alignment
from fedres.core.source import digest, digest_of_code
from fedres.core.steps import Adaptive, Sgd
from fedres.simulation.dataset import Dataset
from fedres.simulation.engine import simulate
from fedres.simulation.parallel import map_in_processes, with_bar
from fedres.simulation.run_store import ROOMS, RunStore
from fedres.simulation.scaling import Scale, scaled_data
from fedres.simulation.settings import (
    METHODS,
    OPTIONS,
    SGD_METHODS,
    Method,
    SgdOptions,
    choose,
    known_by,
)
from fedres.simulation.split import Labels, federate, relabelled

if TYPE_CHECKING:
    import pandas as pd

Backend = Literal["joblib", "ray"]


@dataclass(frozen=True)
class Case:
    """One run of a sweep: a federation of the paper's split, and a method on it."""

    data: str
    clients: int
    seed: int
    method: Method
    delay: int = 0
    alignment: Alignment = "arrival"
    step: Literal["adaptive", "sgd"] = "adaptive"
    eta: float = 0.5
    rounds: int = 500
    residual_bits: int = 32
    local: Literal["rest", "all"] = "rest"
    local_eta: float | None = None
    batch: int = 1
    ridge: float = 0.0
    labels: Labels = (-1.0, 1.0)
    clip: bool = True
    scale: Scale = "given"

    def __post_init__(self) -> None:
        choose("method", self.method, METHODS)
        choose("alignment", self.alignment, ALIGNMENTS)

    @property
    def federation(self) -> tuple[str, Scale, int, int, str]:
        """What its federation is made of: cases that share it are run together."""
        return (self.data, self.scale, self.clients, self.seed, self.local)

    def work(self) -> "Case":
        """The case that decides the outcome: Independent is the same whatever the delay."""
        if self.method == "independent":
            return replace(self, delay=0, alignment="arrival", residual_bits=32)
        silent = self.method in ("central", "fedres-erm")  # they send no residuals
        return replace(self, residual_bits=32) if silent else self

    def options(self) -> dict[str, Any]:
        """What its method is asked for, of what not all methods know."""
        own: dict[str, Any] = {"ridge": self.ridge or None}
        if issubclass(OPTIONS[self.method], SgdOptions):
            local = None if self.local_eta is None else self._step(self.local_eta)
            own |= {"step": self._step(self.eta), "local_step": local}
        if "alignment" in known_by(self.method):
            own["alignment"] = self.alignment
        if self.residual_bits != 32:
            own["residual_bits"] = self.residual_bits
        return own

    def _step(self, eta: float) -> Adaptive | Sgd:
        return Adaptive(eta, self.clip) if self.step == "adaptive" else Sgd(eta)

    def key(self) -> str:
        """Its name in a store."""
        facts = json.dumps(vars(self.work()), sort_keys=True)
        numbers = fingerprint(self.data, self.scale)
        return digest(facts.encode(), digest_of_code(*ROOMS).encode(), numbers.encode())


def sweep(
    data: str | Sequence[str],
    methods: Sequence[Method] = SGD_METHODS,
    clients: Sequence[int] = (10,),
    delays: Sequence[int] = (0,),
    seeds: int = 10,
    rounds: int = 500,
    *,
    alignment: Alignment = "arrival",
    eta: float = 0.5,
    residual_bits: Sequence[int] = (32,),
    local: Literal["rest", "all"] = "rest",
    store: str | Path | None = None,
    n_jobs: int | None = None,
    backend: Backend = "joblib",
    progress: bool = False,
) -> "pd.DataFrame":
    """Run every combination and return a table with one row a run.

    Parameters
    ----------
    data
        Names or paths of data sets.
    methods, clients, delays, rounds, alignment, residual_bits
        As in `simulate`; every combination is run, with the adaptive step.
    seeds
        How many federations of each kind.
    eta
        Step size.
    local
        Local features: the half that is not global (``rest``), or ``all``.
    store
        A file that keeps finished runs: what is in it is not run again.
    n_jobs
        Cores to use with joblib; None for all.
    backend
        ``joblib`` (processes of this machine) or ``ray`` (a Ray cluster, or a local one).
    progress
        Whether to show a progress bar.

    Returns
    -------
    pandas.DataFrame
        The settings of each run, then accuracy, loss, bytes_up, bytes_down, seconds (in
        compiled code), samples (N of the split), redraws, and `problem`: why a run was not
        possible.

    Examples
    --------
    >>> table = sweep("digits", clients=[5], delays=[0, 20], seeds=2, rounds=60)
    >>> table.groupby(["method", "delay"]).accuracy.count()["fedres", 20]
    np.int64(2)
    """
    names = [data] if isinstance(data, str) else list(data)
    cases = [
        Case(name, p, seed, method, delay, alignment, "adaptive", eta, rounds, bits, local)
        for name in names
        for p in clients
        for seed in range(seeds)
        for method in methods
        for delay in delays
        for bits in residual_bits
    ]
    return run_cases(
        cases,
        RunStore(None if store is None else Path(store)),
        n_jobs=n_jobs,
        backend=backend,
        progress="sweeping" if progress else None,
    )


def run_cases(
    cases: Sequence[Case],
    store: RunStore,
    *,
    n_jobs: int | None = None,
    backend: Backend = "joblib",
    progress: str | None = None,
) -> "pd.DataFrame":
    """Run what the store does not hold, keep it there, and return all as a table.

    ``table.attrs["new"]`` says how much was run: client-rounds, and seconds in compiled code.
    """
    import pandas as pd

    if not cases:
        raise ValueError("there is nothing to run: name at least one data set and one seed")
    keys = {case: case.key() for case in dict.fromkeys(cases)}
    done = store.get(set(keys.values()))
    groups: dict[tuple[Any, ...], dict[str, Case]] = defaultdict(dict)
    for case, key in keys.items():
        if key not in done:
            groups[case.federation][key] = case.work()
    new = {"client_rounds": 0, "seconds": 0.0}
    todo = list(groups.values())
    choose("backend", backend, ("joblib", "ray"))
    if backend == "ray":
        finished = run_on_ray(todo, progress)
    else:
        finished = map_in_processes(run_group, todo, n_jobs, progress)
    for rows in finished:
        store.put(rows)
        done |= rows
        new["seconds"] += sum(row["seconds"] or 0.0 for row in rows.values())
    for group in todo:
        new["client_rounds"] += sum(case.clients * case.rounds for case in group.values())
    table = pd.DataFrame([vars(case) | done[keys[case]] for case in cases])
    table.attrs["new"] = new
    return table


def run_group(group: dict[str, Case]) -> dict[str, dict[str, Any]]:
    """Run cases that share a federation; a federation that cannot be is a row that says so."""
    first = next(iter(group.values()))
    try:
        data = dataset(first.data, first.scale)
        dealt = federate(data, first.clients, first.seed, local=first.local)
    except ValueError as error:
        blank = dict.fromkeys(("accuracy", "loss", "bytes_up", "bytes_down", "seconds"))
        blank |= {"samples": 0, "redraws": 0, "problem": str(error)}
        return dict.fromkeys(group, blank)
    rows = {}
    federations = {case.labels: relabelled(dealt, case.labels) for case in group.values()}
    for key, case in group.items():
        federation = federations[case.labels]
        shared = {name: getattr(case, name) for name in ("rounds", "delay", "batch", "seed")}
        run = simulate(federation, case.method, **shared, **case.options())
        rows[key] = {
            "accuracy": run.accuracy,
            "loss": run.loss if np.isfinite(run.loss) else None,
            "bytes_up": run.bytes_up,
            "bytes_down": run.bytes_down,
            "seconds": run.seconds,
            "samples": federation.facts["samples"],
            "redraws": federation.facts["redraws"],
            "problem": "",
        }
    return rows


def run_on_ray(
    groups: list[dict[str, Case]], progress: str | None
) -> Iterator[dict[str, dict[str, Any]]]:
    """Results as they come. Every machine needs fedres and the data sets (FEDRES_DATA)."""
    try:
        import ray
    except ImportError:
        raise ValueError("the Ray backend needs Ray: pip install 'fedres[ray]'") from None

    if not ray.is_initialized():
        # A cluster if RAY_ADDRESS names one; otherwise this machine, and no one else may connect.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        here = "RAY_ADDRESS" not in os.environ
        local: dict[str, Any] = {"_node_ip_address": "127.0.0.1"} if here else {}
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **local)
    run = ray.remote(_run_there)
    data_folder = os.environ.get("FEDRES_DATA")

    def results() -> Iterator[dict[str, dict[str, Any]]]:
        waiting = [run.remote(group, data_folder) for group in groups]
        while waiting:
            ready, waiting = ray.wait(waiting)
            yield from ray.get(ready)

    return with_bar(results(), len(groups), progress)


def _run_there(group: dict[str, Case], data_folder: str | None) -> dict[str, dict[str, Any]]:
    if data_folder is not None:
        os.environ.setdefault("FEDRES_DATA", data_folder)
    return run_group(group)


@cache
def dataset(name: str, scale: Scale = "given") -> Dataset:
    """A data set, read once a process."""
    return scaled_data(name, scale)


@cache
def fingerprint(name: str, scale: Scale = "given") -> str:
    """A name for the numbers in a data set."""
    data = dataset(name, scale)
    parts = (data.x, data.y, data.x_test, data.y_test)
    return digest(data.name.encode(), *(part.tobytes() for part in parts if part is not None))
