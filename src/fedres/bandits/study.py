"""Policies and methods side by side on the same decisions: what they earn, and what they regret."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fedres.bandits.by_name import SYNTHETIC, Maker, choose_policies, environments
from fedres.bandits.policies import Policy
from fedres.bandits.replayed_rows import Replay
from fedres.bandits.simulator import BanditRun, simulate_bandit
from fedres.core.ridge import Ridge
from fedres.core.steps import Adaptive
from fedres.core.types import F64, I64
from fedres.simulation.intervals import Interval, interval, or_none
from fedres.simulation.parallel import run_all, working
from fedres.simulation.settings import SGD_METHODS, Method, at_least_1

CLIENTS = (5, 10, 20, 50, 100)
DELAYS = (0, 20, 80, 200)
FEW = 5  # seeds for the points beside the main one

ETAS = (0.1, 0.3, 1.0)
LOCAL_ETAS = (0.01, 0.03, 0.1, 0.3)
TUNING_SEEDS = (10_000, 10_001)

SETTING = ("data", "differ", "clients", "delay", "reward_delay", "rounds", "seeds")


Cell = tuple[str, Method]  # a policy by name, and a method


class Steps(NamedTuple):
    """Step sizes of the server, and of the clients of FedRes; with other methods they are one.

    None where a policy asks for second-order models, which take no steps.
    """

    eta: float | None
    local_eta: float | None

    def options(self) -> dict[str, Any]:
        """How `simulate_bandit` takes them."""
        step, local_step = (Ridge() if eta is None else Adaptive(eta, clip=False) for eta in self)
        return {"step": step, "local_step": local_step}


def grid_of(policy: Policy, method: Method) -> list[Steps]:
    """Step sizes to choose from."""
    if policy.needs_errors:
        return [Steps(None, None)]
    if method == "fedres":
        return [Steps(*pair) for pair in product(ETAS, LOCAL_ETAS)]
    return [Steps(eta, eta) for eta in ETAS]


class Curves(NamedTuple):
    """Averages over all decisions up to each checkpoint."""

    reward: F64
    regret: F64


@dataclass(frozen=True)
class Outcome:
    """One policy with one method."""

    steps: Steps  # those that earned most on the tuning seeds,
    tuned: float  # and what they earned there
    rewards: F64  # (seeds, checkpoints): averages so far
    regrets: F64
    by_clients: F64  # (seeds, points): average regret of whole runs
    by_delay: F64

    @property
    def reward(self) -> F64:
        """The average reward of all decisions, one a seed."""
        return self.rewards[:, -1]

    @property
    def regret(self) -> F64:
        """The average regret of all decisions, one a seed."""
        return self.regrets[:, -1]


@dataclass(frozen=True)
class Study:
    """What `study` found; outcomes by policy and method."""

    data: str
    differ: bool
    policies: dict[str, Policy]
    clients: int
    delay: int
    reward_delay: int
    rounds: int
    seeds: int
    checkpoints: I64
    points_clients: tuple[int, ...]
    points_delay: tuple[int, ...]
    outcomes: dict[Cell, Outcome]
    offers: int | None = None  # of a table of one's own: how many of a client's rows

    @property
    def realizable(self) -> bool:
        """Whether the models can be exactly right."""
        return self.data == SYNTHETIC and self.offers is None

    def gain_over(self, policy: str, method: Method) -> Interval:
        """Average reward of FedRes less that of another method, paired by seed."""
        fedres, other = (self.outcomes[policy, one].reward for one in ("fedres", method))
        return interval(fedres - other)

    def exponent(self, policy: str, method: Method) -> Interval:
        """How average regret falls: x of T^x, fitted to the last tenfold of T, seed by seed."""
        last = self.checkpoints * 10 >= self.rounds
        regrets = self.outcomes[policy, method].regrets[:, last]
        if last.sum() < 2 or not (regrets > 0).all():
            return Interval(np.nan, np.nan)
        slopes = np.polyfit(np.log(self.checkpoints[last]), np.log(regrets).T, 1)[0]
        return interval(slopes)

    def best_policy(self) -> str:
        """The one that earned FedRes most on the tuning seeds, which are not reported."""
        return max(self.policies, key=lambda name: self.outcomes[name, "fedres"].tuned)

    def verdict(self) -> str:
        """One sentence: does personal + shared earn more than only personal and only shared?"""
        policy = self.best_policy()
        parts = []
        for method in ("independent", "central"):
            gain = self.gain_over(policy, method)
            relation = gain.in_words("earns more than", "earns less than")
            parts.append(f"{relation} {method} ({gain:+.3f} a decision)")
        return (
            f"On {self.data}, FedRes {' and '.join(parts)}, all with {policy}, the policy that "
            "earned FedRes most on other seeds."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            **{name: getattr(self, name) for name in SETTING},
            "verdict": self.verdict(),
            "checkpoints": self.checkpoints.tolist(),
            "points_clients": self.points_clients,
            "points_delay": self.points_delay,
            "results": [
                {
                    "policy": policy,
                    "parameters": repr(self.policies[policy]),
                    "method": method,
                    "reward": float(outcome.reward.mean()),
                    "reward_interval": or_none(interval(outcome.reward).half),
                    "reward_per_seed": outcome.reward.tolist(),
                    "reward_curve": outcome.rewards.mean(axis=0).tolist(),
                    "regret": float(outcome.regret.mean()),
                    "regret_interval": or_none(interval(outcome.regret).half),
                    "regret_curve": outcome.regrets.mean(axis=0).tolist(),
                    "regret_exponent": or_none(self.exponent(policy, method).mean),
                    "regret_by_clients": outcome.by_clients.mean(axis=0).tolist(),
                    "regret_by_delay": outcome.by_delay.mean(axis=0).tolist(),
                    "reward_on_tuning_seeds": outcome.tuned,
                    **outcome.steps._asdict(),
                }
                for (policy, method), outcome in self.outcomes.items()
            ],
        }


def study(
    data: str | tuple[str, Replay] = "digits",
    policies: Sequence[str] = ("epsilon-greedy", "squarecb", "softmax"),
    *,
    clients: int = 50,
    delay: int = 20,
    reward_delay: int = 5,
    rounds: int = 1000,
    seeds: int = 10,
    differ: bool = True,
    explore_every: int | str | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Study:
    """Run policies with all three methods on the same decisions, one environment a seed.

    Every policy and method takes the step sizes of a grid that earn most on two other seeds;
    ``"linucb"`` has second-order models, `fedres.bandits.Ridge`, as they come. Data
    are those of `environments`, or a name and a `Replay`, of whose clients each seed draws some;
    policies are those of `choose_policies`; clients, delays and rounds are as in
    `simulate_bandit`. There are at most five seeds for regret against P and delay.

    Examples
    --------
    >>> found = study("synthetic", ["squarecb"], clients=4, rounds=50, seeds=2)
    >>> print(found.verdict()[:20])
    On synthetic, FedRes
    """
    at_least_1(rounds=rounds, seeds=seeds, clients=clients)
    own = None
    if isinstance(data, str):
        make: Maker = environments(data, differ)
    else:
        data, own = data
        make, clients = own.some, min(clients, own.clients)
    with working("loading compiled code (the first time, compiling it)", progress):
        first = make(clients, 0)
        chosen = choose_policies(policies, explore_every, rounds, clients, first.most)
        for policy in chosen.values():
            steps = grid_of(policy, "fedres")[0]
            simulate_bandit(first, policy, rounds=1, **steps.options())

    cells = list(product(chosen, SGD_METHODS))
    play = partial(simulate_bandit, reward_delay=reward_delay, rounds=rounds)
    bars = (f"{what} on {data}" if progress else None for what in ("tuning", "deciding"))
    tuned = _tune(make, chosen, cells, clients, partial(play, delay=delay), n_jobs, next(bars))

    most = np.inf if own is None else own.clients
    points_clients = tuple(sorted({clients} | {point for point in CLIENTS if point <= most}))
    points_delay = tuple(sorted({delay} | {point for point in DELAYS if point < rounds}))
    checkpoints = np.unique(np.geomspace(1, rounds, 60).round().astype(np.int64))

    def one(count: int, seed: int) -> dict[int, dict[Cell, Curves]]:
        environment = make(count, seed)

        def curves(late: int, cell: Cell) -> Curves:
            policy, options = _of(chosen, cell, count), tuned[cell][0].options()
            run = play(environment, policy, cell[1], delay=late, seed=seed, **options)
            totals = (run.reward_by_round.cumsum(), run.regret_by_round.cumsum())
            return Curves(*(total[checkpoints - 1] / checkpoints for total in totals))

        delays = points_delay if count == clients and seed < FEW else (delay,)
        return {late: {cell: curves(late, cell) for cell in cells} for late in delays}

    few = min(seeds, FEW)
    jobs = [(clients, seed) for seed in range(seeds)]
    jobs += [(p, seed) for p in points_clients if p != clients for seed in range(few)]
    done = run_all([partial(one, *job) for job in jobs], n_jobs, next(bars))
    found = dict(zip(jobs, done, strict=True))

    def outcome(cell: Cell) -> Outcome:
        main = [found[clients, seed][delay][cell] for seed in range(seeds)]
        rewards, regrets = (np.array(values) for values in zip(*main, strict=True))

        def last(points: list[tuple[int, int]]) -> F64:
            ends = [[found[p, s][d][cell].regret[-1] for p, d in points] for s in range(few)]
            return np.array(ends)

        by_clients = last([(p, delay) for p in points_clients])
        by_delay = last([(clients, late) for late in points_delay])
        return Outcome(*tuned[cell], rewards, regrets, by_clients, by_delay)

    return Study(
        data, differ, chosen, clients, delay, reward_delay, rounds, seeds, checkpoints,
        points_clients, points_delay, {cell: outcome(cell) for cell in cells},
        None if own is None else own.offers,
    )  # fmt: skip


def _of(policies: Mapping[str, Policy], cell: Cell, clients: int) -> Policy:
    """The policy of a cell, as so many clients have it: alone, each shares its model with none."""
    name, method = cell
    return policies[name].shared_by(1 if method == "independent" else clients)


def _tune(
    make: Maker,
    policies: Mapping[str, Policy],
    cells: list[Cell],
    clients: int,
    play: Callable[..., BanditRun],
    n_jobs: int | None,
    progress: str | None,
) -> dict[Cell, tuple[Steps, float]]:
    """The step sizes that earn most, for every policy and method, and what they earn."""
    worlds = [make(clients, seed) for seed in TUNING_SEEDS]
    grids = {cell: grid_of(policies[cell[0]], cell[1]) for cell in cells}
    jobs = [(cell, steps) for cell in cells for steps in grids[cell]]

    def earn(cell: Cell, steps: Steps) -> float:
        runs = [
            play(world, _of(policies, cell, clients), cell[1], seed=seed, **steps.options())
            for world, seed in zip(worlds, TUNING_SEEDS, strict=True)
        ]
        return float(np.mean([run.reward for run in runs]))

    found = run_all([partial(earn, *job) for job in jobs], n_jobs, progress)
    earned = dict(zip(jobs, found, strict=True))
    best = {cell: max(grids[cell], key=lambda one: earned[cell, one]) for cell in cells}
    return {cell: (steps, earned[cell, steps]) for cell, steps in best.items()}
