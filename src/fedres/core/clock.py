"""The clock of rounds: deliver, deal, predict, learn, serve.

`G_n` is the global model after n rounds. In round n a client

    deliver   does what it has waited a round trip for,
    deal      meets its next samples,
    predict   predicts them with G_{n - beta_i} and w_i, suffers the loss and sends Z,
    learn     learns them if their labels are known, or those of an earlier round that now are,

and at its end the server serves what was sent alpha_i rounds ago: G_{n+1}. Where rows come from
(`meet`), and what a side is (`learn`, `deliver`, `serve`), is chosen by type.
"""

from functools import singledispatch
from typing import Any

import numpy as np

from fedres.core.schedule import Times, back, held
from fedres.core.sgd import Flight, Terms, U, count, deliver, keep, learn, predict, serve
from fedres.core.source import apart

# So many clients are carried through a round together: their models stay in the first caches.
BLOCK = 128


@singledispatch
def meet(
    source: Any,
    terms: Terms,
    times: Times,
    global_: Any,
    local: Any,
    flight: Flight,
    n: int,
    first: int,
    last: int,
) -> None:
    """Deal samples to the clients `times.active.who[first:last]` of round n, and predict them."""
    raise TypeError(f"{type(source).__name__} is no source of rows")


def learn_now(
    local: Any, terms: Terms, times: Times, flight: Flight, n: int, first: int, last: int
) -> None:
    """Clients learn the samples that they have just predicted."""
    base = n % flight.depth * len(terms.weight)
    for e in range(first, last):
        i: Any = np.int64(times.active.who[U(e)])
        c = (base + i) * flight.samples.batch
        learn(local, terms, i, flight, c, c + count(flight.samples, base + i))


@apart
def learn_late(
    local: Any, terms: Terms, times: Times, global_: Any, flight: Flight, n: int
) -> None:
    """Clients learn the samples whose labels become known at the end of round n."""
    known = times.labelled
    for e in range(known.first[n], known.last[n]):
        i: Any = np.int64(known.who[e])
        lag = known.lag[e]
        if lag <= n:
            slot = back(n % flight.depth, lag, flight.depth) * len(terms.weight) + i
            first = slot * flight.samples.batch
            last = first + count(flight.samples, slot)
            # The models have moved since; what is sent is what they say now.
            predict(
                terms, global_, held(times, n, n % times.history, i), local, i, flight, first, last
            )
            learn(local, terms, i, flight, first, last)


def play(
    source: Any, terms: Terms, times: Times, global_: Any, local: Any, flight: Flight, path: Any
) -> None:
    """All rounds of a run; `path` keeps the global model after each, if it has room."""
    active = times.active
    for n in range(times.rounds + 1):
        deliver(local, terms, times, global_, flight, n)
        if n == times.rounds:
            break
        for first in range(active.first[n], active.last[n], BLOCK):
            last = min(first + BLOCK, active.last[n])
            meet(source, terms, times, global_, local, flight, n, first, last)
            if times.at_once:
                learn_now(local, terms, times, flight, n, first, last)
        learn_late(local, terms, times, global_, flight, n)
        serve(global_, terms, times, flight, n)
        if path.shape[0] > 0:
            keep(global_, (n + 1) % times.history, path, n + 1)
