"""What a reply costs a Flower server that knows many clients: to take it in, and to keep it.

Run with `python benchmarks/checkpoint.py`. The peer is a checkpoint that is written whole: the
same counters of all clients as JSON. Medians of 200 replies of clients chosen at random, each
brought to the disk before the next; no Flower, no network.
"""

import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from fedres.core.files import whole_file
from fedres.core.messages import Upload
from fedres.core.receipts import number_of
from fedres.flower.app_settings import AppSettings
from fedres.flower.members import Member
from fedres.flower.server_state import ServerState, TaskUnderWay
from fedres.flower.wire import Reply, Sent

CLIENTS = (100, 10_000, 1_000_000)
REPLIES, ROWS, WIDTH = 200, 100, 32
SETTINGS = AppSettings(WIDTH, WIDTH, rows_per_message=ROWS, rounds=10**9)


def reply_of(client, number, rng):
    x = rng.normal(size=(ROWS, WIDTH)).clip(-9, 9).astype(np.float32)
    y, zeros = np.sign(x.sum(axis=1)).astype(np.float32), np.zeros(ROWS, np.float32)
    span = SETTINGS.rule.residual_span
    packed = Upload(number_of(client), number, 0, x, zeros, y, 32, span).pack()
    return Reply(client, (Sent(number, 0.5, packed),)).pack()


def measure(folder, clients):
    state = ServerState(SETTINGS, folder)
    for k in range(clients):
        state.members[f"client-{k}"] = Member(confirmed=7, applied=7, rows=700, loss=0.3)
        state.members.note_change(f"client-{k}")
    state.save()
    rng, taken, kept = np.random.default_rng(0), [], []
    for k in rng.integers(clients, size=REPLIES + 1):
        client = f"client-{k}"
        head, body = reply_of(client, state.members[client].confirmed, rng)
        state.flights["t"] = TaskUnderWay(int(k), 100)
        began = perf_counter()
        state.receive("t", head, body)
        received = perf_counter()
        state.save()
        taken.append(received - began)
        kept.append(perf_counter() - received)
    assert state.version == REPLIES + 1
    began = perf_counter()
    resumed = ServerState(replace(SETTINGS, resume=True), folder)
    resuming = perf_counter() - began
    assert resumed.version == state.version
    began = perf_counter()
    with whole_file(folder / "whole.json") as file:
        members = {name: asdict(member) for name, member in state.members.items()}
        file.write(json.dumps(members).encode())
    return median(taken[1:]), median(kept[1:]), perf_counter() - began, resuming


def main(sizes):
    table = Table(title="One reply of 100 rows, 32 features", box=box.SIMPLE_HEAD)
    for column in ("known clients", "take in, ms", "keep, ms", "written whole, ms", "resume, s"):
        table.add_column(column, justify="right")
    for clients in sizes:
        with tempfile.TemporaryDirectory() as folder:
            taken, kept, whole, resuming = measure(Path(folder), clients)
        row = (1000 * taken, 1000 * kept, 1000 * whole)
        table.add_row(f"{clients:,}", *(f"{one:,.1f}" for one in row), f"{resuming:.1f}")
    Console(width=80).print(table)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or CLIENTS)
