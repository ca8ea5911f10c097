"""How fast the estimators are on a table of ratings, beside Vowpal Wabbit in this very process.

100,000 ratings by 1,000 users of 1,700 items with 20 genres, all one-hot; and a file of a million
rows of 100,000 clients, from CSV to verdict and saved model. The workloads are frozen: change them
and the numbers mean nothing.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from fedres import FedResRegressor
from fedres.tables.encoder import Encoder
from fedres.tables.online_models import ModelShape, OnlineModels

ROWS, CLIENTS, ITEMS, GENRES = 100_000, 1_000, 1_700, 20
FOR_VW = 5_000  # rows: an example that VW has parsed takes tens of kilobytes
console = Console(width=100)


def ratings():
    rng = np.random.default_rng(0)
    user, item = (
        rng.choice(n, ROWS, p=(shares := np.arange(1.0, n + 1) ** -0.7) / shares.sum())
        for n in (CLIENTS, ITEMS)
    )
    genres = [rng.choice(GENRES, rng.integers(1, 4), replace=False) for _ in range(ITEMS)]
    taste = rng.normal(size=(CLIENTS, GENRES)) / 2
    liking = rng.normal(size=CLIENTS)[user] / 2 + rng.normal(size=ITEMS)[item] / 2
    liking += [taste[u, genres[i]].mean() for u, i in zip(user, item, strict=True)]
    names = np.array(["|".join(f"genre {g}" for g in of_item) for of_item in genres])
    frame = pd.DataFrame({"item": item.astype(str), "genres": names[item]})
    return frame, np.clip(np.round(3.5 + liking + rng.normal(size=ROWS)), 1, 5), user


def seconds(call, times=5):
    """The shortest of several times."""
    taken = []
    for _ in range(times):
        began = perf_counter()
        call()
        taken.append(perf_counter() - began)
    return min(taken)


def our_rate(x_global, x_local, y, user):
    """Rows a second in one pass, in the order of the table, on one core."""
    models = OnlineModels(ModelShape(x_global.shape[1], x_local.shape[1]))
    rows = models.rows(x_global, x_local, user)
    models.learn(rows, y[None])  # compiles
    return len(y) / seconds(lambda: models.learn(rows, y[None]))


def vw_rate(x_global, x_local, y, user):
    """The same two learns a row, examples parsed beforehand."""
    from vowpalwabbit import Workspace

    server = Workspace("--adaptive -l 0.3 --quiet")
    clients = {i: Workspace("--adaptive -l 0.3 --quiet -b 10") for i in set(user[:FOR_VW].tolist())}

    def parsed(vw, x, k):
        columns = x.indices[x.indptr[k] : x.indptr[k + 1]]
        return vw.example(f"{y[k]:g} | {' '.join(map(str, columns))}")

    rows = [
        (clients[i], parsed(clients[i], x_local, k), parsed(server, x_global, k))
        for k, i in enumerate(user[:FOR_VW].tolist())
    ]

    def learn():
        for client, own, shared in rows:
            client.learn(own)
            server.learn(shared)

    return FOR_VW / seconds(learn, 10)


def one_pass(frame, y, user):
    x_global, x_local = Encoder.fit(frame, local="genres").transform(frame)
    z = ((y - y.mean()) / y.std()).astype(np.float32)
    ours, vw = (rate(x_global, x_local, z, user) for rate in (our_rate, vw_rate))
    table = Table(
        title=f"One pass over {ROWS:,} one-hot rows of {CLIENTS:,} clients, one core: "
        "million rows a second",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    for column in ("fedres", "VW", "fedres / VW"):
        table.add_column(column, justify="right")
    table.add_row(f"{ours / 1e6:.2f}", f"{vw / 1e6:.3f}", f"{ours / vw:.0f}")
    console.print(table)


def whole_fit(frame, y, user):
    from sklearn.linear_model import SGDRegressor

    encoder = Encoder.fit(frame, local="genres")
    x_global, _ = encoder.transform(frame)
    peer = seconds(lambda: SGDRegressor(random_state=0).fit(x_global, y), 1)
    model = FedResRegressor(local_features="genres").fit(frame, y, client=user)
    fit = seconds(lambda: model.fit(frame, y, client=user), 3)
    encode = seconds(lambda: Encoder.fit(frame, local="genres").transform(frame), 3)
    predict = seconds(lambda: model.predict(frame, client=user), 3)
    table = Table(
        title="FedResRegressor on the same table, two cores: seconds, and as a ratio to "
        "scikit-learn's SGDRegressor on the encoded global features alone",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("what")
    for column in ("seconds", "ratio"):
        table.add_column(column, justify="right")
    trials = f"{len(model.validation_)} trials, {model.passes_} passes"
    for what, taken in (
        (f"fit: encode, choose, train ({trials})", fit),
        ("  of which encode", encode),
        ("predict", predict),
        ("SGDRegressor.fit", peer),
    ):
        table.add_row(what, f"{taken:.2f}", f"{taken / peer:.1f}")
    console.print(table)


def write_large_table(path, rows=1_000_000, clients=100_000, items=500):
    rng = np.random.default_rng(0)
    client, item = rng.integers(0, clients, rows), rng.integers(0, items, rows)
    x = rng.normal(size=(rows, 6)).round(4)
    own = rng.normal(size=(clients, 2)) / 2
    y = x @ rng.normal(size=6) + own[client, 0] + own[client, 1] * x[:, 0]
    y += rng.normal(size=items)[item] / 2 + rng.normal(size=rows)
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(6)])
    frame.assign(item=[f"i{k}" for k in item], client=client, y=y.round(4)).to_csv(
        path, index=False
    )


LIGHTGBM = """
import sys, lightgbm, pandas
frame = pandas.read_csv(sys.argv[1]).astype({"item": "category", "client": "category"})
held = frame.index % 5 == 0
model = lightgbm.LGBMRegressor(verbosity=-1).fit(frame[~held].drop(columns="y"), frame[~held]["y"])
model.predict(frame[held].drop(columns="y"))
"""


def spent(*command):
    """CPU seconds and peak memory in GB of a process of its own."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{command[:3]} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e9


def large_fit():
    with TemporaryDirectory() as folder:
        path, command = Path(folder) / "large.csv", [sys.executable, "-c"]
        write_large_table(path)
        fit = [*command, "from fedres.cli import main; main()", "fit", str(path)]
        fit += ["--client", "client", "--label", "y", "--out", str(Path(folder) / "model")]
        ours, peer = spent(*fit), spent(*command, LIGHTGBM, str(path))
    table = Table(
        title="`fedres fit`, with verdict, of a million rows of 100,000 clients, from CSV; and "
        "LightGBM (100 trees, the client as a category) fitted once to four fifths",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("what")
    for column in ("CPU seconds", "ratio", "peak GB"):
        table.add_column(column, justify="right")
    for what, (taken, memory) in (("fedres fit", ours), ("LightGBM", peer)):
        table.add_row(what, f"{taken:.0f}", f"{taken / peer[0]:.1f}", f"{memory:.2f}")
    console.print(table)


if __name__ == "__main__":
    workload = ratings()
    one_pass(*workload)
    whole_fit(*workload)
    large_fit()
