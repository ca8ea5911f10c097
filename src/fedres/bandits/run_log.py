"""A simulated run as the log that its clients would have written."""

from collections.abc import Iterator

from fedres.bandits.logs import Event
from fedres.bandits.simulator import BanditRun


def events_of(run: BanditRun) -> Iterator[Event]:
    """Every decision of a run with ``keep_decisions=True``, round by round and client by client.

    Examples
    --------
    >>> from fedres.bandits import Catalogue, SquareCB, simulate_bandit
    >>> world = Catalogue.draw(clients=2, seed=0)
    >>> run = simulate_bandit(world, SquareCB(), rounds=3, keep_decisions=True)
    >>> [(event.client, event.id) for event in events_of(run)]
    [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]
    """
    if run.actions is None or run.rewards is None or run.probabilities is None:
        raise ValueError("the run kept no decisions: simulate it with keep_decisions=True")
    world = run.environment
    for turn in range(1, len(run.reward_by_round) + 1):
        for client in range(world.clients):
            offered = world.actions(run.seed, client, turn)
            yield Event(
                client,
                turn,
                world.contexts(offered, world.x_global),
                world.contexts(offered, world.x_local),
                int(run.actions[client, turn - 1]),
                run.probabilities[client, turn - 1, : len(offered.row)],
                float(run.rewards[client, turn - 1]),
            )
