"""`simulate_bandit`: an environment, a policy and a method in, a `BanditRun` out."""

from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedres.bandits.environments import Environment, Method
from fedres.bandits.policies import Policy
from fedres.core.delays import Delay, Lag, Uniform, as_delay, per_client
from fedres.core.steps import SMALLEST, Adaptive, Step
from fedres.core.types import F32, F64, I32
from fedres.simulation.settings import choose

if TYPE_CHECKING:
    from fedres.bandits import kernels


@dataclass(frozen=True, eq=False)
class BanditRun:
    """What a bandit run leaves behind.

    Attributes
    ----------
    environment, policy, method, seed
        What was run.
    reward_by_round, reward_by_client
        Mean rewards.
    mean_by_round
        Expected rewards of the chosen actions, mean over clients.
    w_global, w_local
        The models at the end; `w_local` has a row a client.
    seconds
        Time spent in the rounds.
    actions, rewards, probabilities
        (clients, rounds) and, of probabilities, (clients, rounds, actions), NaN where fewer
        actions were on offer; None unless they were kept.
    """

    environment: Environment = field(repr=False)
    policy: Policy
    method: Method
    seed: int
    reward_by_round: F64 = field(repr=False)
    reward_by_client: F64 = field(repr=False)
    mean_by_round: F64 = field(repr=False)
    w_global: F32 = field(repr=False)
    w_local: F32 = field(repr=False)
    seconds: float
    actions: I32 | None = field(repr=False)
    rewards: F32 | None = field(repr=False)
    probabilities: F64 | None = field(repr=False)

    @property
    def reward(self) -> float:
        """The average reward of all decisions."""
        return float(self.reward_by_round.mean())

    @property
    def decisions(self) -> int:
        """How many there were."""
        return len(self.reward_by_client) * len(self.reward_by_round)

    @cached_property
    def regret_by_round(self) -> F64:
        """What the best pair of models would have earned more, mean over clients."""
        from fedres.bandits import kernels

        world, scratch = self.environment.world, kernels.scratch(self.environment.most)
        best = np.zeros(len(self.reward_by_round))
        right = self.environment.best
        kernels.best_by_round(world, right, self.seed, scratch.row, scratch.block, best)
        return best / self.environment.clients - self.mean_by_round


def simulate_bandit(
    environment: Environment,
    policy: Policy,
    method: Method = "fedres",
    *,
    rounds: int,
    delay: int | Delay = 0,
    reward_delay: Lag = 0,
    step: Step = Adaptive(0.1, clip=False),
    local_step: Step | None = None,
    constant: bool = False,
    learn_from: Literal["all", "exploration"] = "all",
    seed: int = 0,
    keep_decisions: bool = False,
) -> BanditRun:
    """Let every client of an environment decide, once a round.

    In round t = 1, 2, ... client i chooses with G_{t-1-beta_i} and its local model. The reward
    becomes known to it at the end of round t + `reward_delay`; then it learns, and what it sends
    arrives alpha_i rounds later.

    Parameters
    ----------
    environment
        What is offered, and what it pays.
    policy
        How clients choose.
    method
        ``fedres``; ``independent`` (each client alone, on all features); or ``central`` (the
        global model alone).
    rounds
        T.
    delay
        Rounds that messages are late: a `Delay`, or a round trip to be split evenly.
    reward_delay
        Rounds that rewards are late: a number, one a client, or `Uniform(low, high)`.
    step, local_step
        How models move; local ones of FedRes differently, if given.
    constant
        Whether every model has a feature that is always 1. All actions share it: it cannot change
        which of them is best.
    learn_from
        ``all`` decisions, or those of pure ``exploration`` alone, as in the paper.
    seed
        Decides everything that is random. Decisions are the same for all methods and policies.
    keep_decisions
        Whether actions, rewards and probabilities are kept one by one.

    Examples
    --------
    >>> from fedres.bandits import Catalogue, SquareCB
    >>> world = Catalogue.draw(clients=20, difference=0.5, seed=0)
    >>> runs = {
    ...     method: simulate_bandit(
    ...         world, SquareCB(50.0), method, rounds=2000, delay=20, reward_delay=5,
    ...         step=Adaptive(0.2), local_step=Adaptive(0.05),
    ...     )
    ...     for method in ("independent", "central", "fedres")
    ... }
    >>> sorted(runs, key=lambda method: runs[method].reward)  # FedRes earns most
    ['central', 'independent', 'fedres']
    >>> bool(runs["fedres"].regret_by_round.mean() < 0.04)
    True
    """
    from fedres.bandits import kernels

    choose("learn_from", learn_from, ("all", "exploration"))
    if learn_from == "exploration" and not policy.has_exploration:
        raise ValueError(f"{policy} never purely explores: use learn_from='all'")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a number from 0 to 2^63 - 1, not {seed}")
    if local_step is None or method != "fedres":  # elsewhere there is only one kind of model
        local_step = step
    if type(local_step) is not type(step):
        raise ValueError(f"step and local_step must be of one kind, not {step} and {local_step}")
    clients = environment.clients
    xg, xl = environment.views(method)
    # Without a server there is nothing to wait for.
    delay = as_delay(delay) if xg.width[0] else Delay()
    up, down = lags(delay.up, clients), lags(delay.down, clients)
    late = lags(Delay(reward_delay).up, clients)  # a delay checks what it is given
    depth = int((late.high + up.high).max()) + 1
    # Sgd takes its gradients at a version that must not change under it.
    history = int(down.high.max()) + 1 + (not step.adaptive)
    size_global, size_local = (environment.blocks * int(view.width[0]) for view in (xg, xl))
    global_ = _models(size_global, history, 1, step, constant)
    local = _models(size_local, clients, clients, local_step, constant)
    kept = (rounds, clients) if keep_decisions else (0, 0)
    record = kernels.Record(
        np.zeros(rounds),
        np.zeros(rounds),
        np.zeros(clients),
        np.empty(kept, np.int32),
        np.empty(kept, np.float32),
        np.full((*kept, environment.most), np.nan),
    )
    rules = kernels.Rules(seed, rounds, step.adaptive, learn_from == "all")
    pending = kernels.Pending(
        depth,
        *np.full((4, depth * clients), -1, np.int32),
        *np.empty((2, depth * clients), np.float32),
    )
    began = perf_counter()
    newest = kernels.play(
        environment.world, kernels.chooser(policy), rules, xg, xl, late, up, down, global_, local,
        pending, kernels.scratch(environment.most), record,
    )  # fmt: skip
    seconds = perf_counter() - began
    w_global = _each(global_)[newest].copy()
    w_local = _each(local)
    if not (np.isfinite(w_global).all() and np.isfinite(w_local).all()):
        raise ValueError(f"the models grew beyond all bounds with {step}: use a smaller eta")
    return BanditRun(
        environment, policy, method, seed,
        record.reward_by_round / clients, record.reward_by_client / rounds,
        record.mean_by_round / clients, w_global, w_local, seconds,
        *(
            (record.action.T, record.reward.T, record.probability.swapaxes(0, 1))
            if keep_decisions
            else (None, None, None)
        ),
    )  # fmt: skip


def lags(lag: Lag, clients: int) -> "kernels.Lags":
    """How long each client has to wait, at least and at most."""
    from fedres.bandits.kernels import Lags

    if isinstance(lag, Uniform):
        return Lags(per_client(lag.low, clients), per_client(lag.high, clients))
    fixed = per_client(lag, clients)
    return Lags(fixed, fixed)


def _models(size: int, copies: int, models: int, step: Step, constant: bool) -> "kernels.Models":
    """Models at zero, with room for a constant; `copies` of so many that have sums of squares."""
    from fedres.bandits.kernels import Models

    edge = 0 if step.clip else np.inf
    return Models(
        size + 1,
        np.float32(step.eta),
        np.float32(constant and size > 0),
        np.zeros((size + 1) * copies, np.float32),
        np.full((size + 1) * models, SMALLEST, np.float32),
        np.full(models, -edge, np.float32),
        np.full(models, edge, np.float32),
    )


def _each(models: "kernels.Models") -> F32:
    """The weights, a row a model, the constant's last if it has one."""
    return models.weights.reshape(-1, models.size)[:, : models.size - 1 + int(models.constant)]
