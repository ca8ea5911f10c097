"""What hostile clients do to the others, what the jury does about it, and what that costs.

Run with `make bench-hostile`, or `python benchmarks/hostile.py digits` for one of the two data
sets. Ten clients in one process, as Flower's apps without Flower. One, two or three of them are
hostile, in five ways that pass all checks:

    flipped labels   all rows with the other label
    steepest         residuals that make each prediction as wrong as can be
    all features     every feature at its limit, always the same label
    against          features along the signs of the global model, labels against it
    sleeper          honest for the first third, then flipped labels

Figures are the mean progressive loss of the honest clients, beside a run that the hostile ones
take no part in: the mean over seeds, and the worst of them in brackets. The honest runs have no
hostile client, or two of ten with another truth. The constants of the jury were chosen with seeds 0
and 1 in view, so these are others; a seed of a data set takes about half a minute.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fedres
from fedres.core.messages import GlobalModel, Upload
from fedres.core.receipts import number_of
from fedres.core.views import client_rows
from fedres.flower import run_folder
from fedres.flower.app_settings import AppSettings
from fedres.flower.client_state import ClientState
from fedres.flower.memory import Memory
from fedres.flower.server_state import ServerState
from fedres.flower.wire import Reply, Sent

CLIENTS, ROUNDS, ROWS, SEEDS = 10, 24, 20, range(2, 7)
ATTACKS = ("flipped labels", "steepest", "all features", "against", "sleeper")
SETTINGS = AppSettings(
    32, 32, rows_per_message=ROWS, passes=0, rounds=10**6, feature_limit=1.0, bind_names=False
)


class Rows:
    """Rows in memory, for ever."""

    key = ""

    def __init__(self, x_global, x_local, y):
        self.parts = x_global, x_local, y

    def take(self, position, count):
        """The rows that follow on a position."""
        wanted = np.arange(position, position + count) % len(self.parts[2])
        return tuple(part[wanted] for part in self.parts)


def digits(seed):
    train = fedres.federate("digits", clients=CLIENTS, seed=seed).train
    found = []
    for i in range(CLIENTS):
        first, last = train.row_start[i : i + 2]
        order = np.random.default_rng((seed, i)).permutation(last - first)
        views = (client_rows(x, train.row_start, i)[order] for x in (train.x_global, train.x_local))
        found.append(Rows(*views, train.y[first:last][order]))
    return found


def synthetic(seed):
    rng, found = np.random.default_rng(seed), []
    shared = rng.normal(size=32)
    for _ in range(CLIENTS):
        x = rng.uniform(-1, 1, (400, 64)).astype(np.float32)
        score = x[:, :32] @ shared + x[:, 32:] @ rng.normal(size=32) + rng.normal(size=400)
        found.append(Rows(x[:, :32], x[:, 32:], np.sign(score).astype(np.float32)))
    return found


def with_minority(sources):
    """Of the last two clients, half of the global features mean the contrary."""
    turned = [Rows(s.parts[0] * np.float32([-1, 1] * 16), *s.parts[1:]) for s in sources[-2:]]
    return sources[:-2] + turned


def poison(attack, samples, task, late):
    """Rows that pass the checks and do harm."""
    x, _, y = samples
    far = np.float32(1000)
    if attack == "flipped labels" or (attack == "sleeper" and late):
        return x, np.zeros_like(y), -y
    if attack == "sleeper":
        return x, np.zeros_like(y), y
    if attack == "steepest":
        return x, -far * y, y
    if attack == "all features":
        return np.ones_like(x), np.full_like(y, -far), np.ones_like(y)
    weights = GlobalModel.unpack(task.model, 0).weights[:-1]
    return np.tile(np.sign(weights), (len(y), 1)), np.full_like(y, far), -np.ones_like(y)


def play(sources, settings, attack="", hostile=0, absent=0):
    """Losses of the honest clients, and of each client which share of uploads was held back."""
    losses, there = [], len(sources) - absent
    with TemporaryDirectory() as folder:
        state = ServerState(settings, Path(folder) / "run")
        clients = {}
        for i, source in enumerate(sources):
            (Path(folder) / str(i)).mkdir()
            clients[i] = ClientState(settings, f"c{i}", Path(folder) / str(i), source)
        sent = dict.fromkeys(clients, 0)
        for round_ in range(ROUNDS):
            for node, task in state.tasks(range(there)):
                if node < there - hostile:
                    reply = clients[node].work(task)
                    losses += [one.loss for one in reply.sent[-1:]]
                else:
                    rows = sources[node].take(ROWS * sent[node], ROWS)
                    evil = poison(attack, rows, task, 3 * round_ > ROUNDS)
                    span = settings.rule.residual_span
                    packed = Upload(number_of(f"c{node}"), sent[node], 0, *evil, 32, span).pack()
                    reply = Reply(f"c{node}", (Sent(sent[node], 0.1, packed),))
                    sent[node] += 1
                state.receive(task.task, *reply.pack())
        held = [state.members[f"c{i}"].held_back for i in range(there)]
        used = [state.members[f"c{i}"].applied for i in range(there)]
    return np.mean(losses), np.array(held) / np.array(used)


def quickly():
    """Without waiting for the disk, which no figure here is about."""
    run_folder.SYNCHRONOUS = "OFF"
    os.fsync = lambda _: None
    Memory.save = lambda *_: None


def percent(ratios, worst=False):
    """The mean, and the highest if it is asked for."""
    words = f"{100 * (np.mean(ratios) - 1):+.1f}%"
    return f"{words} ({100 * (max(ratios) - 1):+.0f})" if worst else words


def main(names):
    quickly()
    console = Console(width=80)
    off, on = replace(SETTINGS, jury="off"), SETTINGS
    for name in names:
        sets = [globals()[name](seed) for seed in SEEDS]
        table = Table(title=f"{name}: loss of the honest against no attack", box=box.SIMPLE_HEAD)
        for column in ("attack", *(f"{k} of 10{w}" for k in (1, 2, 3) for w in (" off", ""))):
            table.add_column(column, justify="left" if column == "attack" else "right")
        alone = {k: [play(s, off, absent=k)[0] for s in sets] for k in (1, 2, 3)}
        for attack in track(ATTACKS, name, transient=True):
            cells = []
            for k in (1, 2, 3):
                for jury in (off, on):
                    losses = [play(s, jury, attack, k)[0] for s in sets]
                    cells.append(percent(np.divide(losses, alone[k]), worst=jury is on))
            table.add_row(attack, *cells)
        console.print(table)
        honest = [(play(s, off)[0], *play(s, on)) for s in sets]
        minority = [(play(m, off)[0], *play(m, on)) for m in map(with_minority, sets)]
        cost = [
            percent([with_jury / without for without, with_jury, _ in runs], worst=True)
            for runs in (honest, minority)
        ]
        held = [np.mean([held for *_, held in runs], axis=0) for runs in (honest, minority)]
        console.print(
            f"Honest: the jury costs {cost[0]}, and holds back {held[0].mean():.1%} of uploads.\n"
            f"With a minority of two: it costs {cost[1]}, and holds back "
            f"{held[1][-2:].mean():.1%} of the minority's uploads, {held[1][:-2].mean():.1%} of "
            "the others'.\n",
            highlight=False,
        )


if __name__ == "__main__":
    main(sys.argv[1:] or ["digits", "synthetic"])
