"""The paper's bounds on the average regret, and the settings that reach them.

The paper states them as O(...): here every hidden constant is 1, and the logarithms that
Theorem 1 hides are left out. So they say how regret *scales* with rounds, clients and delay, and
how its terms compare; they are not numbers that a run must stay below.

Throughout, with T rounds, P clients and round-trip delay tau:

    W = |w^g_*|^2 + sum_i |w_{i,*}|^2

is the size of the best pair of models, sigma^2 bounds the variance (of the gradient for SGD and
the bandit, of the loss for ERM), and losses are gamma-smooth with gradients of at most G within
the ball of radius D.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

PerClient = float | Sequence[float]


__all__ = [
    "EtaPair",
    "Problem",
    "bandit_bound",
    "erm_bound",
    "explore_every",
    "mixture_bound",
    "sgd_bound",
    "sgd_full_bound",
    "sgd_step_size",
]


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class Problem:
    """What the bounds depend on beside rounds, clients and delay; what is not given is 1.

    Attributes
    ----------
    norm_global, norm_local
        |w^g_*| and |w_{i,*}|: one number for all clients, or one a client.
    sigma, gamma, radius, gradient
        sigma, gamma, D and G.

    Examples
    --------
    >>> Problem(norm_local=[1.0, 2.0]).size(clients=2)  # 1 + 1 + 4
    6.0
    """

    norm_global: float = 1.0
    norm_local: PerClient = 1.0
    sigma: float = 1.0
    gamma: float = 1.0
    radius: float = 1.0
    gradient: float = 1.0

    def __post_init__(self) -> None:
        _check(gamma=self.gamma, radius=self.radius, gradient=self.gradient)
        _check_from_zero(sigma=self.sigma, norm_global=self.norm_global)

    def size(self, clients: int) -> float:
        """W of so many clients."""
        local = _per_client("norm_local", self.norm_local, clients)
        size = self.norm_global**2 + float((local**2).sum())
        if size == 0:
            raise ValueError(
                "norm_global and norm_local are all 0: give a best pair other than zero"
            )
        return size

    @property
    def smooth(self) -> float:
        """The product gamma D^4 G^2 of the delay terms."""
        return self.gamma * self.radius**4 * self.gradient**2

    @property
    def reach(self) -> float:
        """The product D G."""
        return self.radius * self.gradient


def sgd_bound(
    rounds: int, clients: int, delay: float, problem: Problem, *, batch: int = 1
) -> float:
    """Theorem 2, of FedRes.SGD.

        sqrt(W sigma^2 / (P T)) + (gamma D^4 G^2 tau^2)^(1/3) / T^(2/3) + D G tau / T

    With mini-batches (section 4) tau becomes tau + b. The step sizes that this holds for are those
    of `sgd_step_size`, one for the server and one for clients.

    Parameters
    ----------
    rounds, clients, delay, problem
        T, P, tau (in rounds of one sample), and all other constants.
    batch
        b.

    Examples
    --------
    >>> round(sgd_bound(10_000, 3, 0, Problem()), 5)  # sqrt(4 / 30,000)
    0.01155
    """
    _check(rounds=rounds, clients=clients, batch=batch)
    _check_from_zero(delay=delay)
    tau = delay + batch if batch > 1 else delay
    return float(
        np.sqrt(problem.size(clients) * problem.sigma**2 / (clients * rounds))
        + np.cbrt(problem.smooth * tau**2) / rounds ** (2 / 3)
        + problem.reach * tau / rounds
    )


class EtaPair(NamedTuple):
    """A step size of the server and one of every client."""

    eta: float
    local_eta: float


def sgd_step_size(
    rounds: int, clients: int, delay: float, problem: Problem, *, batch: int = 1
) -> EtaPair:
    """The step sizes eta of the server and eta_i of the clients for which Theorem 2 holds.

        eta   = min{ sqrt(W / (T P sigma^2)), (D^2 / (gamma P^3 G^2 tau^2 T))^(1/3) }
        eta_i = min{ sqrt(W / (T P sigma^2)), (D^2 / (gamma     G^2 tau^2 T))^(1/3) }

    Without delay the first alone, for both. Appendix B of the paper takes one step size for both
    sides, with W instead of D^2; then its delay term is up to (P + 1)^(2/3) times the one that
    Theorem 2 states (see `docs/theory.md`). A mini-batch run is one of T/b rounds with variance
    sigma^2/b and delay tau/b + 1 (section 4).

    Parameters
    ----------
    rounds, clients, delay, problem, batch
        As in `sgd_bound`; sigma must not be 0.

    Examples
    --------
    >>> sgd_step_size(1_000_000, 8, 1000, Problem())
    EtaPair(eta=1.25e-05, local_eta=0.0001)
    """
    _check(rounds=rounds, clients=clients, batch=batch, sigma=problem.sigma)
    _check_from_zero(delay=delay)
    rounds_, variance = rounds / batch, problem.sigma**2 / batch
    tau = delay / batch + 1 if batch > 1 else delay
    eta = float(np.sqrt(problem.size(clients) / (rounds_ * clients * variance)))
    if tau == 0:
        return EtaPair(eta, eta)
    moved = problem.gamma * (problem.gradient * tau) ** 2
    late = float(np.cbrt(problem.radius**2 / (moved * rounds_)))
    return EtaPair(min(eta, late / clients), min(eta, late))


def sgd_full_bound(
    rounds: int, clients: int, delay: float, problem: Problem, eta: float, local_eta: float
) -> float:
    """What Appendix B proves of FedRes.SGD, whatever the step sizes; Theorem 2 simplifies it.

        1 / (P T) * ( |w^g_*|^2 / eta + sum_i |w_{i,*}|^2 / eta_i
                      + eta T P sigma^2 + eta_i T P sigma^2
                      + gamma eta^2 P^3 G^2 tau^2 T + gamma eta_i^2 P G^2 tau^2 T + D G P tau )

    Parameters
    ----------
    rounds, clients, delay, problem
        As in `sgd_bound`.
    eta, local_eta
        The step sizes of the server and of all clients.

    Examples
    --------
    >>> sgd_full_bound(100, 1, 0, Problem(), 0.1, 0.1)  # without delay, twice 1 / (0.1 * 100) + 0.1
    0.4
    """
    _check(rounds=rounds, clients=clients, eta=eta, local_eta=local_eta)
    _check_from_zero(delay=delay)
    shared = problem.norm_global**2
    own = problem.size(clients) - shared
    moved = problem.gamma * (problem.gradient * delay) ** 2
    return float(
        (shared / eta + own / local_eta) / (clients * rounds)
        + (eta + local_eta) * problem.sigma**2
        + moved * ((eta * clients) ** 2 + local_eta**2)
        + problem.reach * delay / rounds
    )


def erm_bound(
    rounds: int,
    clients: int,
    delay: float,
    *,
    width_global: int,
    width_local: int | Sequence[int],
    sigma: float,
    gamma: float,
    radius: float,
) -> float:
    """Theorem 1, of FedRes.ERM, as Appendix A completes it, without its logarithms.

        sqrt(d_all sigma^2 / (P T)) + (1 + D^2 gamma) (tau / T)^(3/4)
        + ((1 + D^2 gamma) tau + d_all) / T            with d_all = d + sum_i d_i

    Parameters
    ----------
    rounds, clients, delay
        T, P and tau.
    width_global, width_local
        d and d_i, constants counted: one number for all clients, or one a client.
    sigma, gamma, radius
        sigma (of the loss), gamma and D.

    Examples
    --------
    >>> erm_bound(100, 2, 0, width_global=2, width_local=3, sigma=1, gamma=1, radius=1)
    0.28
    """
    _check(rounds=rounds, clients=clients, gamma=gamma, radius=radius)
    _check_from_zero(delay=delay, sigma=sigma, width_global=width_global)
    width = width_global + float(_per_client("width_local", width_local, clients).sum())
    lag = 1 + radius**2 * gamma
    return float(
        np.sqrt(width * sigma**2 / (clients * rounds))
        + lag * (delay / rounds) ** 0.75
        + (lag * delay + width) / rounds
    )


def bandit_bound(rounds: int, clients: int, actions: int, delay: float, problem: Problem) -> float:
    """Theorem 3, of epsilon-greedy with FedRes.SGD, as Appendix D completes it.

        (K^4 W sigma^2 / (P T))^(1/5) + (K^6 gamma D^4 G^2)^(1/8) / T^(1/4)
        + (K (gamma D^4 G^2 tau^2)^(1/6) + (K^2 D G)^(1/3)) / T^(1/3) + K sqrt(D G tau / T)

    Parameters
    ----------
    rounds, clients, actions, delay, problem
        T, P, K and tau, and all other constants.

    Examples
    --------
    >>> round(bandit_bound(10**10, 1, 1, 0, Problem()), 5)  # 2^(1/5) / 100 + ...
    0.01511
    """
    _check(rounds=rounds, clients=clients, actions=actions)
    _check_from_zero(delay=delay)
    size, smooth, reach = problem.size(clients), problem.smooth, problem.reach
    return float(
        (actions**4 * size * problem.sigma**2 / (clients * rounds)) ** (1 / 5)
        + (actions**6 * smooth) ** (1 / 8) / rounds ** (1 / 4)
        + (actions * (smooth * delay**2) ** (1 / 6) + (actions**2 * reach) ** (1 / 3))
        / rounds ** (1 / 3)
        + actions * np.sqrt(reach * delay / rounds)
    )


def explore_every(rounds: int, clients: int, actions: int, problem: Problem) -> int:
    """B of Appendix D: explore once in so many rounds. The delay has no say in it.

        min{ (P T / (K^4 W sigma^2))^(1/5), T^(1/4) / (K^6 gamma D^4 G^2)^(1/8),
             T^(1/3) / (K^2 D G)^(1/3) }                          rounded, and at least 1

    Parameters
    ----------
    rounds, clients, actions, problem
        T, P and K, and all other constants; sigma must not be 0.

    Examples
    --------
    >>> explore_every(10**10, 1, 1, Problem())  # 100 / 2^(1/5)
    87
    """
    _check(rounds=rounds, clients=clients, actions=actions, sigma=problem.sigma)
    variance = problem.size(clients) * problem.sigma**2
    period = min(
        (clients * rounds / (actions**4 * variance)) ** (1 / 5),
        rounds ** (1 / 4) / (actions**6 * problem.smooth) ** (1 / 8),
        (rounds / (actions**2 * problem.reach)) ** (1 / 3),
    )
    return max(1, round(float(period)))


def _per_client(name: str, values: PerClient, clients: int) -> np.ndarray:
    given = np.asarray(values, float)
    if given.ndim and given.shape != (clients,):
        raise ValueError(f"{name} has {given.size} values for {clients} clients: give one or each")
    for value in given.ravel().tolist():
        _check_from_zero(**{name: value})
    return np.broadcast_to(given, clients)


def _check(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < np.inf:
            raise ValueError(f"{name} must be a positive number, not {value}")


def _check_from_zero(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < np.inf:
            raise ValueError(f"{name} must be a number from 0 up, not {value}")


def mixture_bound(
    experts: int,
    reach: float | None = None,
    *,
    switching: float | None = None,
    samples: int = 1,
    switches: int = 0,
) -> float:
    """By how much a client's losses may add up to more than those of its best expert.

        log(2 K) / eta,   eta = 2 / R^2 for the squared loss, 1 for the logistic

    whatever the labels are and however many: half of all weight stays with its experts for ever.
    Thanks to the other half, of which a share alpha moves after each label, 1 / (i + 1) after the
    i-th or a constant one, the best sequence of experts that changes m times in n samples is
    followed to within

        (log 2 + (m + 1) log(K n)) / eta                                        falling, and
        (log(2 K) + m log(K / alpha) - (n - 1 - m) log(1 - alpha)) / eta        constant.

    Where alpha is 0, both halves are the same, and 2 K is K. Unlike the paper's bounds these have
    no hidden constant: no client exceeds them.

    Parameters
    ----------
    experts
        K.
    reach
        R, the highest label less the lowest; None for the logistic loss.
    switching, samples, switches
        alpha, None for the falling one; n and m.

    Examples
    --------
    >>> round(mixture_bound(3, reach=2), 3)  # labels -1 and 1: 2 log 6
    3.584
    >>> round(mixture_bound(3, reach=2, switches=1, samples=500), 1)
    30.6
    """
    _check(experts=experts, samples=samples)
    if switching is not None and (not 0 <= switching < 1 or (switches and not switching)):
        raise ValueError(
            f"switching must be from 0 to less than 1, and more than 0 to follow "
            f"{switches} switches, not {switching}"
        )
    halves = 1 if switching == 0 else 2
    if not switches:
        lost = np.log(halves * experts)
    elif switching is None:
        lost = np.log(halves) + (switches + 1) * np.log(experts * samples)
    else:
        lost = np.log(halves * experts) + switches * np.log(experts / switching)
        lost -= (samples - 1 - switches) * np.log1p(-switching)
    return float(lost * (1.0 if reach is None else reach**2 / 2))
