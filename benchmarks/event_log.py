"""What a reward costs a bandit client, with and without a log: microseconds of processor time.

Run with `make bench-event-log`, some seconds on one core. Ten actions with 20 global and 8 local
features, dense; by turns in one process, the least of several times. The last row is what the same
processor takes for a loop of Python, to compare machines by.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np

from fedres.bandits import BanditClient, EventLog, LinUCB, Ridge, SquareCB

REWARDS, TIMES = 300, 8
LEARNERS = {"steps along gradients": (SquareCB(), {}), "Ridge()": (LinUCB(), {"step": Ridge()})}


def us_a_reward(offers, policy, options, log):
    client = BanditClient(policy, features_local=8, seed=1, log=log, **options)
    ids = [client.choose(*offers[k % len(offers)]).id for k in range(REWARDS)]
    began = process_time()
    for k, decision in enumerate(ids):
        client.reward(decision, float(k % 3 == 0))
    return 1e6 * (process_time() - began) / REWARDS


def us_a_loop():
    began = process_time()
    sum(k * k for k in range(100_000))
    return 1e6 * (process_time() - began) / 1000


def main():
    rng = np.random.default_rng(0)
    offers = [[rng.random((10, width), np.float32) for width in (20, 8)] for _ in range(50)]
    least = {}
    with TemporaryDirectory() as folder, EventLog(Path(folder) / "events.jsonl") as log:
        for _ in range(TIMES):
            found = {
                f"{learner}, {words}": us_a_reward(offers, policy, options, to)
                for learner, (policy, options) in LEARNERS.items()
                for words, to in (("no log", None), ("log", log))
            }
            found["100 turns of a loop"] = us_a_loop()
            least = {what: min(us, least.get(what, us)) for what, us in found.items()}
    for what, us in least.items():
        print(f"{what:32} {us:6.1f} us")


if __name__ == "__main__":
    main()
