"""How fast the simulator is, as ratios to peers run in this very process.

Run with `make bench`. The workloads are frozen: change them and the numbers mean nothing.
"""

import os
import subprocess
import sys
import tempfile
import tracemalloc
from functools import partial
from time import perf_counter

import numpy as np
from numba import njit
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_array

import fedres

CLIENTS, ROUNDS, ROWS, DELAY = 50, 500, 60, 20
console = Console(width=100)


def dense_federation(width, clients=CLIENTS, rows=ROWS):
    rng = np.random.default_rng(0)
    half = (clients * rows, width // 2)
    y = rng.integers(0, 2, clients * rows).astype(np.float32) * 2 - 1
    return fedres.Federation.from_arrays(
        rng.random(half, np.float32),
        rng.random(half, np.float32),
        y,
        np.repeat(np.arange(clients), rows),
    )


def sparse_federation(width=10_000, stored=20):
    rng = np.random.default_rng(0)
    n, each = CLIENTS * ROWS, stored // 2

    def side():
        columns = np.sort(rng.permuted(np.tile(np.arange(width // 2), (n, 1)), axis=1)[:, :each])
        values = np.ones(n * each, np.float32)
        return csr_array((values, columns.ravel(), np.arange(n + 1) * each), (n, width // 2))

    y = rng.integers(0, 2, n).astype(np.float32) * 2 - 1
    return fedres.Federation.from_arrays(side(), side(), y, np.repeat(np.arange(CLIENTS), ROWS))


def best(call, times=5):
    """The shortest of several times, in seconds."""
    seconds = []
    for _ in range(times):
        began = perf_counter()
        call()
        seconds.append(perf_counter() - began)
    return min(seconds)


def fedres_rate(federation):
    def run():
        return fedres.simulate(federation, "fedres", rounds=ROUNDS, delay=DELAY)

    run()
    return CLIENTS * ROUNDS / min(run().seconds for _ in range(10))


def vw_rate(federation):
    """Two learns a client-round, examples parsed beforehand."""
    from vowpalwabbit import Workspace

    from fedres.core.views import client_rows

    server = Workspace("--adaptive -l 0.5 --quiet")
    locals_ = [Workspace("--adaptive -l 0.5 --quiet") for _ in range(CLIENTS)]
    train = federation.train

    def parsed(vw, view, i, k):
        row = client_rows(view, train.row_start, i)[[k]]
        row = row if isinstance(row, csr_array) else csr_array(row)
        features = " ".join(f"{j}:{v:.6g}" for j, v in zip(row.indices, row.data, strict=True))
        return vw.example(f"{train.y[train.row_start[i] + k]:g} | {features}")

    pairs = [
        [
            (parsed(server, train.x_global, i, k), parsed(locals_[i], train.x_local, i, k))
            for i in range(CLIENTS)
        ]
        for k in range(ROWS)
    ]

    def learn():
        for round_ in pairs:
            for vw, (shared, own) in zip(locals_, round_, strict=True):
                vw.learn(own)
                server.learn(shared)

    return CLIENTS * ROWS / best(learn, 3)


@njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})
def bare(xg, xl, y, order, wg, gg, wl, gl, rounds, eta):
    """The arithmetic alone: dot, dot, adaptive step, adaptive step; no protocol at all."""
    clients, rows = order.shape
    d = xg.shape[2]
    for t in range(rounds):
        for i in range(clients):
            k = order[i, t % rows]
            p = wg[d] + wl[i, d]
            for j in range(d):
                p += xg[i, k, j] * wg[j]
            for j in range(d):
                p += xl[i, k, j] * wl[i, j]
            slope = np.float32(2) * (p - y[i, k])
            for j in range(d):
                g = slope * xl[i, k, j]
                gl[i, j] += g * g
                wl[i, j] -= eta * g / np.sqrt(gl[i, j])
            gl[i, d] += slope * slope
            wl[i, d] -= eta * slope / np.sqrt(gl[i, d])
            for j in range(d):
                g = slope * xg[i, k, j]
                gg[j] += g * g
                wg[j] -= eta * g / np.sqrt(gg[j])
            gg[d] += slope * slope
            wg[d] -= eta * slope / np.sqrt(gg[d])


def bare_rate(federation, rounds=ROUNDS):
    train, d, clients = federation.train, federation.width_global, len(federation.clients)
    xg, xl = (view.values.reshape(clients, ROWS, d) for view in (train.x_global, train.x_local))
    rng = np.random.default_rng(0)
    order = rng.permuted(np.tile(np.arange(ROWS, dtype=np.int32), (clients, 1)), axis=1)
    y = train.y.reshape(clients, ROWS)

    def call():
        wg, wl = np.zeros(d + 1, np.float32), np.zeros((clients, d + 1), np.float32)
        gg, gl = np.full_like(wg, 1e-38), np.full_like(wl, 1e-38)
        bare(xg, xl, y, order, wg, gg, wl, gl, rounds, np.float32(0.5))

    call()
    return clients * rounds / best(call, 5)


def against_peers():
    table = Table(
        title=f"One core, P = {CLIENTS}, T = {ROUNDS}, Adaptive, arrival, delay {DELAY}: "
        "million client-rounds a second",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("features")
    for column in ("fedres", "VW", "fedres / VW", "bare arithmetic", "fedres / bare"):
        table.add_column(column, justify="right")
    for width in (16, 256, 780):
        federation = dense_federation(width)
        ours, vw, limit = fedres_rate(federation), vw_rate(federation), bare_rate(federation)
        table.add_row(
            str(width),
            f"{ours / 1e6:.2f}",
            f"{vw / 1e6:.3f}",
            f"{ours / vw:.1f}",
            f"{limit / 1e6:.2f}",
            f"{ours / limit:.2f}",
        )
    federation = sparse_federation()
    ours, vw = fedres_rate(federation), vw_rate(federation)
    table.add_row(
        "20 of 10,000", f"{ours / 1e6:.2f}", f"{vw / 1e6:.3f}", f"{ours / vw:.1f}", "", ""
    )
    console.print(table)


def against_experts():
    """What mixing costs beside FedRes, which is one of the three that are mixed."""
    table = Table(
        title="Clients that mix: million client-rounds a second, as above",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("features")
    methods = ("independent", "central", "fedres", "mixture")
    for column in (*methods, "mixture / fedres"):
        table.add_column(column, justify="right")
    for width in (16, 256):
        federation = dense_federation(width)
        seconds = {method: [] for method in methods}
        for _ in range(20):  # by turns: whatever else the machine does then slows all of them
            for method in methods:
                delay = 0 if method == "independent" else DELAY
                run = fedres.simulate(federation, method, rounds=ROUNDS, delay=delay)
                seconds[method].append(run.seconds)
        rates = {method: CLIENTS * ROUNDS / min(times) for method, times in seconds.items()}
        table.add_row(
            str(width),
            *(f"{rate / 1e6:.2f}" for rate in rates.values()),
            f"{rates['mixture'] / rates['fedres']:.2f}",
        )
    console.print(table)


def grow(clients):
    """One pass over 60 rows of 16 features a client, ours and bare, and bytes, all and data."""
    fedres.simulate(dense_federation(16, 2), "fedres")
    federation = dense_federation(16, clients)
    seconds = min(fedres.simulate(federation, "fedres").seconds for _ in range(3))
    limit = clients * ROWS / bare_rate(federation, ROWS)
    train = federation.train
    tracemalloc.start()  # numpy tells it of every array
    fedres.simulate(dense_federation(16, clients), "fedres")
    peak = tracemalloc.get_traced_memory()[1]
    data = train.x_global.values.nbytes + train.x_local.values.nbytes + train.y.nbytes
    print(seconds, limit, peak, data)


def against_size():
    table = Table(
        title="Growth: one pass over 60 rows of 16 features a client",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    columns = (
        "clients",
        "us a client",
        "bare us",
        "bare / ours",
        "peak kB a client",
        "peak / data",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for clients in (100, 1_000, 10_000, 100_000):
        done = subprocess.run(
            [sys.executable, __file__, "grow", str(clients)],
            capture_output=True,
            text=True,
            check=True,
        )
        seconds, limit, peak, data = map(float, done.stdout.split())
        table.add_row(
            f"{clients:,}",
            f"{1e6 * seconds / clients:.2f}",
            f"{1e6 * limit / clients:.2f}",
            f"{limit / seconds:.2f}",
            f"{peak / clients / 1e3:.2f}",
            f"{peak / data:.2f}",
        )
    console.print(table)


def against_rounds():
    """What a round of ERM costs in a long run, beside a short one: samples are not kept."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 10_000, 16)), rng.normal(size=10_000)
    federation = fedres.Federation.from_arrays(*x, y, np.zeros(10_000))

    def us(rounds):
        runs = (fedres.simulate(federation, "fedres-erm", rounds=rounds) for _ in range(4))
        return 1e6 * min(run.seconds for run in runs) / rounds

    short, long = us(1_000), us(10_000)
    table = Table(title="A round of FedRes.ERM", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("of 1,000, us", "of 10,000, us", "long / short"):
        table.add_column(column, justify="right")
    table.add_row(f"{short:.0f}", f"{long:.0f}", f"{long / short:.2f}")
    console.print(table)


def start(command, env=None):
    subprocess.run(command, capture_output=True, check=True, env=env)


def against_the_clock():
    table = Table(title="Start-up, seconds", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("what")
    table.add_column("seconds", justify="right")
    fedres_help = [sys.executable, "-c", "from fedres.cli import main; main()", "--help"]
    nothing = [sys.executable, "-c", "pass"]
    for name, command in (("python -c pass", nothing), ("fedres --help", fedres_help)):
        table.add_row(name, f"{best(partial(start, command)):.2f}")
    first = "import fedres; fedres.simulate(fedres.federate('digits'), rounds=2)"
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        for name in ("first run ever: compile", "first run of a later process: disk cache"):
            call = partial(start, [sys.executable, "-c", first], env=environment)
            table.add_row(name, f"{best(call, 1):.2f}")
    console.print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["grow"]:
        grow(int(sys.argv[2]))
    else:
        against_peers()
        against_experts()
        against_size()
        against_rounds()
        against_the_clock()
