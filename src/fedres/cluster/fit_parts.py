"""`fedres fit` on a table that does not fit into memory.

One stream of rows is sketched (`sketches`), a second is encoded and dealt to shards (`shards`), and
a solver works on these (`shard_bayes`, `shard_sgd`). Which method to train is judged on all rows of
some clients, as many as fit easily, by what judges a table in memory (`compare_on_table`).
"""

import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fedres.cluster import shard_bayes, shard_sgd
from fedres.cluster.checkpoint import kept, work_folder
from fedres.cluster.client_keys import keys_of, uniform
from fedres.cluster.client_sample import ClientSample, some_rows
from fedres.cluster.local_parts import GlobalState
from fedres.cluster.memory import (
    count_shards,
    free_memory,
    judged_rows,
    refuse_too_little,
    rows_at_once,
    shown_size,
)
from fedres.cluster.model_writer import write_model
from fedres.cluster.row_progress import with_rate
from fedres.cluster.shards import Layout, Shard, ShardWriter, open_shards
from fedres.cluster.sketches import TableSketch
from fedres.core import state_files
from fedres.core.files import FULL_DISK, whole_file
from fedres.core.types import F64
from fedres.reading.table_files import TableFiles
from fedres.simulation.parallel import count_cores
from fedres.tables.arrow import TooWideError
from fedres.tables.cell_values import as_floats
from fedres.tables.empirical_bayes import MOST_ROWS
from fedres.tables.encoder import Encoder, EstimatorMethod
from fedres.tables.input_rows import Input
from fedres.tables.judging import compare_on_table, estimator_for
from fedres.tables.labels import ClassLabels, NumberLabels
from fedres.tables.online_models import ModelShape
from fedres.tables.read_table import Table, refuse_absent, refuse_two_roles, without
from fedres.tables.sgd_tuning import of_some_clients
from fedres.tables.table_comparison import Example, TableComparison, Task
from fedres.tables.trained_elsewhere import choose_step, find_prior, tell_columns, untrained

if TYPE_CHECKING:
    import pandas as pd

    from fedres.cluster.ray_backend import RayBackend
    from fedres.tables.estimator import FedResEstimator

SAMPLE, PREPARED, JUDGED_BY = "sample", "prepared", "verdict"  # files of what is finished
PLACE, FILE = "\0place", "\0file"  # columns of the sample: where each row is in which file


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns of a table are what; those not named are features."""

    client: str
    label: str
    time: str | None = None
    ignore: Sequence[str] = ()

    def features(self, parts: TableFiles) -> list[str]:
        """The columns that are features."""
        roles = {"client": self.client, "label": self.label, "time": self.time}
        refuse_two_roles(roles)
        refuse_absent(parts.files[0].name, parts.names, roles)
        return without(parts.names, roles.values(), self.ignore)


class PreparedParts(NamedTuple):
    """A table in shards.

    Attributes
    ----------
    shards
        The shards.
    sample
        All rows of some clients, as they were read.
    model
        An estimator that knows the encoder and the labels, and has not been trained.
    clients
        About how many clients there are.
    """

    shards: Sequence[Shard]
    sample: Table
    model: "FedResEstimator"
    clients: int


class FittedParts(NamedTuple):
    """What was trained on all rows; local models are beside their shards."""

    model: "FedResEstimator"
    shape: ModelShape
    global_: GlobalState


def sketch_parts(
    parts: TableFiles,
    roles: ColumnRoles,
    categorical: Sequence[str],
    progress: bool = False,
) -> TableSketch:
    """Read all rows once, and learn what the encoder and the labels need."""
    import pandas as pd

    features = roles.features(parts)
    named = Input(pd.DataFrame(columns=features)).matching(categorical, "categorical")
    told = "learning columns" if progress else None
    in_csv = parts.may_be_numbers(roles.client)
    sketch = TableSketch(roles.client, roles.label, roles.time, features, named, in_csv)
    for file, frame in _read(parts, roles, features, told):
        sketch.see(file.name, frame)
    return sketch


def prepare_parts(
    parts: TableFiles,
    roles: ColumnRoles,
    folder: Path,
    *,
    memory: int,
    task: Task | None = None,
    parameters: dict[str, Any] | None = None,
    shards: int | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> PreparedParts:
    """Sketch a table, encode it, and deal it to shards.

    Parameters
    ----------
    parts, roles
        The table.
    folder
        Where the shards go; empty.
    memory
        Bytes that may be taken.
    task, parameters
        As `estimator_for` takes them.
    shards
        How many there are to be; None for as many as memory asks for.
    n_jobs
        How many shards are to be worked on at once; None for a core each.
    progress
        Whether to show a progress bar.
    """
    import pandas as pd
    from pyarrow.feather import write_feather

    refuse_too_little(memory)
    parameters = parameters or {}
    categorical = parameters.get("categorical_features") or []
    sketch = sketch_parts(parts, roles, categorical, progress)
    model = estimator_for(sketch.labels.classes(), task, client=roles.client, **parameters)
    names = pd.DataFrame(columns=sketch.features, index=[0])
    encoder = Encoder.fit(
        names,
        categorical=categorical,
        local=model.local_features,
        global_=model.global_features,
        learned=sketch.columns(),
    )
    are_classes = hasattr(model, "predict_proba")
    labels = ClassLabels(sketch.labels.classes()) if are_classes else sketch.labels.scaled()
    layout = Layout(encoder, labels, sketch.most_in_a_row(), sketch.whole_ids)
    cores, clients = count_cores(n_jobs), sketch.clients.count
    needed = max(n_jobs or 1, count_shards(layout, sketch.rows, clients, memory, cores))
    shards = shards or needed
    _refuse_full_disk(folder, layout, sketch.rows)
    sample = ClientSample(judged_rows(encoder, sketch.rows / clients, memory), sketch.rows)
    told = f"dealing rows to {shards} shard{'s' * (shards > 1)}" if progress else None
    with ShardWriter(folder, layout, shards) as writer:
        for file, frame in _read(parts, roles, sketch.features, told, sketch.rows):
            word = frame.index.name
            keys = keys_of(frame[roles.client], sketch.whole_ids)
            y = frame[roles.label].to_numpy()
            try:
                writer.add(keys, y, frame[sketch.features])
            except ValueError as error:
                raise ValueError(f"{file.name}: {error}") from None
            place = {PLACE: frame.index, FILE: parts.files.index(file)}
            sample.add(uniform(keys.keys), frame.assign(**place))
    _say_if_uneven(open_shards(folder))
    if not sample.frames():
        raise ValueError("no client has few enough rows to judge methods on: name another column")
    with whole_file(folder / SAMPLE) as file:
        write_feather(pd.concat(sample.frames(), ignore_index=True), file, "uncompressed")
    state_files.write(folder / PREPARED, {"clients": clients, "places": word}, {})
    return open_prepared(folder, parts, roles, sketch.features, parameters)


def open_prepared(
    folder: Path,
    parts: TableFiles,
    roles: ColumnRoles,
    features: Sequence[str],
    parameters: dict[str, Any],
) -> PreparedParts:
    """Return what `prepare_parts` has left in a folder."""
    from pyarrow.feather import read_feather

    from fedres.tables.classifier import FedResClassifier
    from fedres.tables.regressor import FedResRegressor

    shards = open_shards(folder)
    layout = shards[0].layout
    kind = FedResRegressor if isinstance(layout.labels, NumberLabels) else FedResClassifier
    model = kind(client=roles.client, **parameters)
    tell_columns(model, layout.encoder, layout.labels, features)
    facts, _ = state_files.read(folder / PREPARED)
    rows = read_feather(folder / SAMPLE)
    rows.index = _places(rows, parts, facts["places"])
    sample = _table(rows, roles, features, layout.are_numbers)
    return PreparedParts(shards, sample, model, facts["clients"])


def _say_if_uneven(shards: Sequence[Shard]) -> None:
    """Warn of a shard that is far larger than others, since a client is in one."""
    rows = np.array([shard.rows for shard in shards])
    if len(rows) > 2 and rows.max() > 2 * np.median(rows):
        warnings.warn(
            f"a shard has {rows.max():,} rows and others {np.median(rows):,.0f}, since some client "
            "has very many: more memory may be needed than --memory says",
            stacklevel=2,
        )


def train_parts(
    prepared: PreparedParts,
    method: EstimatorMethod,
    chosen: dict[str, Any],
    *,
    memory: int | None = None,
    n_jobs: int | None = None,
    backend: "RayBackend | None" = None,
    progress: bool = False,
    go_on: bool = False,
) -> FittedParts:
    """Train a method on all rows; the models of clients are written beside their shards.

    Parameters
    ----------
    prepared
        The table.
    method
        Which.
    chosen
        Parameters that it was judged with: ``eta``, ``shrinkage`` and ``passes``.
    memory
        Bytes that may be taken; None for enough.
    n_jobs
        How many shards are worked on at once.
    backend
        A Ray cluster to train on; None for this process.
    progress
        Whether to show a progress bar.
    go_on
        Whether to go on from where the same training was killed, if it was.
    """
    from sklearn.utils import check_random_state

    model = untrained(prepared.model, method, chosen)
    rng, told = check_random_state(model.random_state), "training" if progress else None
    if model.solver_ == "bayes":
        try:
            cores = count_cores(n_jobs)
            some = _rows_for_variances(prepared, memory)
            return _train_bayes(model, prepared.shards, some, rng, cores, backend, told, go_on)
        except TooWideError:
            if model.solver == "bayes":
                raise
            model.solver_ = "sgd"
    return _train_sgd(model, prepared.shards, rng, backend, told, go_on)


def _rows_for_variances(prepared: PreparedParts, memory: int | None) -> int:
    if memory is None:
        return MOST_ROWS
    layout, rows = prepared.shards[0].layout, sum(shard.rows for shard in prepared.shards)
    return rows_at_once(layout.encoder, rows / max(1, prepared.clients), memory, MOST_ROWS)


def _train_bayes(
    model: "FedResEstimator",
    shards: Sequence[Shard],
    some: int,
    rng: Any,
    n_jobs: int,
    backend: "RayBackend | None",
    progress: str | None,
    go_on: bool,
) -> FittedParts:
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    assert isinstance(model.encoder_, Encoder)
    data = some_rows(shards, model.encoder_, some)
    if len(data.client) > some:
        data = data.of_clients(of_some_clients(data.client, rng, some))
    prior = find_prior(model, data, rng)
    del data
    problem = shard_bayes.BayesProblem(model.encoder_, *prior)
    with threadpool_limits(1, "blas"):
        if backend is None:
            w_global = shard_bayes.solve(shards, problem, n_jobs, progress, go_on=go_on)
        else:
            w_global = backend.solve(shards, problem, progress, go_on)
    return FittedParts(model, prior.shape, shard_bayes.as_state(w_global))


def _train_sgd(
    model: "FedResEstimator",
    shards: Sequence[Shard],
    rng: Any,
    backend: "RayBackend | None",
    progress: str | None,
    go_on: bool,
) -> FittedParts:
    assert isinstance(model.encoder_, Encoder)
    shape, best = choose_step(model)
    outputs = shards[0].layout.labels.outputs
    problem = shard_sgd.SgdProblem(model.encoder_, shape, outputs)
    train = shard_sgd.train if backend is None else backend.train
    global_ = train(shards, problem, best, rng, progress, go_on)
    return FittedParts(model, shape, global_)


class LargeFit(NamedTuple):
    """What `fit_parts` did.

    Attributes
    ----------
    found
        What methods were judged by, on some clients.
    method
        What was trained on all rows, and saved.
    model
        The estimator without its models, which are in the folder.
    rows, clients, shards
        How many there were.
    compared_rows
        How many of the rows methods were trained and judged on.
    """

    found: TableComparison
    method: EstimatorMethod
    model: "FedResEstimator"
    rows: int
    clients: int
    shards: int
    compared_rows: int


def fit_parts(
    parts: TableFiles,
    roles: ColumnRoles,
    out: Path,
    *,
    memory: int | None = None,
    method: EstimatorMethod | Literal["auto"] = "auto",
    task: Task | None = None,
    parameters: dict[str, Any] | None = None,
    seed: int = 0,
    shards: int | None = None,
    n_jobs: int | None = None,
    backend: "RayBackend | None" = None,
    progress: bool = False,
    when_prepared: "Callable[[PreparedParts], None]" = lambda _: None,
) -> LargeFit:
    """Judge methods on some clients, train the best on all rows in shards, and save it.

    Shards are files beside the model's folder while this works; if it is killed, the same call goes
    on from them. Parameters are those of `prepare_parts` and of ``fedres fit``; where `memory` is
    None, half of what is free may be taken. `when_prepared` is called before anything is trained.
    """
    if backend is not None:
        n_jobs = backend.workers
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    options = roles, memory, method, task, parameters, seed, shards, n_jobs, backend is None
    room = free_memory() // 2 if memory is None else memory
    parameters = {**(parameters or {}), "shared": "linear", "random_state": seed}
    with _said_if_full(out, room), work_folder(out, parts, options, PREPARED) as folder:
        if (folder / PREPARED).exists():
            prepared = open_prepared(folder, parts, roles, roles.features(parts), parameters)
        else:
            prepared = prepare_parts(
                parts,
                roles,
                folder,
                memory=room,
                task=task,
                parameters=parameters,
                shards=shards,
                n_jobs=n_jobs,
                progress=progress,
            )

        when_prepared(prepared)

        def judge() -> TableComparison:
            sample, model = prepared.sample, prepared.model
            found = compare_on_table(sample, model=model, seed=seed, progress=progress)
            return replace(found, model=None)

        found = kept(folder / JUDGED_BY, judge, (TableComparison, Example))
        saved: Any = found.recommended if method == "auto" else method
        fitted = train_parts(
            prepared,
            saved,
            found.chosen[saved],
            memory=room,
            n_jobs=n_jobs,
            backend=backend,
            progress=progress,
            go_on=True,
        )
        fitted.model.columns_ = {"client": roles.client, "label": roles.label, "time": roles.time}
        fitted.model.verdict_ = found.verdict()
        parted = prepared.shards
        rows = fitted.model.n_samples_seen_ = sum(shard.rows for shard in parted)
        clients = write_model(out, fitted.model, fitted.shape, fitted.global_, parted)
    return LargeFit(
        found,
        saved,
        fitted.model,
        rows,
        clients,
        len(parted),
        len(prepared.sample),
    )


def _read(
    parts: TableFiles,
    roles: ColumnRoles,
    features: Sequence[str],
    progress: str | None,
    total: int | None = None,
) -> Any:
    """Batches of the columns that are needed, with a bar."""
    columns = [*filter(None, (roles.client, roles.label, roles.time)), *features]
    batches = (
        ((file, frame), len(frame)) for file, frame in parts.batches(columns, categories=True)
    )
    return with_rate(batches, parts.count() if total is None else total, progress)


def _places(rows: "pd.DataFrame", parts: TableFiles, word: str) -> "pd.Index[Any]":
    """Return where the rows of a sample are in the files of a table."""
    import pandas as pd

    places: list[Any] = rows[PLACE].tolist()
    if len(parts.files) > 1:
        names = [file.name for file in parts.files]
        folder = len(commonpath(names))
        own = [name[folder:].lstrip("/") for name in names]
        places = [f"{place} of {own[i]}" for place, i in zip(places, rows[FILE], strict=True)]
    found: pd.Index[Any] = pd.Index(places, name=word)
    return found


def _table(
    frame: "pd.DataFrame", roles: ColumnRoles, features: Sequence[str], whole_ids: bool
) -> Table:
    """The rows of some clients as a table in memory."""
    client = frame[roles.client].to_numpy()
    if whole_ids:
        client = client.astype(np.int64)
    time: F64 | None = None
    if roles.time is not None:
        time = as_floats(roles.time, frame[roles.time])
    table = Table(frame[[*features]], frame[roles.label].to_numpy(copy=True), client, time)
    return table if time is None else table.take(np.argsort(time, kind="stable"))


def _refuse_full_disk(folder: Path, layout: Layout, rows: int) -> None:
    needed, free = rows * layout.dtype.itemsize, shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"{rows:,} rows take {shown_size(needed)} in shards, and the disk of {folder.parent} "
            f"has {shown_size(free)} left: let --out be on a larger one"
        )


@contextmanager
def _said_if_full(out: Path, memory: int) -> Iterator[None]:
    """Say in a sentence that the disk or the memory is full, should it be."""
    try:
        yield
    except MemoryError:
        raise ValueError(
            f"there is less memory than the {shown_size(memory)} that may be taken: give a smaller "
            "--memory"
        ) from None
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        raise ValueError(
            f"the disk of {out.absolute().parent} is full: make room, or let --out be on a larger "
            "one"
        ) from None
