"""What `fedres bandit` finds on five worlds, for the tables and figures of `docs/bandits.md`.

Run with `make bench-bandits`; needs FEDRES_DATA; some minutes. Results are stored beside this
script and used again: remove `results/bandit_study.json` to measure anew. The options are the
command's own, so each row is what it prints.
"""

from pathlib import Path

from stored_results import Store, markdown

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
DRAWN = {"digits": ("reward", "points"), "synthetic": ("regret",)}
CASES = {
    "digits": {"data": "digits"},
    "letter, 2,000 rounds": {"data": "letter", "rounds": 2000},
    "synthetic": {"data": "synthetic"},
    "digits, clients alike": {"data": "digits", "differ": False},
    "synthetic, clients alike": {"data": "synthetic", "differ": False},
}
STORE = Store("bandit_study.json")


def run(case):
    """Rewards a seed of every policy and method, what policies earned elsewhere, exponents."""
    from fedres.bandits.study import study
    from fedres.report.bandit_figures import bandit_figures

    found = study(**CASES[case], progress=True)
    figures = bandit_figures(found)
    for name in DRAWN.get(case, ()):
        figures[name].savefig(FIGURES / f"bandit-{case}-{name}.png", dpi=100)
    return {
        "best": found.best_policy(),
        "rewards": {" | ".join(cell): o.reward.tolist() for cell, o in found.outcomes.items()},
        "exponents": {policy: found.exponent(policy, "fedres") for policy in found.policies},
    }


def tables():
    """Rewards with the best policy, gains with each, and how fast regret falls."""
    import numpy as np

    from fedres.simulation.intervals import Interval, interval

    best, gains = [], []
    for case in CASES:
        kept = STORE[case]
        rewards = {cell: np.array(values) for cell, values in kept["rewards"].items()}
        for policy in kept["exponents"]:
            alone, shared, ours = (
                rewards[f"{policy} | {method}"] for method in ("independent", "central", "fedres")
            )
            over = [f"{interval(ours - other):+.3f}" for other in (alone, shared)]
            gains.append([case, policy, *over])
            if policy == kept["best"]:
                best.append([case, policy, *map(str, map(interval, (alone, shared, ours))), *over])
    over = ["gain over Independent", "gain over Central"]
    falls = [
        [policy, f"{Interval(*fit):.2f}"] for policy, fit in STORE["synthetic"]["exponents"].items()
    ]
    return {
        "study": markdown(["data", "policy", "Independent", "Central", "FedRes", *over], best),
        "study gains": markdown(["data", "policy", *over], gains),
        "exponents": markdown(["policy", "exponent of T"], falls),
    }


if __name__ == "__main__":
    STORE.fill({case: (case,) for case in CASES}, run)
    print(*tables().values(), sep="\n\n")
