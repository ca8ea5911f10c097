"""Compile what most tests need, on two cores at once.

Tests are dealt to two processes, which would both compile the same at first. Run as a script with
0 or 1 it compiles one half; what is already on disk takes a second.
"""

import subprocess
import sys

HALVES = (
    [("fedres-erm", 1), ("fedres", 1), ("stream", 1)],
    [("fedres-erm", 3), ("fedres", 3), ("bandit", 1)],
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

    if what == "bandit":
        bandits.simulate_bandit(bandits.Catalogue.draw(clients=3), bandits.Greedy(), rounds=2)
    elif what == "stream":
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(30, 2)), rng.normal(size=30)
        fedres.FedResRegressor(solver="sgd").fit(x, y, client=np.arange(30) % 3).predict(
            x, client=np.arange(30) % 3
        )
    else:
        fedres.simulate(random_federation(), what, rounds=3, batch=batch)


if __name__ == "__main__":
    for kind in HALVES[int(sys.argv[1])]:
        compile_one(*kind)
