"""Policies and environments by name, as the command line gives them."""

from collections.abc import Callable, Mapping, Sequence

from fedres.bandits.catalogue import Catalogue
from fedres.bandits.environments import Environment
from fedres.bandits.multiclass import Multiclass
from fedres.bandits.policies import EpsilonGreedy, Greedy, LinUCB, Policy, Softmax, SquareCB
from fedres.core import theory
from fedres.simulation.dataset import load_data

Maker = Callable[[int, int], Environment]  # of so many clients, by a seed

POLICIES: Mapping[str, Policy] = {
    "epsilon-greedy": EpsilonGreedy(epsilon=0.05),
    "squarecb": SquareCB(),
    "softmax": Softmax(temperature=0.05),
    "greedy": Greedy(),
    "linucb": LinUCB(),
}

# What writes logs to try: often enough at random for any other policy to be judged by them.
LOGGER = EpsilonGreedy(epsilon=0.5)
LOGGED = 5000  # decisions

SYNTHETIC = "synthetic"
DIFFERENCE = 0.5  # of the synthetic clients' rewards, what depends on the client
PERMUTED = 0.3  # of the labels of a data set, what each client permutes


def environments(data: str, differ: bool) -> Maker:
    """What makes environments of a kind, from a number of clients and a seed."""
    if data == SYNTHETIC:
        difference = DIFFERENCE if differ else 0.0
        return lambda clients, seed: Catalogue.draw(clients, difference=difference, seed=seed)
    dataset = load_data(data)
    permute = PERMUTED if differ else 0.0
    return lambda clients, seed: Multiclass.deal(dataset, clients, permute=permute, seed=seed)


def choose_policies(
    names: Sequence[str],
    explore_every: int | str | None = None,
    rounds: int = 1,
    clients: int = 1,
    actions: int = 2,
) -> dict[str, Policy]:
    """Policies by name, for so many clients that share a model.

    Other numbers only matter to ``explore_every="theory"``.

    Examples
    --------
    >>> choose_policies(["epsilon-greedy"], explore_every="20")
    {'epsilon-greedy': EpsilonGreedy(epsilon=None, explore_every=20)}
    """
    for name in names:
        if name not in POLICIES:
            raise ValueError(f"unknown policy {name!r}: choose of {', '.join(POLICIES)}")
    chosen = {name: POLICIES[name].shared_by(clients) for name in names}
    if explore_every is None:
        return chosen
    if "epsilon-greedy" not in chosen:
        raise ValueError("explore_every is for epsilon-greedy, which is not among the policies")
    if explore_every == "theory":
        period = theory.explore_every(rounds, clients, actions, theory.Problem())
    elif str(explore_every).isdecimal():
        period = int(explore_every)
    else:
        raise ValueError(f"explore_every must be 1, 2, ... or 'theory', not {explore_every!r}")
    return chosen | {"epsilon-greedy": EpsilonGreedy(explore_every=period)}
