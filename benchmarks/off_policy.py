"""How often 95% intervals of off-policy estimates cover the truth, or estimates are refused.

Run with `make bench-off-policy`, about two minutes on one core. Logs of 400 and 100 decisions by
an epsilon-greedy policy that prefers other actions than the target does, with epsilon 0.5 and
0.05; sharp targets that always take their best of five actions, and soft ones; 20 clients whose
tastes differ, drawn anew for each log, and one client. Rewards are 0 or 1, their odds logistic: the
model of rewards that DR uses is wrong.
"""

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from fedres.bandits.estimates import Weighed, _predict_rewards, evaluate

LOGS = 1000
ACTIONS, WIDTH = 5, 4
TASTE, DIFFER = np.array([1.0, -1.0, 0.5, 0.0]), 0.7
LOGGED_BY, WANTED_BY = np.array([0.5, 0.0, 1.0, 0.3]), np.array([1.0, -0.5, 0.5, 0.0])


def contexts(rng, clients, each):
    """Client, features and the expected reward of every action, a row a decision."""
    taste = TASTE + DIFFER * (clients > 1) * rng.normal(size=(clients, WIDTH))
    client = np.repeat(np.arange(clients), each)
    x = rng.normal(size=(len(client), ACTIONS, WIDTH))
    return client, x, 1 / (1 + np.exp(-np.einsum("nkd,nd->nk", x, taste[client])))


def logger(x, epsilon):
    best = (x @ LOGGED_BY).argmax(axis=1)
    return epsilon / ACTIONS + (1 - epsilon) * np.eye(ACTIONS)[best]


def target(x, sharp):
    scores = x @ WANTED_BY
    if sharp:
        return np.eye(ACTIONS)[scores.argmax(axis=1)]
    odds = np.exp((scores - scores.max(axis=1, keepdims=True)) / 0.5)
    return odds / odds.sum(axis=1, keepdims=True)


def log(rng, clients, decisions, epsilon, sharp):
    """What every decision of a log comes to."""
    client, x, mean = contexts(rng, clients, decisions // clients)
    p, q, every = logger(x, epsilon), target(x, sharp), np.arange(decisions)
    action = (p.cumsum(axis=1) < rng.random(decisions)[:, None]).sum(axis=1).clip(0, ACTIONS - 1)
    reward = (rng.random(decisions) < mean[every, action]).astype(float)
    models = _predict_rewards(x[every, action], np.einsum("nk,nkd->nd", q, x), reward, client)
    weight = q[every, action] / p[every, action]
    return Weighed(weight, (q * q / p).sum(axis=1), reward, client, *models)


def truth(clients, sharp, decisions=400_000):
    rng = np.random.default_rng(99)
    _, x, mean = contexts(rng, decisions if clients > 1 else 1, 1 if clients > 1 else decisions)
    return (target(x, sharp) * mean).sum(axis=1).mean()


def coverage(clients, decisions, epsilon, sharp, logs=LOGS):
    """The share of logs that are refused; of the others, the share whose intervals cover."""
    right, refused, covered = truth(clients, sharp), 0, []
    for seed in range(logs):
        rng = np.random.default_rng([seed, clients, decisions])
        found = evaluate(log(rng, clients, decisions, epsilon, sharp))
        refused += bool(found.refusal)
        if not found.refusal:
            intervals = (found.ips, found.snips, found.dr)
            covered.append([abs(one.mean - right) < one.half for one in intervals])
    return refused / logs, np.mean(covered, axis=0) if covered else None


def main():
    console = Console(width=100)
    table = Table(box=box.SIMPLE_HEAD, title=f"{LOGS:,} logs each", title_justify="left")
    for name in ("clients", "decisions", "epsilon", "target", "refused", "IPS", "SNIPS", "DR"):
        table.add_column(name, justify="left" if name == "target" else "right")
    wrong = []
    for clients in (20, 1):
        for decisions in (400, 100):
            for epsilon in (0.5, 0.05):
                for sharp in (True, False):
                    refused, covered = coverage(clients, decisions, epsilon, sharp)
                    cells = ["", "", ""] if covered is None else [f"{one:.1%}" for one in covered]
                    case = (
                        f"{clients}",
                        f"{decisions}",
                        f"{epsilon}",
                        "sharp" if sharp else "soft",
                    )
                    table.add_row(*case, f"{refused:.0%}", *cells)
                    if covered is not None and refused < 0.5:
                        wrong += [case for one in covered if not 0.92 <= one <= 0.98]
    console.print(table)
    print("All from 92% to 98%, or refused." if not wrong else f"Not from 92% to 98%: {wrong}")


if __name__ == "__main__":
    main()
