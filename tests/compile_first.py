"""Compile what most tests need, on two cores at once.

Tests are dealt to two processes, which would both compile the same at first. Run as a script with
0 or 1 it compiles one half; what is already on disk takes a second.
"""

import subprocess
import sys

HALVES = (
    [("fedres-erm", 1), ("fedres", 1), ("mixture", 1), ("bayes", 1)],
    [("fedres", 3), ("stream", 1), ("ridge", 1), ("bandit", 1)],
)


def compile_on_two_cores():
    running = [subprocess.Popen([sys.executable, __file__, half]) for half in "01"]
    for process in running:
        process.wait()


def compile_one(what, batch):
    import numpy as np

    import fedres
    from conftest import random_federation
    from fedres import bandits
    from fedres.core.ridge import Ridge

    rng = np.random.default_rng(0)
    x, y, client = rng.normal(size=(30, 2)), rng.normal(size=30), np.arange(30) % 3
    world = bandits.Catalogue.draw(clients=3)
    if what == "bandit":
        bandits.simulate_bandit(world, bandits.Greedy(), rounds=2)
    elif what == "ridge":
        bandits.simulate_bandit(world, bandits.Greedy(), rounds=2, step=Ridge())
    elif what == "bayes":
        fedres.FedResRegressor().fit(x, y, client=client).partial_fit(x, y, client=client)
    elif what == "stream":
        fedres.FedResRegressor(solver="sgd").fit(x, y, client=client).predict(x, client=client)
    else:
        fedres.simulate(random_federation(), what, rounds=3, batch=batch)


if __name__ == "__main__":
    for kind in HALVES[int(sys.argv[1])]:
        compile_one(*kind)
