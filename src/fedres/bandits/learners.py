"""What the models of a bandit learn by: the parties of the core, by the step that is asked for."""

from fedres.bandits.policies import Policy
from fedres.core.parties import Client, Server
from fedres.core.ridge import Ridge
from fedres.core.ridge_parties import RidgeClient, RidgeServer
from fedres.core.rule import Rule
from fedres.core.steps import Adaptive, Sgd, Step

Learner = Step | Ridge
LEARNERS = (Adaptive, Sgd, Ridge)

# Rewards are often all 0 or all 1 for long: clipped to those, predictions would hide errors.
STEP = Adaptive(0.1, clip=False)


def check_errors(policy: Policy, step: Learner) -> None:
    """Refuse a policy that has to know more than models can tell."""
    if policy.needs_errors and not isinstance(step, Ridge):
        raise ValueError(f"{policy} needs the standard errors of scores: give step=Ridge()")


def step_for(policy: Policy) -> Learner:
    """What a policy can do with, as it comes.

    Examples
    --------
    >>> from fedres.bandits.policies import Greedy, LinUCB
    >>> step_for(LinUCB()), step_for(Greedy()) == STEP
    (Ridge(penalty=1.0, diagonal=False), True)
    """
    return Ridge() if policy.needs_errors else STEP


def new_client(step: Learner, global_: int, local: int, client: int) -> Client | RidgeClient:
    """A client with so many features of each view."""
    if isinstance(step, Ridge):
        return RidgeClient(step, global_, local, client)
    return Client(Rule(step=step), global_, local, client)


def new_server(step: Learner, width: int) -> Server | RidgeServer:
    """A server with so many features."""
    return RidgeServer(step, width) if isinstance(step, Ridge) else Server(Rule(step=step), width)


def features_of(step: Learner, numbers: int) -> int:
    """How many features a global model has that is published in so many numbers.

    Examples
    --------
    >>> features_of(STEP, 4), features_of(Ridge(), 4 + 4 * 4), features_of(Ridge(), 0)
    (3, 3, 0)
    """
    if isinstance(step, Ridge):
        return RidgeClient.features_of(step, numbers)
    return max(numbers - 1, 0)
