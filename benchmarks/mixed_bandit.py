"""What bandit clients earn that mix, beside clients that go by one of the experts alone.

    python benchmarks/mixed_bandit.py [seeds]      # 6 by default

Catalogues whose clients are alike, differ in half of what items pay, or have nothing in common; 20
clients, 300 decisions each, no delay, SquareCB with gamma 50 and adaptive steps of 0.2 for all:
nothing is tuned. Prints the table of docs/bandits.md.
"""

import sys

import numpy as np

from fedres.bandits import BanditClient, BanditServer, Catalogue, SquareCB
from fedres.core.steps import Adaptive
from fedres.simulation.intervals import interval
from fedres.simulation.parallel import run_all

CLIENTS, ROUNDS, STEP = 20, 300, Adaptive(0.2, clip=False)
METHODS = ("Independent", "Central", "FedRes", "mixed")
WORLDS = {"alike": 0.0, "half alike": 0.5, "nothing in common": 1.0}


def earned(difference: float, method: str, seed: int) -> float:
    """The mean reward of all decisions."""
    world = Catalogue.draw(CLIENTS, difference=difference, seed=seed)
    x_global, x_local = world.tables(
        {"Independent": "independent", "Central": "central"}.get(method, "fedres")
    )
    clients = [
        BanditClient(
            SquareCB(50.0), x_local.shape[1], x_global.shape[1], i, [seed, i], step=STEP,
            mix=(0.0, 1.0) if method == "mixed" else None,
        )
        for i in range(CLIENTS)
    ]  # fmt: skip
    server = BanditServer(x_global.shape[1], STEP)
    total = 0.0
    for turn in range(1, ROUNDS + 1):
        for i, client in enumerate(clients):
            offer = world.actions(seed, i, turn)
            contexts = [world.contexts(offer, x) for x in (x_global, x_local)]
            decision = client.choose(*contexts)
            chosen = offer.row[decision.action], offer.block[decision.action]
            reward = world.reward(seed, i, turn, *chosen)
            client.reward(decision.id, reward)
            client.confirm(server.apply(client.uploads()))
            total += reward
        newest = server.publish()
        for client in clients:
            client.refresh(newest)
    return total / CLIENTS / ROUNDS


def main() -> None:
    """Print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    cells = [
        (d, method, seed) for d in WORLDS.values() for method in METHODS for seed in range(seeds)
    ]
    calls = [lambda cell=cell: earned(*cell) for cell in cells]
    found = np.reshape(run_all(calls, progress="deciding"), (len(WORLDS), len(METHODS), seeds))
    print(f"| clients | {' | '.join(METHODS)} | over FedRes | over the best of three |")
    print(f"|---|{'---|' * (len(METHODS) + 2)}")
    for name, rewards in zip(WORLDS, found, strict=True):
        best = rewards[rewards[:-1].mean(axis=1).argmax()]
        gains = interval(rewards[-1] - rewards[2]), interval(rewards[-1] - best)
        cells_ = [f"{each:.3f}" for each in rewards.mean(axis=1)]
        gained = [f"{gain.mean:+.3f} ± {gain.half:.3f}" for gain in gains]
        print(f"| {name} | {' | '.join([*cells_, *gained])} |")


if __name__ == "__main__":
    main()
