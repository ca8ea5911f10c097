"""Theorem 2 with one step size, and with two: the numbers of `docs/theory.md`.

Appendix B proves a bound for any eta and eta_i, then sets both to one value and states a simpler
bound. The ratio of the first to the second shows what that step loses as clients join.
"""

from typing import TYPE_CHECKING

import numpy as np

from fedres.core.theory import Problem, sgd_bound, sgd_full_bound, sgd_step_size

if TYPE_CHECKING:
    import pandas as pd

CLIENTS = (1, 5, 50, 500)
ROUNDS, DELAY = 10_000, 100
# All constants 1, and models as large as the ball allows: W = (P + 1) D^2.
PROBLEM = Problem()


def paper_step_size(rounds: int, clients: int, delay: int) -> float:
    """The eta = eta_i of Appendix B, with all constants 1: W stands where `sgd_step_size` has D^2.

    Examples
    --------
    >>> round(paper_step_size(1_000_000, 8, 0), 6)  # sqrt(9 / 8,000,000)
    0.001061
    """
    size = 1 + clients
    slow = np.cbrt(size / (clients**3 * delay**2 * rounds)) if delay else np.inf
    return float(min(np.sqrt(size / (rounds * clients)), slow))


def bound_ratios() -> "pd.DataFrame":
    """Appendix B's full bound over the bound of Theorem 2, a row a number of clients.

    Examples
    --------
    >>> bound_ratios()[["clients", "one step size", "the pair"]].round(1)
       clients  one step size  the pair
    0        1            3.4       2.8
    1        5            4.8       2.9
    2       50           19.4       3.0
    3      500           88.3       3.0
    """
    import pandas as pd

    rows = []
    for clients in CLIENTS:
        run = (ROUNDS, clients, DELAY)
        one, pair = paper_step_size(*run), sgd_step_size(*run, PROBLEM)
        stated = sgd_bound(*run, PROBLEM)
        rows.append(
            {
                "clients": clients,
                "stated": stated,
                "eta, one": one,
                "one step size": sgd_full_bound(*run, PROBLEM, one, one) / stated,
                "eta": pair.eta,
                "eta_i": pair.local_eta,
                "the pair": sgd_full_bound(*run, PROBLEM, *pair) / stated,
            }
        )
    return pd.DataFrame(rows)
