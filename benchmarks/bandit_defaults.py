"""Which parameters policies and second-order models should come with.

Run with `make bench-bandit-defaults`; needs FEDRES_DATA. None of the worlds and seeds is one that
`benchmarks/bandits.py` or the documents report on: three other data sets, and catalogues of other
shapes. Clients differ or are alike, and there are 5, 20 or 80 of them.

A parameter is judged by what it costs: in each world and number of clients, the average reward of
the best candidate of its policy less its own, in thousandths; by the mean over worlds, and by the
worst. Results are stored beside this script as they come, so that a run that was stopped goes on;
`--print` only prints them; `bandit_tables.py` puts them into `docs/bandits.md`.
"""

import argparse
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from stored_results import Store, markdown

ROUNDS, SEEDS, CLIENTS = 500, (300, 301), (5, 20, 80)
STORE = Store("bandit_defaults.json")


class Candidate(NamedTuple):
    """A policy, by name and parameter, and the penalties of global and local weights."""

    policy: str
    parameter: float
    penalty: float = 0.0  # 0: steps along gradients
    local: float = 0.0


GAMMAS = (3.0, 10.0, 30.0, 100.0, 300.0)
SQUARECB = [
    Candidate(policy, gamma) for policy, gamma in product(("SquareCB", "SquareCB, sqrt P"), GAMMAS)
]
PENALTIES = ((1.0, 1.0), (1.0, 3.0), (0.3, 1.0))
LINUCB = [
    Candidate("LinUCB", alpha, *penalties)
    for alpha, penalties in product((0.1, 0.2, 0.3, 0.5), PENALTIES)
] + [Candidate("LinUCB", 1.0, 1.0, 1.0)]
THOMPSON = [Candidate("Thompson", scale, 1.0, 1.0) for scale in (0.05, 0.1, 0.2)]
FAMILIES = {"SquareCB": SQUARECB, "second-order": [*LINUCB, *THOMPSON]}


def worlds():
    from fedres.bandits import Catalogue, Multiclass

    made = {}
    for difference, width in ((0.25, 5), (0.75, 15)):
        shape = {"width_global": width, "width_local": width, "items": 60}
        made[f"catalogue {difference}"] = partial(Catalogue.draw, difference=difference, **shape)
    made["texture, differ"] = partial(Multiclass.deal, "texture", classes=5, permute=0.4)
    made["satimage, differ"] = partial(Multiclass.deal, "satimage", permute=0.5)
    made["satimage, alike"] = partial(Multiclass.deal, "satimage")
    return made


def earn(make, candidate, clients, seed):
    """The average reward of one run."""
    import fedres
    from fedres.bandits import LinUCB, Ridge, SquareCB, Thompson, simulate_bandit

    kind, parameter, penalty, local = candidate
    if penalty:
        policy = LinUCB(parameter) if kind == "LinUCB" else Thompson(parameter)
        steps = {"step": Ridge(penalty), "local_step": Ridge(local)}
    else:
        policy = SquareCB(parameter, clients=clients if "sqrt" in kind else 1)
        steps = {"step": fedres.Adaptive(0.2), "local_step": fedres.Adaptive(0.05)}
    world = make(clients=clients, seed=seed)
    return simulate_bandit(world, policy, rounds=ROUNDS, seed=seed, **steps).reward


def jobs():
    cells = product(worlds(), CLIENTS, [one for some in FAMILIES.values() for one in some], SEEDS)
    return {f"{world} | {clients} | {tuple(one)} | {seed}": (world, clients, one, seed)
            for world, clients, one, seed in cells}  # fmt: skip


def run(seconds):
    made = worlds()

    def one_run(world, clients, one, seed):
        return earn(made[world], one, clients, seed)

    STORE.fill(jobs(), one_run, seconds)


def tables():
    """What each candidate costs, a table a family."""
    earned = {}
    for key, (world, clients, one, _) in jobs().items():
        earned.setdefault((world, clients, one), []).append(STORE[key])
    found = {}
    for family, candidates in FAMILIES.items():
        best = {
            (world, clients): max(np.mean(earned[world, clients, one]) for one in candidates)
            for world, clients in product(worlds(), CLIENTS)
        }
        rows = []
        for one in candidates:
            lost = {cell: 1000 * (top - np.mean(earned[*cell, one])) for cell, top in best.items()}
            by_clients = [np.mean([lost[w, clients] for w in worlds()]) for clients in CLIENTS]
            rows.append((one, [*by_clients, np.mean(list(lost.values())), max(lost.values())]))
        rows.sort(key=lambda row: row[1][3])
        head = ["policy", *(f"P = {clients}" for clients in CLIENTS), "mean", "worst"]
        cells = [[words(one), *(f"{x:.0f}" for x in costs)] for one, costs in rows[:8]]
        found[family] = markdown(head, cells)
    return found


def words(one):
    """How a candidate is written."""
    kind, parameter, penalty, local = one
    if not penalty:
        factor = " x sqrt(P)" if "sqrt" in kind else ""
        return f"SquareCB, gamma {parameter:g}{factor}"
    return f"{kind}({parameter:g}), penalties {penalty:g} and {local:g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="only print what is stored")
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop after so long")
    options = parser.parse_args()
    if not options.print:
        run(options.seconds)
    print(*tables().values(), sep="\n\n")
