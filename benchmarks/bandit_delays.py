"""What late rewards cost second-order models, and what they cost steps along gradients.

Run with `make bench-bandit-defaults`; needs FEDRES_DATA. 20 clients, 600 rounds, messages 20 rounds
there and back, rewards 0, 5, 20 and 100 rounds late. All learners are as they come. Results are
stored beside this script; `--print` only prints them.
"""

import argparse
from functools import partial
from itertools import product

import numpy as np

from stored_results import Store, markdown

CLIENTS, ROUNDS, SEEDS, ROUND_TRIP, LATE = 20, 600, (200, 201, 202), 20, (0, 5, 20, 100)
STORE = Store("bandit_delays.json")


def worlds():
    from fedres.bandits import Catalogue, Multiclass

    return {
        "catalogue, differ": partial(Catalogue.draw, CLIENTS, difference=0.5),
        "pendigits, differ": partial(Multiclass.deal, "pendigits", CLIENTS, classes=4, permute=0.3),
        "pendigits, alike": partial(Multiclass.deal, "pendigits", CLIENTS),
    }


def learners():
    import fedres
    from fedres.bandits import Greedy, LinUCB, Ridge, SquareCB, Thompson

    along = {"step": fedres.Adaptive(0.2), "local_step": fedres.Adaptive(0.05)}
    return {
        "SquareCB, SGD": (SquareCB(clients=CLIENTS), along),
        "Greedy, second-order": (Greedy(), {"step": Ridge()}),
        "LinUCB, second-order": (LinUCB(), {"step": Ridge()}),
        "Thompson, second-order": (Thompson(), {"step": Ridge()}),
        "LinUCB, diagonal": (LinUCB(), {"step": Ridge(diagonal=True)}),
    }


def run(world, learner, late, seed):
    """The average reward."""
    from fedres.bandits import simulate_bandit

    (policy, steps), made = learners()[learner], worlds()[world](seed=seed)
    options = {"rounds": ROUNDS, "delay": ROUND_TRIP, "reward_delay": late, "seed": seed}
    return simulate_bandit(made, policy, **options, **steps).reward


def jobs():
    cells = product(worlds(), learners(), LATE, SEEDS)
    return {" | ".join(map(str, job)): job for job in cells}


def tables():
    rows = []
    for world, learner in product(worlds(), learners()):
        earned = [
            np.mean([STORE[f"{world} | {learner} | {late} | {seed}"] for seed in SEEDS])
            for late in LATE
        ]
        rows.append([world, learner, *(f"{x:.3f}" for x in earned)])
    return {"delays": markdown(["data", "learner", *map(str, LATE)], rows)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="only print what is stored")
    if not parser.parse_args().print:
        STORE.fill(jobs(), run)
    print(*tables().values())
