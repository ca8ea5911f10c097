"""When does FedRes help? Clients that differ more and more, with more and more rows.

Every client's labels are a linear function of its features plus noise: a shared part and a part of
its own. `difference` is the share of the variance that is the client's own. All methods see the
same rows and features; each takes the best step size of a grid, found on other seeds.

    python examples/when_it_helps.py --out when-it-helps.png
"""

import argparse
from functools import partial
from itertools import product

import numpy as np
from matplotlib.figure import Figure

import fedres
from fedres.report.names import COLOURS, NAMES
from fedres.simulation.intervals import band, interval

CLIENTS, FEATURES, NOISE, TEST_ROWS = 50, 10, 0.5, 100
ETAS = (0.02, 0.05, 0.1, 0.2, 0.5)
LOCAL_ETAS = (0.01, 0.03, 0.1, 0.3)
DIFFERENCES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
ROWS = (5, 10, 30, 100, 300, 1000)


def federation(rows, difference, seed):
    """Clients with so many rows each, and rows to test on."""
    rng = np.random.default_rng([seed, rows, int(1000 * difference)])
    shared = rng.normal(size=FEATURES)
    own = rng.normal(size=(CLIENTS, FEATURES))
    truth = np.sqrt(1 - difference) * shared + np.sqrt(difference) * own
    truth /= np.sqrt(FEATURES)

    def draw(count):
        client = np.repeat(np.arange(CLIENTS), count)
        x = rng.normal(size=(len(client), FEATURES)).astype(np.float32)
        y = (x * truth[client]).sum(axis=1) + NOISE * rng.normal(size=len(client))
        return x, x, y, client

    return fedres.Federation.from_arrays(*draw(rows), test=draw(TEST_ROWS))


def excess(data, method, eta, local_eta):
    """Mean squared error on the test rows, less the noise that nobody can predict."""
    local_step = None if local_eta is None else fedres.Adaptive(local_eta)
    run = fedres.simulate(data, method, passes=4, step=fedres.Adaptive(eta), local_step=local_step)
    return float(np.mean((run.test_predictions - data.test.y) ** 2)) - NOISE**2


def settings(method):
    """The step sizes a method has to choose from."""
    if method == "fedres":
        return list(product(ETAS, LOCAL_ETAS))
    return [(eta, None) for eta in ETAS]


def point(place, seeds):
    """For each method the excess error of every seed, with its best step size."""
    tuning = [federation(*place, seed=10_000 + k) for k in range(2)]
    shown = [federation(*place, seed=seed) for seed in range(seeds)]
    found = {}
    for method in NAMES:
        best = min(
            settings(method),
            key=lambda etas: np.mean([excess(one, method, *etas) for one in tuning]),
        )
        found[method] = [excess(one, method, *best) for one in shown]
    return found


def panel(axes, x, results, label, title):
    """Excess error against x, with bands."""
    for method, name in NAMES.items():
        mean, half = band(np.array([result[method] for result in results]).T)
        axes.plot(x, mean, marker="o", ms=4, color=COLOURS[method], label=name)
        axes.fill_between(x, mean - half, mean + half, color=COLOURS[method], alpha=0.2, lw=0)
    axes.set_xlabel(label)
    axes.set_ylabel("error above the noise (variance of labels: 1.25)")
    axes.set_title(title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def main(seeds=10, differences=DIFFERENCES, rows=ROWS, out=None):
    """Print both tables, and draw them if asked to."""
    places = [(30, difference) for difference in differences] + [(count, 0.2) for count in rows]
    results = fedres.run_all([partial(point, place, seeds) for place in places], progress="points")
    print(f"{'rows':>5} {'difference':>11}" + "".join(f"{name:>18}" for name in NAMES.values()))
    for (count, difference), result in zip(places, results, strict=True):
        cells = "".join(f"{interval(result[method])!s:>18}" for method in NAMES)
        print(f"{count:>5} {difference:>11.2f}{cells}")
    if out is not None:
        figure = Figure(figsize=(10.5, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        split = len(differences)
        panel(
            left, differences, results[:split], "how much clients differ (share of the variance)",
            "30 rows a client",
        )  # fmt: skip
        panel(
            right, rows, results[split:], "rows a client",
            "Clients differ by a fifth of the variance",
        )  # fmt: skip
        right.set_xscale("log")
        figure.suptitle("Test error, 50 clients, 95% bands over seeds", fontweight="bold")
        figure.savefig(out, dpi=130)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="federations to average over")
    parser.add_argument("--out", help="write the plot here")
    asked = parser.parse_args()
    main(asked.seeds, out=asked.out)
