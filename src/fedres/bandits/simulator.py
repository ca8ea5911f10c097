"""`simulate_bandit`: an environment, a policy and a method in, a `BanditRun` out."""

from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any, Literal

import numpy as np

from fedres.bandits.environments import Environment
from fedres.bandits.game import Game, new_offer
from fedres.bandits.learners import STEP, Learner, check_errors
from fedres.bandits.policies import Policy
from fedres.bandits.world import best_by_round
from fedres.core import clock
from fedres.core.delays import Delay, Lag, as_delay
from fedres.core.primitives import Models
from fedres.core.ridge import Ridge, new_sides
from fedres.core.rule import Rule
from fedres.core.schedule import never, plan
from fedres.core.sgd import Alignment, Many, Play, new_flight
from fedres.core.types import F32, F64, I32
from fedres.simulation.settings import Method, SgdOptions, at_least_1, check_radius, choose


@dataclass(frozen=True, eq=False)
class BanditRun:
    """What a bandit run leaves behind."""

    environment: Environment = field(repr=False)
    policy: Policy
    method: Method
    seed: int
    reward_by_round: F64 = field(repr=False)  # means
    reward_by_client: F64 = field(repr=False)
    mean_by_round: F64 = field(repr=False)  # expected rewards of the chosen actions
    w_global: F32 = field(repr=False)  # at the end
    w_local: F32 = field(repr=False)  # a row a client
    seconds: float  # spent in the rounds
    # (clients, rounds) and, of probabilities, (clients, rounds, actions), NaN where fewer actions
    # were on offer; None unless they were kept.
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
        from fedres.core.compiled import compiled

        world, right = self.environment.world, self.environment.best
        best = np.zeros(len(self.reward_by_round))
        scratch = np.empty((2, self.environment.most), np.int32)
        compiled(best_by_round)(world, right, self.seed, *scratch, best)
        return best / self.environment.clients - self.mean_by_round


def simulate_bandit(
    environment: Environment,
    policy: Policy,
    method: Method = "fedres",
    *,
    rounds: int,
    delay: int | Delay = 0,
    reward_delay: Lag = 0,
    step: Learner = STEP,
    local_step: Learner | None = None,
    constant: bool = False,
    learn_from: Literal["all", "exploration"] = "all",
    alignment: Alignment = "arrival",
    radius: float | None = None,
    seed: int = 0,
    keep_decisions: bool = False,
    compiled: bool = True,
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
        How models move; local ones of FedRes differently, if given. `Ridge` is second-order, and
        what policies need that have to know how sure scores are.
    constant
        Whether every model has a feature that is always 1. All actions share it: it cannot change
        which of them is best.
    learn_from
        ``all`` decisions, or those of pure ``exploration`` alone, as in the paper.
    alignment, radius
        As in `simulate`; see `paper_bandit` for the paper's.
    seed
        Decides everything that is random. Decisions are the same for all methods and policies.
    keep_decisions
        Whether actions, rewards and probabilities are kept one by one.
    compiled
        False runs the same functions without the compiler: the same result, slowly.

    Examples
    --------
    >>> from fedres.bandits import Catalogue, SquareCB
    >>> from fedres.core.steps import Adaptive
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
    choose("learn_from", learn_from, ("all", "exploration"))
    if learn_from == "exploration" and not policy.has_exploration:
        raise ValueError(f"{policy} never purely explores: use learn_from='all'")
    at_least_1(rounds=rounds)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a number from 0 to 2^63 - 1, not {seed}")
    if local_step is None or method != "fedres":  # elsewhere there is only one kind of model
        local_step = step
    if isinstance(step, Ridge) or isinstance(local_step, Ridge):
        _check_ridge(environment, step, local_step, alignment, radius, constant)
    else:
        check_errors(policy, step)
        SgdOptions(step, local_step, alignment)  # which checks them
        check_radius(radius)
    clients = environment.clients
    xg, xl = environment.views(method)
    connected = bool(xg.width[0])  # else there is no server and nothing to wait for
    alignment = alignment if connected else "arrival"
    layout = plan(
        clients,
        rounds,
        1,
        as_delay(delay) if connected else Delay(),
        waits=alignment in ("aligned", "late"),
        frozen=not step.adaptive,
        label_delay=reward_delay,
        seed=seed,
    )
    times = layout.times if connected else layout.times._replace(due_server=never(rounds))
    steps: Any = (step, local_step)
    rule, own_rule = (Rule(one, alignment=alignment, radius=radius) for one in steps)
    global_: Any
    local: Any
    if isinstance(step, Ridge):
        global_, local = new_sides(
            (xg, xl), steps, clients, blocks=environment.blocks, constant=constant,
            versions=times.history, messages=layout.depth * clients, tells=policy.needs_errors,
        )  # fmt: skip
    else:
        eta, eta_local = (one.eta for one in steps)
        global_ = environment.side(xg, 1, constant, eta, rule.reach, times.history)
        local = environment.side(xl, clients, constant, eta_local, own_rule.reach)
    # Messages without a sample are decisions that are not learned from.
    counts = Many(1, np.zeros(layout.depth * clients, np.int32))
    flight = new_flight(layout.depth, clients, 1)._replace(samples=counts)
    kept = (rounds, clients) if keep_decisions else (0, 0)
    game = Game(
        environment.world,
        policy.chooser,
        seed,
        learn_from == "all",
        new_offer(environment.most),
        np.zeros(rounds),
        np.zeros(rounds),
        np.zeros(clients),
        np.empty(kept, np.int32),
        np.empty(kept, np.float32),
        np.full((*kept, environment.most), np.nan),
    )
    terms = rule.terms(np.ones(clients, np.float32))
    play = _compiled(type(local)) if compiled else clock.play
    began = perf_counter()
    with np.errstate(all="ignore"):  # a run may diverge, and hashes overflow on purpose
        play(game, Play(terms, times, global_, local, flight), np.empty((0, 0), np.float32))
    seconds = perf_counter() - began
    w_global, w_local = _each(global_)[rounds % times.history].copy(), _each(local)
    if not (np.isfinite(w_global).all() and np.isfinite(w_local).all()):
        raise ValueError(f"the models grew beyond all bounds with {step}: use a smaller eta")
    return BanditRun(
        environment, policy, method, seed,
        game.reward_by_round / clients, game.reward_by_client / rounds,
        game.mean_by_round / clients, w_global, w_local, seconds,
        *(
            (game.chosen.T, game.rewards.T, game.probabilities.swapaxes(0, 1))
            if keep_decisions
            else (None, None, None)
        ),
    )  # fmt: skip


def _check_ridge(
    environment: Environment,
    step: Any,
    local_step: Any,
    alignment: Alignment,
    radius: float | None,
    constant: bool,
) -> None:
    """Refuse what a second-order run cannot be."""
    if type(step) is not type(local_step) or step.diagonal != local_step.diagonal:
        raise ValueError(f"{step} and {local_step} do not go together: both sides must be alike")
    if alignment != "arrival" or radius is not None:
        raise ValueError(f"alignment={alignment!r} and radius={radius} are for steps, not {step}")
    if constant and environment.blocks > 1:
        raise ValueError("constant=True ties the weights of all classes together: leave it out")


def _compiled(side: type) -> Any:
    # A compiler takes a moment to load, which the command line should not wait for.
    from fedres.core.compiled import compiled

    return compiled(clock.play, Game, side, Many)


def _each(side: Any) -> F32:
    """The weights, a row a model, the constant's last if it has one."""
    models: Models = side.models
    weights: F32 = models.weights.reshape(len(models.size), -1)
    return weights if models.constant[0] else weights[:, :-1]
