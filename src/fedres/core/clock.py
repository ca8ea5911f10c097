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

from fedres.core.schedule import back, held
from fedres.core.sgd import Play, U, deliver, keep, learn, message_of, predict, serve
from fedres.core.source import apart

# So many clients are carried through a round together: their models stay in the first caches.
BLOCK = 128


@singledispatch
def meet(source: Any, play: Play, n: int, first: int, last: int) -> None:
    """Deal samples to the clients `times.active.who[first:last]` of round n, and predict them."""
    raise TypeError(f"{type(source).__name__} is no source of rows")


def learn_now(play: Play, n: int, first: int, last: int) -> None:
    """Clients learn the samples that they have just predicted."""
    place = n % play.flight.depth
    for e in range(first, last):
        i: Any = np.int64(play.times.active.who[U(e)])
        learn(play.local, play.terms, message_of(play, place, i))


@apart
def learn_late(play: Play, n: int) -> None:
    """Clients learn the samples whose labels become known at the end of round n."""
    terms, times, global_, local, flight = play
    now, newest, known = n % flight.depth, n % times.history, times.labelled
    for e in range(known.first[n], known.last[n]):
        i: Any = np.int64(known.who[e])
        lag = known.lag[e]
        if lag <= n:
            message = message_of(play, back(now, lag, flight.depth), i)
            # The models have moved since; what is sent is what they say now.
            predict(terms, global_, held(times, n, newest, i), local, message)
            learn(local, terms, message)


def play(source: Any, with_: Play, path: Any) -> None:
    """All rounds of a run; `path` keeps the global model after each, if it has room."""
    times, active, known = with_.times, with_.times.active, with_.times.labelled
    for n in range(times.rounds + 1):
        deliver(with_.local, with_, n)
        if n == times.rounds:
            break
        for first in range(active.first[n], active.last[n], BLOCK):
            last = min(first + BLOCK, active.last[n])
            meet(source, with_, n, first, last)
            if times.at_once:
                learn_now(with_, n, first, last)
        if known.first[n] < known.last[n]:
            learn_late(with_, n)
        serve(with_.global_, with_, n)
        if path.shape[0] > 0:
            keep(with_.global_, (n + 1) % times.history, path, n + 1)
