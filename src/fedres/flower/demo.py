"""All of it on this machine: a superlink, three nodes with their own tables, one of them slow."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fedres.core.feature_limit import clipped
from fedres.core.models import linear
from fedres.flower.app_folder import digits_settings, write_app
from fedres.flower.app_settings import AppSettings
from fedres.flower.client_app import state_folder
from fedres.flower.digits import Tables, tables
from fedres.flower.launch import launch, write_report
from fedres.flower.local_cluster import Cluster
from fedres.flower.memory import Memory
from fedres.flower.replay import replay, unused
from fedres.flower.run_folder import read_log
from fedres.flower.samples import ROWS, StoredSource, features

CLIENTS = ("clinic-1", "clinic-2", "clinic-3")
SLOW, SECONDS = "clinic-3", 6.0


@dataclass(frozen=True)
class DemoResult:
    """What the demo found."""

    accuracy: float  # on test rows, mean over clients, of the models that nodes left on their disks
    replayed: float  # the same of the run once more in this process
    late: dict[str, float]  # mean round trip of every client, in rounds
    report: Path


def demo(folder: Path, rounds: int, console: Console) -> DemoResult:
    """Run it in a folder; processes are stopped at the end, whatever happens."""
    settings = replace(
        digits_settings(), data="", rounds=rounds, folder=str(folder / "run"), bind_names=False
    )
    write_app(folder / "app", settings, "fedres.flower.slow_client_app:app")
    rows = dict(zip(CLIENTS, tables(len(CLIENTS)), strict=True))
    with Cluster(folder / "cluster") as cluster:
        for name, table in rows.items():
            path = folder / f"{name}.csv"
            table.train.to_csv(path, index=False)
            wait = SECONDS if name == SLOW else 0.0
            cluster.start_node(name, _node(folder, name) | {"data": str(path), "wait": wait})
        settings = launch(cluster.flwr, folder / "app", {}, console=console)
    run = Path(settings.folder)
    lines = read_log(run)
    lags = {name: [one["lag"] for one in lines if one["client"] == name] for name in CLIENTS}
    return DemoResult(
        float(np.mean([_left_behind(folder, settings, *one) for one in rows.items()])),
        _replayed(folder, settings, rows),
        {name: float(np.mean(own)) for name, own in lags.items()},
        write_report(run, settings),
    )


def _node(folder: Path, name: str) -> dict[str, Any]:
    return {"client": name, "state": str(folder / "state")}


def _left_behind(folder: Path, settings: AppSettings, name: str, table: Tables) -> float:
    """Accuracy of the personal model that a client can use without the server."""
    from fedres.tables.stored_estimator import load_model

    model: Any = load_model(state_folder(_node(folder, name), settings, name) / "model")
    return float(model.score(table.test.drop(columns="label"), table.test["label"].to_numpy()))


def _replayed(folder: Path, settings: AppSettings, rows: dict[str, Tables]) -> float:
    """Accuracy of the same rows, order and delays in this process."""
    sources, lines, last = {}, read_log(Path(settings.folder)), {}
    used = {(line["client"], line["number"]) for line in lines}
    for name in rows:
        state = state_folder(_node(folder, name), settings, name)
        sources[name] = StoredSource(settings, state / ROWS)
        memory = Memory.load(state, name, settings)
        last[name] = memory.global_.version
        more = unused(memory, settings)
        lines += [line for line in more if (name, line["number"]) not in used]
    published, clients = replay(settings, lines, sources)
    shares = []
    for name, table in rows.items():
        x_global, x_local, y = features(
            settings, table.test.drop(columns="label"), table.test["label"].to_numpy()
        )
        x_global = clipped(x_global, settings.feature_limit)
        shared = linear(x_global, published[last[name]].weights, constant=True)
        shares.append(np.mean((shared + clients[name].local.f(x_local) > 0) == (y > 0)))
    return float(np.mean(shares))
