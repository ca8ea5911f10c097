"""Rows dealt to clients, pass after pass: what a federation in arrays is to the clock of rounds."""

from typing import Any, NamedTuple

import numpy as np

from fedres.core.clock import meet
from fedres.core.losses import clip, joint_value
from fedres.core.schedule import held
from fedres.core.sgd import Flight, Play, U, bounds, count, message_of, predict, set_count
from fedres.core.types import F32, F64, I32, I64

NOT_KEPT = np.empty((0, 0), np.float32)


class Deck(NamedTuple):
    """The rows of every client, where each client stands in them, and what came of it."""

    y: F32
    row_start: I64
    order: I32  # rows in the order of the current pass, client after client
    position: I64  # a client: rows of this pass that were dealt
    epoch: I64  # a client: passes before this one
    stored: I64  # values that a row takes in a message; empty where all take the same
    alone: I32  # 1 for a client without a local model
    total: int  # samples a client sees when it cycles through its rows
    cycle: bool
    shuffle: bool
    seed: int
    predictions: F32  # (samples, clients)
    labels: F32  # likewise, where they are kept
    loss_by_round: F64
    weight_by_round: F64
    loss_by_client: F64
    stored_sent: I64


def new_deck(
    y: F32,
    row_start: I64,
    rounds: int,
    total: int,
    *,
    cycle: bool,
    shuffle: bool = False,
    seed: int = 0,
    stored: I64 | None = None,
    alone: Any = None,
    labels: F32 = NOT_KEPT,
) -> Deck:
    """A deck of which nothing has been dealt; `alone` are the clients without a local model."""
    clients = len(row_start) - 1
    order = np.arange(len(y)) - np.repeat(row_start[:-1], np.diff(row_start))
    without = np.zeros(clients, np.int32)
    if alone is not None:
        without[alone] = 1
    return Deck(
        y,
        row_start,
        order.astype(np.int32),
        np.zeros(clients, np.int64),
        np.zeros(clients, np.int64),
        np.empty(0, np.int64) if stored is None else stored,
        without,
        total,
        cycle,
        shuffle,
        seed,
        np.full((total, clients), np.nan, np.float32),
        labels,
        np.zeros(rounds),
        np.zeros(rounds),
        np.zeros(clients),
        np.zeros(1, np.int64),
    )


def shuffle_rows(order: I32, first: int, last: int, seed: int, client: int, epoch: int) -> None:
    """Fisher-Yates on order[first:last], from a stream of (seed, client, epoch) alone."""
    state = U(seed) * U(0x9E3779B97F4A7C15)
    state = (state ^ (state >> U(32))) + U(client + 1) * U(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> U(32))) + U(epoch + 1) * U(0x94D049BB133111EB)
    for k in range(last - first - 1, 0, -1):
        state = state * U(6364136223846793005) + U(1442695040888963407)
        high = (state ^ (state >> U(29))) >> U(32)
        one, other = U(first + k), U(first) + ((high * U(k + 1)) >> U(32))
        order[one], order[other] = order[other], order[one]


def deal_all(row_start: I64, first: I64, shuffle: bool, seed: int, order: I32, dealt: I64) -> None:
    """Rows that clients see, pass after pass: client i those in dealt[first[i]:first[i + 1]].

    `order` has room for the rows of one client.
    """
    for i in range(len(row_start) - 1):
        rows = row_start[i + 1] - row_start[i]
        for k in range(rows):
            order[k] = k
        for epoch in range(-((first[i] - first[i + 1]) // rows)):
            if shuffle:
                shuffle_rows(order, 0, rows, seed, i, epoch)
            begun = first[i] + epoch * rows
            for c in range(begun, min(begun + rows, first[i + 1])):
                dealt[c] = row_start[i] + order[c - begun]


def deal(deck: Deck, i: int, most: int, flight: Flight, slot: int) -> None:
    """The next rows of client i; a pass that ends within a batch cuts it short unless it cycles."""
    begin = deck.row_start[U(i)]
    rows = deck.row_start[U(i + 1)] - begin
    position = deck.position[U(i)]
    dealt = most if deck.cycle else min(most, rows - position)
    set_count(flight.samples, slot, dealt)
    begun = slot * flight.samples.batch
    for c in range(U(begun), U(begun + count(flight.samples, slot))):
        if position == 0 and deck.shuffle:
            shuffle_rows(deck.order, begin, begin + rows, deck.seed, i, deck.epoch[i])
        row = begin + deck.order[U(begin + position)]
        flight.row[c] = row
        flight.label[c] = deck.y[U(row)]
        position += 1
        if position == rows:
            position = 0
            deck.epoch[U(i)] += 1
    deck.position[U(i)] = position


@meet.register
def _(deck: Deck, play: Play, n: int, first: int, last: int) -> None:
    terms, times, global_, local, flight = play
    batch, place, newest = flight.samples.batch, n % flight.depth, n % times.history
    base, most = place * len(terms.weight), min(batch, deck.total - n * batch)
    for e in range(first, last):
        i: Any = np.int64(times.active.who[U(e)])
        deal(deck, i, most, flight, base + i)
    for e in range(first, last):
        i = np.int64(times.active.who[U(e)])
        version = held(times, n, newest, i)
        predict(terms, global_, version, local, message_of(play, place, i))
    total = mass = np.float64(0)
    for e in range(first, last):
        i = np.int64(times.active.who[U(e)])
        message = message_of(play, place, i)
        low, high = bounds(local, i)
        alone = deck.alone[U(i)] == 1
        if alone:  # then it is the server that knows the range of labels
            low, high = bounds(global_, held(times, n, newest, i))
        for q in range(U(message.last - message.first)):
            c = U(message.first) + q
            if alone:
                flight.sent[c] = flight.own[c]  # nothing, and not rounded to few bits
            shared, own = flight.seen[c], flight.own[c]
            prediction = clip(shared + own, low, high)
            loss = joint_value(terms.loss, prediction, shared, own, flight.label[c])
            deck.predictions[U(n * batch) + q, U(i)] = prediction
            if deck.labels.shape[0] > 0:
                deck.labels[U(n * batch) + q, U(i)] = flight.label[c]
            deck.loss_by_client[U(i)] += loss
            total += terms.weight[U(i)] * loss
            mass += terms.weight[U(i)]
            if deck.stored.shape[0] > 0:
                deck.stored_sent[0] += deck.stored[flight.row[c]]
    deck.loss_by_round[n] += total
    deck.weight_by_round[n] += mass
