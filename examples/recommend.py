"""Recommend items to clients who share some of their taste; clicks arrive late, some never.

Thirty clients are each offered ten items at a time. How likely a client clicks is the sum of what
all clients like and of its own taste. Three ways to learn meet the same offers: every client
alone, one model for all, and FedRes, the sum of both. What FedRes logged is then used to estimate,
offline, what other policies would have earned.

    python examples/recommend.py
"""

import argparse
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedres.bandits import (
    BanditClient,
    BanditServer,
    Catalogue,
    EventLog,
    Greedy,
    SquareCB,
    evaluate_log,
)
from fedres.core.steps import Adaptive

LATE = 5  # rounds that clicks come late
LOST = 0.02  # of the clicks that never come
PUBLISH_EVERY = 10  # rounds between two global models
STEP = Adaptive(0.1, clip=False)


def play(world: Catalogue, method: str, rounds: int, log: EventLog | None = None) -> float:
    """Let all clients decide, with learning by a method; returns the average reward."""
    x_global, x_local = world.tables(method)
    server = BanditServer(x_global.shape[1], step=STEP)
    clients = [
        BanditClient(
            SquareCB(gamma=30.0),
            features_local=x_local.shape[1],
            features_global=x_global.shape[1],
            client=i,
            seed=i,
            step=STEP,
            wait=2 * LATE,  # then a decision without a click
            late=0.0,  # counts as one that was not clicked
            log=log,
        )
        for i in range(world.clients)
    ]
    lost = np.random.default_rng(1)
    on_the_way: deque[list[tuple[int, str, float]]] = deque()
    earned = 0.0
    for turn in range(1, rounds + 1):
        clicks = []
        for i, client in enumerate(clients):
            offered = world.actions(0, i, turn)
            decision = client.choose(x_global[offered.row], x_local[offered.row])
            item = offered.row[decision.action]
            reward = world.reward(0, i, turn, item, block=0)
            earned += reward
            if lost.random() >= LOST:
                clicks.append((i, decision.id, reward))
        on_the_way.append(clicks)
        if len(on_the_way) > LATE:
            for i, decision_id, reward in on_the_way.popleft():
                clients[i].reward(decision_id, reward)
        for client in clients:
            client.confirm(server.apply(client.uploads()))
        if turn % PUBLISH_EVERY == 0:
            model = server.publish()
            for client in clients:
                client.refresh(model)
    return earned / (rounds * len(clients))


def main(clients: int = 30, rounds: int = 200, log: Path | None = None) -> dict[str, float]:
    """Print and return what every method earned, and estimates from the log."""
    world = Catalogue.draw(clients, difference=0.5, seed=0)
    with TemporaryDirectory() as folder:
        path = log or Path(folder) / "events.jsonl"
        earned = {name: play(world, name, rounds) for name in ("independent", "central")}
        with EventLog(path) as events:
            earned["fedres"] = play(world, "fedres", rounds, events)
        print(f"{clients} clients, {rounds} decisions each; clicks a decision:")
        for method, reward in earned.items():
            print(f"  {method:12} {reward:.3f}")
        print("What policies would have earned on the decisions that FedRes logged (SNIPS):")
        for policy in (SquareCB(gamma=30.0), Greedy()):
            found = evaluate_log(path, policy, step=STEP)
            name = type(policy).__name__
            worth = f"{found.effective:,.0f} decisions of its own"
            print(f"  {name:12} {found.refusal or found.snips}   (the log is worth {worth})")
            earned[f"{name} (estimated)"] = found.snips.mean
        print(f"  logged       {found.logged}")
    return earned


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--log", type=Path, help="keep the log here")
    main(**vars(parser.parse_args()))
