"""What a reward costs a bandit client, with and without a log: microseconds of processor time.

Run with `make bench-event-log`, some seconds on one core. Ten actions with 20 global and 8 local
features, dense. All take turns in one process, 25 rewards at a time, and the least of 40 times
counts. The last row is a loop of Python, to compare machines by.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np

from fedres.bandits import BanditClient, EventLog, LinUCB, Ridge, SquareCB

EACH, TIMES = 25, 40
LEARNERS = {"steps along gradients": (SquareCB(), {}), "Ridge()": (LinUCB(), {"step": Ridge()})}
LOOP = "100 turns of a loop"


def rewards(policy, options, log):
    """A client that has decided, and takes the rewards of some decisions at each call."""
    rng = np.random.default_rng(0)
    client = BanditClient(policy, features_local=8, seed=1, log=log, **options)
    ids = [
        client.choose(*(rng.random((10, width), np.float32) for width in (20, 8))).id
        for _ in range(EACH * TIMES)
    ]

    def take(time):
        for k in range(EACH * time, EACH * (time + 1)):
            client.reward(ids[k], float(k % 3 == 0))

    return take


def loop(_):
    sum(k * k for k in range(EACH * 100))


def main():
    with TemporaryDirectory() as folder, EventLog(Path(folder) / "events.jsonl") as log:
        calls = {
            f"{learner}, {words}": rewards(policy, options, to)
            for learner, (policy, options) in LEARNERS.items()
            for words, to in (("no log", None), ("log", log))
        }
        calls[LOOP] = loop
        seconds = {what: [] for what in calls}
        for time in range(TIMES):
            for what, call in calls.items():
                began = process_time()
                call(time)
                seconds[what].append(process_time() - began)
    for what, found in seconds.items():
        print(f"{what:32} {1e6 * min(found) / EACH:6.1f} us")


if __name__ == "__main__":
    main()
