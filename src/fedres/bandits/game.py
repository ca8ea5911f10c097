"""A world and a policy as a source of samples: what `dealing` is to simulations of tables.

In every round each client is offered actions, scores them with both models and chooses. The action
chosen is the sample, its reward the label. Predictions, steps, alignments and delays are those of
`fedres.core`.
"""

from typing import Any, NamedTuple

import numpy as np

from fedres.bandits.choosing import (
    EPSILON,
    EVERY,
    LINUCB,
    Chooser,
    explores,
    pick,
    strength,
    weigh,
)
from fedres.bandits.world import ACTION, EXPLORE, World, drawn, expected, key_of, offer, paid
from fedres.core.clock import meet
from fedres.core.ridge import deviate
from fedres.core.schedule import held
from fedres.core.sgd import Flight, Message, Play, U, evaluate, new_flight, send, set_count
from fedres.core.types import F32, F64, I32


class Offer(NamedTuple):
    """Scratch: the actions of one decision, as if each were a message."""

    actions: Flight
    scores: F64
    errors: F64  # of the scores, if the policy needs them
    probabilities: F64
    room: F64  # (2, actions)


class Game(NamedTuple):
    """What all clients play, and what it brings them; of single decisions only if wanted."""

    world: World
    policy: Chooser
    seed: int
    all_decisions: bool  # else only exploration is learned from
    offer: Offer
    reward_by_round: F64
    mean_by_round: F64  # expected rewards of the chosen actions
    reward_by_client: F64
    chosen: I32  # (rounds, clients), or empty
    rewards: F32
    probabilities: F64


def new_offer(most: int) -> Offer:
    """Room for so many actions."""
    scores, errors, probabilities = np.empty((3, most))
    return Offer(new_flight(1, most, 1), scores, errors, probabilities, np.empty((2, most)))


def score(
    world: World, i: int, key: np.uint64, global_: Any, version: int, local: Any, scratch: Offer
) -> int:
    """Offer a client its actions and predict their rewards; returns how many there are."""
    actions = scratch.actions
    count = offer(world, i, key, actions.row, actions.block)
    message = Message(i, actions, 0, count)
    # A side without features scores 0, which is what there is from the beginning.
    if global_.x.width[0] > 0:
        evaluate(global_, version, message, actions.seen)
    if local.x.width[0] > 0:
        evaluate(local, i, message, actions.own)
    for a in range(U(count)):
        scratch.scores[a] = actions.seen[a] + actions.own[a]
    return count


@meet.register
def _(game: Game, play: Play, n: int, first: int, last: int) -> None:
    terms, times, global_, local, flight = play
    world, kind, strong = game.world, game.policy.kind, strength(game.policy, n + 1)
    actions, room = game.offer.actions, game.offer.room
    base, newest = n % flight.depth * len(terms.weight), n % times.history
    for e in range(first, last):
        i = times.active.who[U(e)]
        key = key_of(game.seed, i, n)
        version = held(times, n, newest, i)
        count = score(world, i, key, global_, version, local, game.offer)
        scores, errors = game.offer.scores[:count], game.offer.errors[:count]
        probabilities = game.offer.probabilities[:count]
        explored = explores(kind, strong, drawn(key, EXPLORE) if kind == EPSILON else 0.0)
        if kind >= LINUCB:
            deviate(local, Message(i, actions, 0, count), errors)
        now = np.float64(explored) if kind <= EVERY else strong
        weigh(kind, now, scores, errors, room, probabilities)
        action = pick(probabilities, drawn(key, ACTION))
        row, block = actions.row[U(action)], actions.block[U(action)]
        mean = expected(world, i, row, block)
        reward = paid(world, mean, key)
        game.reward_by_round[n] += reward
        game.mean_by_round[n] += mean
        game.reward_by_client[U(i)] += reward
        if len(game.chosen) > 0:
            game.chosen[n, i] = action
            game.rewards[n, i] = reward
            weigh(kind, strong, scores, errors, room, probabilities)
            for a in range(count):
                game.probabilities[n, i, a] = probabilities[a]
        c = U(base + i)
        set_count(flight.samples, base + i, 1 if game.all_decisions or explored else 0)
        flight.row[c], flight.block[c], flight.label[c] = row, block, reward
        flight.seen[c], flight.own[c] = actions.seen[U(action)], actions.own[U(action)]
        send(terms, Message(i, flight, base + i, base + i + 1))


def earn(
    world: World,
    policy: Chooser,
    turn: int,
    seed: int,
    decisions: int,
    global_: Any,
    local: Any,
    scratch: Offer,
    out: F64,
) -> None:
    """The expected reward of every client with models that stay, summed over its decisions."""
    strong = strength(policy, turn)
    for i in range(len(out)):
        for n in range(decisions):
            count = score(world, i, key_of(seed, i, n), global_, 0, local, scratch)
            scores, probabilities = scratch.scores[:count], scratch.probabilities[:count]
            weigh(policy.kind, strong, scores, scores, scratch.room, probabilities)
            for a in range(U(count)):
                row, block = scratch.actions.row[a], scratch.actions.block[a]
                out[i] += probabilities[a] * expected(world, i, row, block)
