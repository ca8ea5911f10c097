"""Who acts in which round: samples, delays and passes turned into lists for the kernels."""

from typing import NamedTuple

import numpy as np

from fedres.core.delays import Delay, Lag, per_client, per_message
from fedres.core.participation import Present
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


class Times(NamedTuple):
    """Everything about time in a run. A round is `batch` samples a client."""

    rounds: int
    active: Schedule  # who sees samples
    at_once: bool  # whether their labels are known in the same round
    labelled: Schedule  # if not: whose labels become known, at the end of a round
    due_local: Schedule  # who has waited a round trip, before the round's predictions
    due_server: Schedule  # whose upload arrives, at the end of the round
    down: I32  # a client: how old the global model it predicts with is
    version: I32  # for random delays: which it is, (rounds + 1, clients); else empty
    history: int  # versions of the global model that are kept, in a ring


class Plan(NamedTuple):
    """The times of a run, and what they need."""

    times: Times
    depth: int  # rounds a message may be under way or wait for, this one included
    arrivals: int  # how many uploads reach the server before the run ends


def held(times: Times, n: int, newest: int, i: int) -> int:
    """The place in the ring of the global model that client i holds in round n: G_{n - beta_i}.

    `newest` is that of G_n, n % times.history, which callers divide for once a round.
    """
    if times.version.shape[0] > 0:
        age = n - times.version[n * times.down.shape[0] + i]
    else:
        age = min(times.down[i], n)
    return back(newest, age, times.history)


def back(now: int, steps: int, depth: int) -> int:
    """The place in a ring so many steps (less than its depth) ago."""
    place = now - steps
    return place + depth if place < 0 else place


def plan(
    clients: int,
    rounds: int,
    batch: int,
    delay: Delay,
    *,
    waits: bool = False,
    frozen: bool = False,
    label_delay: Lag = 0,
    passes: tuple[I64, int] | None = None,
    present: Present | None = None,
    seed: int = 0,
) -> Plan:
    """Lay out a run.

    Parameters
    ----------
    clients, rounds, batch, delay, seed
        As in `simulate`, with rounds of `batch` samples.
    waits
        Whether clients learn a round trip later.
    frozen
        Whether the server takes gradients at a version that must not change under it.
    label_delay
        Rounds from a sample to its label; then only does the client learn and send.
    passes
        Rows a client and number of passes, where clients see each of their rows that often and
        then rest; None where all are always active.
    present
        Who takes part in which round, (clients, rounds); None where all do. Not with `passes`.
    """
    late = Delay(label_delay)
    known = per_client(late.up, clients, batch)
    up, down = per_client(delay.up, clients, batch), per_client(delay.down, clients, batch)
    at_once, history = not known.any(), int(down.max()) + 1 + frozen
    if present is not None and present.all():
        present = None
    always = present is None and (passes is None or bool((passes[0] == passes[0][0]).all()))
    if always and not delay.random and not late.random:
        arrives = up + known
        times = Times(
            rounds,
            _always(rounds, up * 0),
            at_once,
            never(rounds) if at_once else _always(rounds, known),
            _always(rounds + 1, up + down + 1) if waits else never(rounds + 1),
            _always(rounds, arrives),
            down,
            np.empty(0, np.int32),
            history,
        )
        longest = (up + down + 1 if waits else arrives).max()
        return Plan(times, int(longest) + 1, int(np.maximum(rounds - arrives, 0).sum()))

    sent, who = spread(*passes, batch) if passes else everyone(clients, rounds)
    if present is not None:
        sent, who = np.nonzero(present.T)
    ups, downs = draw_delays(delay, clients, rounds, batch, seed)
    version = np.empty(0, np.int32)
    if delay.random:
        version = _newest(downs, rounds).astype(np.int32).ravel()
    labels = sent + draw_label_delays(label_delay, clients, rounds, batch, seed)[who, sent]
    arrives = labels + ups[who, np.minimum(labels, rounds - 1)]
    # The model of version `arrives + 1` is the first with this upload; it travels down in turn.
    learned = arrives + 1 + downs[who, np.minimum(arrives + 1, rounds)]
    if present is not None:
        learned = _when_back(present)[who, np.minimum(learned, rounds + 1)]
    times = Times(
        rounds,
        _sorted(sent, sent, sent, who, rounds),
        at_once,
        never(rounds) if at_once else _sorted(labels, sent, sent, who, rounds),
        _sorted(learned, arrives, sent, who, rounds + 1) if waits else never(rounds + 1),
        _sorted(arrives, labels, sent, who, rounds),
        down,
        version,
        history,
    )
    longest = known.max() + up.max() + (down.max() + 1 if waits else 0)
    if waits and times.due_local.lag.size:
        longest = max(longest, times.due_local.lag.max())  # a client may have been away
    return Plan(times, int(longest) + 1, int((arrives < rounds).sum()))


def _always(rounds: int, lag: I32) -> Schedule:
    clients = len(lag)
    who = np.arange(clients, dtype=np.int32)
    return Schedule(np.zeros(rounds, np.int64), np.full(rounds, clients, np.int64), who, lag)


def never(rounds: int) -> Schedule:
    """Nobody is due in any round."""
    return Schedule(*np.zeros((2, rounds), np.int64), *np.zeros((2, 0), np.int32))


def draw_delays(delay: Delay, clients: int, rounds: int, batch: int, seed: int) -> tuple[I32, I32]:
    """Lags of every upload, (clients, rounds), and of every version on its way to each client."""
    rng = np.random.default_rng([seed, 1])
    up = per_message(delay.up, clients, rounds, batch, rng)
    return up, per_message(delay.down, clients, rounds + 1, batch, rng)


def draw_label_delays(lag: Lag, clients: int, rounds: int, batch: int, seed: int) -> I32:
    """Rounds from every sample to its label, (clients, rounds)."""
    return per_message(lag, clients, rounds, batch, np.random.default_rng([seed, 2]))


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


def _when_back(present: Present) -> I64:
    """The first round from each on in which a client takes part, (clients, rounds + 2).

    All are there at the end, when what has waited is done; what comes later is never done.
    """
    clients, rounds = present.shape
    back = np.full((clients, rounds + 2), rounds + 1, np.int64)
    back[:, rounds] = rounds
    back[:, :rounds][present] = np.nonzero(present)[1]
    return np.asarray(np.minimum.accumulate(back[:, ::-1], axis=1)[:, ::-1], np.int64)


def _newest(downs: I32, rounds: int) -> I64:
    """The newest version that has reached each client, (rounds + 1, clients)."""
    versions = np.arange(1, rounds + 1)
    reaches = versions + downs[:, 1:]
    newest = np.zeros((len(downs), rounds + 1), np.int64)
    i, v = np.nonzero(reaches <= rounds)
    np.maximum.at(newest, (i, reaches[i, v]), versions[v])
    return np.maximum.accumulate(newest, axis=1).T


def _sorted(due: I64, then: I64, sent: I64, who: I64, rounds: int) -> Schedule:
    """What falls due in time, in order of round, then client, then `then`, then age."""
    order = np.lexsort((sent, then, who, due))
    order = order[: np.searchsorted(due[order], rounds)]
    bounds = np.searchsorted(due[order], np.arange(rounds + 1))
    lag = due[order] - sent[order]
    return Schedule(bounds[:-1], bounds[1:], who[order].astype(np.int32), lag.astype(np.int32))
