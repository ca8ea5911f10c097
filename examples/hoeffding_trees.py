"""Half of the clients run a river Hoeffding tree, half a linear model; both gain by sharing.

Labels are the sum of something linear that all clients share and something of each client's own:
a tree of thresholds for every other client, linear for the rest. Every client has few rows.

    python examples/hoeffding_trees.py          # needs: pip install '.[river]'
"""

import numpy as np
from river.tree import HoeffdingTreeRegressor

import fedres
from fedres.core.rule import Rule
from fedres.learners import LinearLearner, LocalLearner, RiverLearner, play
from fedres.simulation.intervals import interval

SHARED, OWN = 10, 3
RULE = Rule()
HALVES = {"trees": slice(0, None, 2), "linear": slice(1, None, 2)}


def make(seed: int, clients: int, rows: int) -> tuple[fedres.Federation, fedres.Federation]:
    """The federation; and the same rows without a global model, all features being local."""
    rng = np.random.default_rng(seed)
    client = np.repeat(np.arange(clients), rows)
    x_global = rng.normal(size=(clients * rows, SHARED))
    x_local = rng.uniform(-1, 1, size=(clients * rows, OWN))
    thresholds = rng.uniform(-0.5, 0.5, size=(clients, 2))[client]
    heights = rng.choice([-2.0, 2.0], size=(clients, 2))[client]
    slopes = rng.normal(scale=1.5, size=(clients, OWN))[client]
    first, second = (x_local[:, :2] > thresholds).T
    tree = heights[:, 0] * first + heights[:, 1] * (first & second)
    linear = (slopes * x_local).sum(axis=1)
    y = x_global @ rng.normal(scale=0.5, size=SHARED)
    y += np.where(client % 2, linear, tree) + rng.normal(scale=0.3, size=len(y))
    both = np.hstack([x_global, x_local])
    return (
        fedres.Federation.from_arrays(x_global, x_local, y, client),
        fedres.Federation.from_arrays(None, both, y, client),
    )


def local_models(federation: fedres.Federation) -> dict[int, LocalLearner]:
    widths = federation.train.x_local.width
    return {
        client: LinearLearner(RULE, int(widths[client]))
        if client % 2
        else RiverLearner(HoeffdingTreeRegressor(grace_period=25, delta=0.05))
        for client in federation.clients
    }


def losses(seed: int, clients: int, rows: int) -> dict[str, np.ndarray]:
    """Progressive loss of every client, by what is in use."""
    federation, alone = make(seed, clients, rows)

    def mixed(federation: fedres.Federation) -> np.ndarray:
        played = play(federation, local_models(federation), rule=RULE)
        return np.array(list(played.loss_by_client.values()))

    def simulated(method: str) -> np.ndarray:
        return fedres.simulate(federation, method, step=RULE.step, shuffle=False).loss_by_client

    return {
        "local models alone": mixed(alone),
        "global model alone": simulated("central"),
        "both, all linear": simulated("fedres"),
        "both, mixed": mixed(federation),
    }


def main(seeds: int = 5, clients: int = 10, rows: int = 300) -> dict[str, dict[str, np.ndarray]]:
    """Print the losses of both halves; return them by half and what is in use, one a seed."""
    runs = [losses(seed, clients, rows) for seed in range(seeds)]
    found = {
        half: {name: np.array([run[name][who].mean() for run in runs]) for name in runs[0]}
        for half, who in HALVES.items()
    }
    print(f"Progressive squared loss, {clients} clients with {rows} rows each, {seeds} seeds")
    print(f"{'':28}" + "".join(f"{half:>18}" for half in found))
    for name in runs[0]:
        print(f"{name:28}" + "".join(f"{interval(loss[name])!s:>18}" for loss in found.values()))
    for name in ("local models alone", "global model alone", "both, all linear"):
        gains = [interval(loss[name] - loss["both, mixed"]) for loss in found.values()]
        print(f"{f'gain over {name}':28}" + "".join(f"{gain!s:>18}" for gain in gains))
    return found


if __name__ == "__main__":
    main()
