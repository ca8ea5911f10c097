"""Who acts in which round: samples, delays and passes turned into lists for the kernels."""

from typing import NamedTuple

import numpy as np

from fedres.core.delays import Delay, per_client, per_message
from fedres.core.types import I32, I64


class Schedule(NamedTuple):
    """Entries `first[n]:last[n]` of `who` are due in round n, sent in round n - `lag`.

    Where the same clients are due each round one list serves all rounds, and entries whose
    `lag` reaches before round 0 are to be passed over.
    """

    first: I64
    last: I64
    who: I32
    lag: I32


class Plan(NamedTuple):
    """Everything about time in a run. A round is `batch` samples a client."""

    active: Schedule  # who sees samples
    due_local: Schedule  # whose delayed local gradient falls due, before the round's predictions
    due_server: Schedule  # whose upload arrives, at the end of the round
    down: I32  # a client: how old the global model it predicts with is
    version: I32  # for random delays: which it is, (rounds, clients); else empty
    oldest: int  # how old a global model in use may be
    longest: int  # how many rounds a message may be under way or wait for
    arrivals: int  # how many uploads reach the server before the run ends


def plan(
    clients: int,
    rounds: int,
    batch: int,
    delay: Delay,
    aligned: bool,
    passes: tuple[I64, int] | None,
    seed: int,
) -> Plan:
    """Lay out a run.

    Parameters
    ----------
    clients, rounds, batch, delay, seed
        As in `simulate`, with rounds of `batch` samples.
    aligned
        Whether clients wait with their own gradient.
    passes
        Rows a client and number of passes, where clients see each of their rows that often and
        then rest; None where all are always active.
    """
    up, down = per_client(delay.up, clients, batch), per_client(delay.down, clients, batch)
    version = np.empty(0, np.int32)
    always = passes is None or bool((passes[0] == passes[0][0]).all())
    if always and not delay.random:
        return Plan(
            _always(rounds, up * 0),
            _always(rounds + 1, up + down + 1) if aligned else _never(rounds + 1),
            _always(rounds, up),
            down,
            version,
            int(down.max()),
            int((up + down).max() + 1 if aligned else up.max()),
            int(np.maximum(rounds - up, 0).sum()),
        )

    sent, who = spread(*passes, batch) if passes else everyone(clients, rounds)
    ups, downs = draw_delays(delay, clients, rounds, batch, seed)
    if delay.random:
        version = _newest(downs, rounds).astype(np.int32)
    arrives = sent + ups[who, sent]
    # The model of version `arrives + 1` is the first with this upload; it travels down in turn.
    applies = arrives + 1 + downs[who, np.minimum(arrives + 1, rounds)]
    return Plan(
        _sorted(sent, sent, sent, who, rounds),
        _sorted(applies, arrives, sent, who, rounds + 1) if aligned else _never(rounds + 1),
        _sorted(arrives, sent, sent, who, rounds),
        down,
        version.ravel(),
        int(down.max()),
        int(up.max() + (down.max() + 1 if aligned else 0)),
        int((arrives < rounds).sum()),
    )


def _always(rounds: int, lag: I32) -> Schedule:
    clients = len(lag)
    who = np.arange(clients, dtype=np.int32)
    return Schedule(np.zeros(rounds, np.int64), np.full(rounds, clients, np.int64), who, lag)


def _never(rounds: int) -> Schedule:
    return Schedule(*np.zeros((2, rounds), np.int64), *np.zeros((2, 0), np.int32))


def draw_delays(delay: Delay, clients: int, rounds: int, batch: int, seed: int) -> tuple[I32, I32]:
    """Lags of every upload, (clients, rounds), and of every version on its way to each client."""
    rng = np.random.default_rng([seed, 1])
    up = per_message(delay.up, clients, rounds, batch, rng)
    return up, per_message(delay.down, clients, rounds + 1, batch, rng)


def everyone(clients: int, rounds: int) -> tuple[I64, I64]:
    """Rounds and clients of all messages where every client sends one each round."""
    return np.repeat(np.arange(rounds), clients), np.tile(np.arange(clients), rounds)


def spread(rows: I64, passes: int, batch: int) -> tuple[I64, I64]:
    """Rounds and clients of all messages, those of a client evenly over each pass."""
    messages = -(-rows // batch)
    longest = int(messages.max())
    who = np.repeat(np.arange(len(rows)), messages)
    first = np.concatenate([[0], np.cumsum(messages)[:-1]])
    k = np.arange(len(who)) - np.repeat(first, messages)
    one = k * longest // messages[who]
    sent = (one + longest * np.arange(passes)[:, None]).ravel()
    return sent, np.tile(who, passes)


def _newest(downs: I32, rounds: int) -> I64:
    """The newest version that has reached each client, (rounds, clients)."""
    clients = len(downs)
    versions = np.arange(1, rounds)
    reaches = versions + downs[:, 1:rounds]
    newest = np.zeros((clients, rounds), np.int64)
    i, v = np.nonzero(reaches < rounds)
    np.maximum.at(newest, (i, reaches[i, v]), versions[v])
    return np.maximum.accumulate(newest, axis=1).T


def _sorted(due: I64, then: I64, sent: I64, who: I64, rounds: int) -> Schedule:
    """What falls due in time, in order of round, then client, then `then`, then age."""
    order = np.lexsort((sent, then, who, due))
    order = order[: np.searchsorted(due[order], rounds)]
    bounds = np.searchsorted(due[order], np.arange(rounds + 1))
    lag = due[order] - sent[order]
    return Schedule(bounds[:-1], bounds[1:], who[order].astype(np.int32), lag.astype(np.int32))
