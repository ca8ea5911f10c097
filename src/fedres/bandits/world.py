"""What a client is offered in a round, and what it pays.

An action's features are a row of a table, placed in one block of the weights: the features of
action a are zero but for table[row[a]] in columns block[a] * d to (block[a] + 1) * d. All chance
comes from hashes of (seed, client, round, purpose), so that whoever asks gets the same answer.

Indices: `n` a round, from 0; `i` a client; `a` an action.
"""

from typing import NamedTuple

import numpy as np

from fedres.core.sgd import U
from fedres.core.types import F32, F64, I32, I64

# What a number is drawn for. Those of ITEM, ITEM + 1, ... choose what is offered.
REWARD, EXPLORE, ACTION, COUNT, ITEM = range(3, 8)


CLASSES, CATALOGUE, REPLAY = range(3)


class World(NamedTuple):
    """What is offered, and what it pays: classes, a catalogue of items, or clients' own rows."""

    kind: int
    low: int  # actions offered, low to high
    high: int
    mean: F32  # of a catalogue: the expected reward, (clients, items); of a replay: (1, rows)
    noise: float  # half the width of the noise around it; negative: rewards are 0 or 1
    first: I64  # the first row of each class, or of each client of a replay, and how many there are
    seen: I32  # (clients, c): which classes a client sees
    pays: I32  # (clients, classes): the action that is right
    class_of: I32  # of every row


def mix(z: np.uint64) -> np.uint64:
    """The finaliser of splitmix64."""
    z = (z ^ (z >> U(30))) * U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
    return z ^ (z >> U(31))


def key_of(seed: int, i: int, n: int) -> np.uint64:
    """What all numbers drawn for a client in a round are made of."""
    golden = U(0x9E3779B97F4A7C15)
    key = mix(U(seed) + golden)
    key = mix(key + U(i + 1) * golden)
    return mix(key + U(n + 1) * golden)


def drawn(key: np.uint64, purpose: int) -> float:
    """The number from [0, 1) that is drawn for a purpose."""
    z = mix(key + U(purpose + 1) * U(0x9E3779B97F4A7C15))
    return np.float64(z >> U(11)) * 2.0**-53


def offer(world: World, i: int, key: np.uint64, row: I32, block: I32) -> int:
    """Fill in the actions of one decision; returns how many there are."""
    if world.kind != CLASSES:
        count = world.low + int(drawn(key, COUNT) * (world.high - world.low + 1))
        items, begin = world.mean.shape[1], 0
        if world.kind == REPLAY:
            begin = world.first[U(i)]
            items = world.first[U(i + 1)] - begin
            count = min(count, items)
        # Floyd's way to draw without replacement.
        for a in range(count):
            last = items - count + a
            item = int(drawn(key, ITEM + a) * (last + 1))
            for b in range(a):
                if row[U(b)] == begin + item:
                    item = last
                    break
            row[U(a)] = begin + item
            block[U(a)] = 0
        return count
    c = world.seen[U(i), U(drawn(key, COUNT) * world.seen.shape[1])]
    rows = world.first[U(c + 1)] - world.first[U(c)]
    chosen = world.first[U(c)] + int(drawn(key, ITEM) * rows)
    for a in range(world.high):
        row[U(a)] = chosen
        block[U(a)] = a
    return world.high


def expected(world: World, i: int, row: int, block: int) -> float:
    """The expected reward of an action."""
    if world.kind != CLASSES:
        return np.float64(world.mean[U(i if world.kind == CATALOGUE else 0), U(row)])
    return np.float64(world.pays[U(i), U(world.class_of[U(row)])] == block)


def paid(world: World, mean: float, key: np.uint64) -> np.float32:
    """The reward of an action, from its expected one."""
    u = drawn(key, REWARD)
    if world.noise < 0:
        return np.float32(u < mean)
    return np.float32(mean + world.noise * (2 * u - 1))


def offered(world: World, seed: int, i: int, n: int, row: I32, block: I32) -> int:
    """Fill in the actions that a client is offered in a round; returns how many there are."""
    return offer(world, i, key_of(seed, i, n), row, block)


def pay(world: World, seed: int, i: int, n: int, row: int, block: int) -> np.float32:
    """The reward of an action in a round."""
    return paid(world, expected(world, i, row, block), key_of(seed, i, n))


def clients_of(world: World) -> int:
    """P."""
    if world.kind == REPLAY:
        return len(world.first) - 1
    return len(world.mean) if world.kind == CATALOGUE else len(world.seen)


def best_by_round(world: World, right: F32, seed: int, row: I32, block: I32, out: F64) -> None:
    """Expected rewards of the best pair of models, summed over clients.

    `right` says what its choice on each row earns each client; of a catalogue it is not needed.
    `row` and `block` are scratch.
    """
    for n in range(len(out)):
        for i in range(clients_of(world)):
            count = offer(world, i, key_of(seed, i, n), row, block)
            if world.kind != CLASSES:
                best = -np.inf
                for a in range(count):
                    best = max(best, expected(world, i, row[U(a)], 0))
                out[n] += best
            else:
                out[n] += right[U(i), U(row[0])]
