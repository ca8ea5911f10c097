"""The bandit of section 5 of the paper, as Theorem 3 bounds its regret.

Every client explores in rounds B, 2B, 3B, ..., uniformly, and both sides learn from those rounds
alone, by FedRes.SGD in its aligned form with projection on a ball of radius D; in all other rounds
clients take the action that the two models together score highest.
"""

from typing import Any

from fedres.bandits.environments import Environment
from fedres.bandits.policies import EpsilonGreedy
from fedres.bandits.simulator import BanditRun, simulate_bandit
from fedres.core import theory
from fedres.core.delays import Delay, as_delay
from fedres.core.steps import Sgd


def paper_bandit(
    environment: Environment,
    *,
    rounds: int,
    delay: int | Delay = 0,
    explore_every: int | None = None,
    step: Sgd | None = None,
    local_step: Sgd | None = None,
    radius: float = 1.0,
    seed: int = 0,
    **options: Any,
) -> BanditRun:
    """Let every client decide by the algorithm of Theorem 3.

    Parameters
    ----------
    environment, rounds, delay, seed
        As in `simulate_bandit`, and so are all other options.
    explore_every
        B; if None, `fedres.core.theory.explore_every` with all constants but the radius 1.
    step, local_step
        eta and eta_i; if None, those of `fedres.core.theory.sgd_step_size` for T / B rounds and a
        delay of tau / B, likewise.
    radius
        D.

    Examples
    --------
    >>> from fedres.bandits import Catalogue
    >>> world = Catalogue.draw(clients=20, items=10, difference=0.5, seed=0)
    >>> run = paper_bandit(world, rounds=4000, delay=20, explore_every=5, radius=2.0)
    >>> regret = run.regret_by_round
    >>> bool(regret[-1000:].mean() < 0.8 * regret[:1000].mean())
    True
    """
    late = as_delay(delay)
    clients = environment.clients
    problem = theory.Problem(radius=radius)
    if explore_every is None:
        explore_every = theory.explore_every(rounds, clients, environment.most, problem)
    updates = max(1, rounds // explore_every)
    pair = theory.sgd_step_size(updates, clients, -(-late.round_trip // explore_every), problem)
    return simulate_bandit(
        environment,
        EpsilonGreedy(explore_every=explore_every),
        rounds=rounds,
        delay=late,
        step=step or Sgd(pair.eta),
        local_step=local_step or Sgd(pair.local_eta),
        learn_from="exploration",
        alignment="aligned",
        radius=radius,
        seed=seed,
        **options,
    )
