"""Kill a process of many bandit clients again and again, and compare with an undisturbed run.

Run with `make bench-kills`: 1,000 clients, 50 SIGKILLs, some minutes, most of it waiting for the
disk. A worker process keeps each client, and the server, in a file of its own, and saves before it
answers. The driver asks it to choose, brings rewards a turn late, and lets clients exchange
messages with the server; at random moments it kills the worker, starts another, and asks again.
Some answers that did come are treated as lost, and rewards that were acknowledged are brought a
second time.

Afterwards every decision, every count and every weight must be that of a run in one process that
is never saved nor killed: no reward credited twice or to another decision, none acknowledged lost.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedres.bandits import BanditClient, BanditServer, RewardError, SquareCB

ACTIONS, WIDTH = 5, 6


class Worker:
    """All clients and the server; with a folder, what it answers is saved before."""

    def __init__(self, folder):
        self.folder = folder
        self.clients = {}
        self.server = self.find("server", BanditServer.load) or BanditServer(WIDTH)

    def find(self, name, load):
        path = self.folder and self.folder / name
        return load(path) if path and path.exists() else None

    def keep(self, name, party):
        if self.folder:
            party.save(self.folder / name)

    def client(self, i):
        if i not in self.clients:
            self.clients[i] = self.find(f"client-{i}", BanditClient.load) or BanditClient(
                SquareCB(10.0), WIDTH, WIDTH, client=f"user {i}", seed=i
            )
        return self.clients[i]

    def choose(self, i, turn):
        client = self.client(i)
        if client.counts.made < turn:  # else the answer was lost
            client.choose(*np.random.default_rng([i, turn]).normal(size=(2, ACTIONS, WIDTH)))
        self.keep(f"client-{i}", client)
        (made,) = (one for one in client.waiting if one.turn == turn)
        return [made.id, made.action, made.probability]

    def reward(self, i, decision, value):
        client = self.client(i)
        try:
            client.reward(decision, value)
            outcome = "taken"
        except RewardError as error:
            outcome = error.reason
        self.keep(f"client-{i}", client)
        return outcome

    def exchange(self, i):
        client = self.client(i)
        receipts = self.server.apply(client.uploads())
        self.keep("server", self.server)
        client.confirm(receipts)
        client.refresh(self.server.publish())
        self.keep(f"client-{i}", client)

    def state(self, i):
        client = self.client(i)
        return [*client.counts, client.w_local.tolist(), self.server.w_global.tolist()]

    def answer(self, name, *arguments):
        return getattr(self, name)(*arguments)


def serve(folder):
    worker = Worker(Path(folder))
    for line in sys.stdin:
        print(json.dumps(worker.answer(*json.loads(line))), flush=True)


class Killed:
    """A worker in a process that is killed while it answers certain questions."""

    def __init__(self, folder, when, rng):
        self.folder, self.when, self.rng = folder, set(when), rng
        self.asked = self.kills = self.lost = 0
        self.process = self.start()

    def start(self):
        command = [sys.executable, __file__, "--serve", str(self.folder)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def answer(self, *question):
        self.asked += 1
        kill = self.asked in self.when
        while True:
            self.process.stdin.write(json.dumps(question) + "\n")
            if kill:
                time.sleep(self.rng.choice([0.0, self.rng.uniform(0, 0.03), 0.5]))
                self.process.send_signal(signal.SIGKILL)
                self.kills += 1
            line = self.process.stdout.readline()
            arrived = line.endswith("\n") and not (kill and self.rng.random() < 0.5)
            if kill:
                self.lost += not arrived
                self.stop()
                self.process = self.start()
                kill = False
            if arrived:
                return json.loads(line)

    def stop(self):
        self.process.kill()
        self.process.communicate()


def play(worker, clients, turns, twice):
    """All that clients decide; rewards come a turn late, some of them twice."""
    rng, decisions, rewards = np.random.default_rng(0), [], []
    flight = []
    for turn in range(1, turns + 2):
        arriving, flight = flight, []
        for i in range(clients):
            if turn <= turns:
                decision, action, odds = worker.answer("choose", i, turn)
                decisions.append((i, turn, action, odds))
                flight.append((i, decision, float(rng.random() < 0.5 + 0.1 * action)))
        for k in rng.permutation(len(arriving)):
            i, decision, value = arriving[k]
            outcomes = [worker.answer("reward", i, decision, value)]
            if twice and k % 3 == 0:
                outcomes.append(worker.answer("reward", i, decision, 1 - value))
            rewards.append(outcomes)
            if k % 2 == 0:
                worker.answer("exchange", i)
    states = [worker.answer("state", i) for i in range(clients)]
    return decisions, rewards, states


def main(clients, turns, kills):
    began = time.perf_counter()
    decisions, _, states = play(Worker(None), clients, turns, twice=False)
    rng = np.random.default_rng(1)
    questions = round(clients * turns * (1 + 4 / 3 + 1 / 2))
    when = rng.choice(np.arange(1, questions), kills, replace=False)
    with TemporaryDirectory() as folder:
        worker = Killed(Path(folder), when, rng)
        try:
            found = play(worker, clients, turns, twice=True)
        finally:
            worker.stop()
    assert found[0] == decisions, "decisions differ"
    assert found[2] == states, "counts or weights differ"
    for first, *second in found[1]:
        assert first in ("taken", "rewarded"), first
        assert second in ([], ["rewarded"]), second
    assert worker.kills == kills, worker.kills
    print(
        f"{clients:,} clients, {len(decisions):,} decisions, {worker.asked:,} questions, "
        f"{worker.kills} kills, {worker.lost} answers lost, {time.perf_counter() - began:.0f} s: "
        "decisions, counts and weights as the undisturbed run's."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--serve", help="be the worker, with files in this folder")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    else:
        main(options.clients, options.turns, options.kills)
