"""A bandit run as one compiled loop: every client, every round, nothing allocated on the way.

The arithmetic is that of `fedres.bandits.policies` and `fedres.core.sgd` (alignment
``arrival``), written once more so that a compiler can fuse it; `tests/test_bandit_simulator.py`
holds them together.

An action's features are a row of a table, placed in one block of the weights: the features of
action a are zero but for table[row[a]] in columns block[a] * d to (block[a] + 1) * d. All chance
comes from hashes of (seed, client, round, purpose), so that whoever asks gets the same answer.

Indices: `n` a round, from 0; `s` the round of a decision whose reward or upload is under way; `i`
a client; `a` an action; `at` where a block begins in the weights.
"""

from typing import NamedTuple

import numpy as np

from fedres.bandits.policies import EpsilonGreedy, Greedy, Policy, Softmax, SquareCB
from fedres.core.kernels import U, _compile, _inline
from fedres.core.types import F32, F64, I32, I64
from fedres.core.views import View

# What a number is drawn for. Those of ITEM, ITEM + 1, ... choose what is offered.
REWARD_LAG, UP, DOWN, REWARD, EXPLORE, ACTION, COUNT, ITEM = range(8)

GREEDY, EPSILON, EVERY, SQUARECB, SOFTMAX = range(5)


class World(NamedTuple):
    """What is offered, and what it pays: a catalogue of items, or rows sorted by class."""

    catalogue: bool
    low: int  # actions offered, low to high
    high: int
    mean: F32  # of a catalogue: the expected reward, (clients, items)
    noise: float  # half the width of the noise around it; negative: rewards are 0 or 1
    first: I64  # of classes: the first row of each, and the number of rows
    seen: I32  # (clients, c): which classes a client sees
    pays: I32  # (clients, classes): the action that is right
    class_of: I32  # of every row


class Chooser(NamedTuple):
    """A policy: its kind and its numbers."""

    kind: int
    first: float
    second: float


class Rules(NamedTuple):
    """The scalars of a run."""

    seed: int
    rounds: int
    adaptive: bool
    all_decisions: bool  # else only exploration is learned from


class Lags(NamedTuple):
    """Rounds under way, a client: drawn from low to high, both included."""

    low: I32
    high: I32


class Models(NamedTuple):
    """Models end to end, each one's constant last, and the range of rewards it has seen."""

    size: int  # of one model
    eta: np.float32
    constant: np.float32  # 0 where there is no model
    weights: F32
    squares: F32
    low: F32
    high: F32


class Pending(NamedTuple):
    """Decisions whose reward or upload is under way: a ring over the last `depth` rounds."""

    depth: int
    learned: I32  # the round in which the reward is learned from, -1 for never
    arrives: I32  # the round in which the server gets it
    row: I32
    block: I32
    reward: F32
    residual: F32


class Offer(NamedTuple):
    """Scratch: the actions of one decision."""

    row: I32
    block: I32
    score: F64
    probability: F64


class Record(NamedTuple):
    """What a run leaves behind; the last three only if wanted."""

    reward_by_round: F64
    mean_by_round: F64  # expected rewards of the chosen actions
    reward_by_client: F64
    action: I32
    reward: F32
    probability: F64


def chooser(policy: Policy) -> Chooser:
    """A policy for compiled loops."""
    match policy:
        case Greedy():
            return Chooser(GREEDY, 0.0, 0.0)
        case EpsilonGreedy(epsilon=None, explore_every=every) if every is not None:
            return Chooser(EVERY, float(every), 0.0)
        case EpsilonGreedy(epsilon=epsilon) if epsilon is not None:
            return Chooser(EPSILON, float(epsilon), 0.0)
        case SquareCB(gamma, exponent):
            return Chooser(SQUARECB, float(gamma), float(exponent))
        case Softmax(temperature):
            return Chooser(SOFTMAX, float(temperature), 0.0)
    raise ValueError(f"{policy} cannot be simulated: use one of fedres.bandits.policies")


def scratch(most: int) -> Offer:
    """Room for the actions of one decision."""
    return Offer(*np.empty((2, most), np.int32), *np.empty((2, most)))


@_inline
def _mix(z: np.uint64) -> np.uint64:
    """The finaliser of splitmix64."""
    z = (z ^ (z >> U(30))) * U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
    return z ^ (z >> U(31))


@_inline
def _key(seed: int, client: int, round_: int) -> np.uint64:
    golden = U(0x9E3779B97F4A7C15)
    key = _mix(U(seed) + golden)
    key = _mix(key + U(client + 1) * golden)
    return _mix(key + U(round_ + 1) * golden)


@_inline
def _uniform(key: np.uint64, purpose: int) -> float:
    z = _mix(key + U(purpose + 1) * U(0x9E3779B97F4A7C15))
    return np.float64(z >> U(11)) * 2.0**-53


@_compile
def uniform(seed: int, client: int, round_: int, purpose: int) -> float:
    """The number from [0, 1) that is drawn for a purpose, the same whenever it is asked for."""
    return _uniform(_key(seed, client, round_), purpose)


@_inline
def _lag(lags: Lags, i: int, key: np.uint64, purpose: int) -> int:
    low, high = int(lags.low[U(i)]), int(lags.high[U(i)])
    if low == high:
        return low
    return low + int(_uniform(key, purpose) * (high - low + 1))


@_inline
def _newest(down: Lags, seed: int, i: int, n: int) -> int:
    """The newest version of the global model that has reached a client before round n."""
    version = max(n - down.low[U(i)], 0)
    if down.low[U(i)] < down.high[U(i)]:
        while version > 0 and version + _lag(down, i, _key(seed, i, version), DOWN) > n:
            version -= 1
    return version


@_compile
def draw_lag(lags: Lags, seed: int, client: int, round_: int, purpose: int) -> int:
    """How long something of that round is under way."""
    return _lag(lags, client, _key(seed, client, round_), purpose)


@_inline
def _offer(world: World, i: int, key: np.uint64, row: I32, block: I32) -> int:
    """Fill in the actions of one decision; returns how many there are."""
    if world.catalogue:
        count = world.low + int(_uniform(key, COUNT) * (world.high - world.low + 1))
        items = world.mean.shape[1]
        # Floyd's way to draw without replacement.
        for a in range(count):
            last = items - count + a
            item = np.int64(_uniform(key, ITEM + a) * (last + 1))
            for b in range(a):
                if row[U(b)] == item:
                    item = last
                    break
            row[U(a)] = item
            block[U(a)] = 0
        return count
    c = world.seen[U(i), U(_uniform(key, COUNT) * world.seen.shape[1])]
    rows = world.first[U(c + 1)] - world.first[U(c)]
    drawn = world.first[U(c)] + np.int64(_uniform(key, ITEM) * rows)
    for a in range(world.high):
        row[U(a)] = drawn
        block[U(a)] = a
    return world.high


@_inline
def _mean(world: World, i: int, row: int, block: int) -> float:
    """The expected reward of an action."""
    if world.catalogue:
        return np.float64(world.mean[U(i), U(row)])
    return np.float64(world.pays[U(i), U(world.class_of[U(row)])] == block)


@_inline
def _pay(world: World, mean: float, key: np.uint64) -> np.float32:
    u = _uniform(key, REWARD)
    if world.noise < 0:
        return np.float32(u < mean)
    return np.float32(mean + world.noise * (2 * u - 1))


@_compile
def offer(world: World, seed: int, client: int, round_: int, row: I32, block: I32) -> int:
    """The actions that a client is offered in a round; returns how many there are."""
    return _offer(world, client, _key(seed, client, round_), row, block)


@_compile
def pay(world: World, seed: int, client: int, round_: int, row: int, block: int) -> np.float32:
    """The reward of an action in a round."""
    return _pay(world, _mean(world, client, row, block), _key(seed, client, round_))


@_compile
def best_by_round(world: World, right: F32, seed: int, row: I32, block: I32, out: F64) -> None:
    """Expected rewards of the best pair of models, summed over clients.

    `right` says what its choice on each row earns each client; of a catalogue it is not needed.
    """
    for n in range(out.shape[0]):
        for i in range(world.mean.shape[0] if world.catalogue else world.seen.shape[0]):
            count = _offer(world, i, _key(seed, i, n), row, block)
            if world.catalogue:
                best = np.float32(-np.inf)
                for a in range(count):
                    best = max(best, world.mean[U(i), U(row[U(a)])])
                out[n] += best
            else:
                out[n] += right[U(i), U(row[0])]


@_inline
def _predict(view: View, row: int, block: int, models: Models, at: int) -> np.float32:
    """f(x; w) of the model that begins at `at`."""
    w = models.weights
    total = models.constant * w[U(at + models.size - 1)]
    d = view.width[0]
    v = U(at + block * d)
    if view.sparse:
        for e in range(U(view.indptr[U(row)]), U(view.indptr[U(row + 1)])):
            total += view.values[e] * w[v + U(view.indices[e])]
    else:
        x = U(row * d)
        for j in range(U(d)):
            total += view.values[x + j] * w[v + j]
    return total


@_inline
def _descend(view: View, row: int, block: int, slope: np.float32, models: Models, at: int) -> None:
    """W -= eta * slope * x."""
    w, rate = models.weights, models.eta * slope
    w[U(at + models.size - 1)] -= rate * models.constant
    d = view.width[0]
    v = U(at + block * d)
    if view.sparse:
        for e in range(U(view.indptr[U(row)]), U(view.indptr[U(row + 1)])):
            w[v + U(view.indices[e])] -= rate * view.values[e]
    else:
        x = U(row * d)
        for j in range(U(d)):
            w[v + j] -= rate * view.values[x + j]


@_inline
def _adapt(
    view: View, row: int, block: int, slope: np.float32, models: Models, at: int, sq: int
) -> None:
    """G_j += (slope x_j)^2; w_j -= eta slope x_j / sqrt(G_j), with the sums G from `sq` on."""
    w, squares, eta = models.weights, models.squares, models.eta
    last = models.size - 1
    gradient = slope * models.constant
    squares[U(sq + last)] += gradient * gradient
    w[U(at + last)] -= eta * gradient / np.sqrt(squares[U(sq + last)])
    d = view.width[0]
    v, g = U(at + block * d), U(sq + block * d)
    if view.sparse:
        for e in range(U(view.indptr[U(row)]), U(view.indptr[U(row + 1)])):
            j = U(view.indices[e])
            gradient = slope * view.values[e]
            squares[g + j] += gradient * gradient
            w[v + j] -= eta * gradient / np.sqrt(squares[g + j])
    else:
        x = U(row * d)
        for j in range(U(d)):
            gradient = slope * view.values[x + j]
            squares[g + j] += gradient * gradient
            w[v + j] -= eta * gradient / np.sqrt(squares[g + j])


@_inline
def _slope(prediction: np.float32, y: np.float32, models: Models, i: int) -> np.float32:
    """The slope of the squared loss, with the prediction clipped to the rewards seen."""
    low, high = min(models.low[U(i)], y), max(models.high[U(i)], y)
    models.low[U(i)], models.high[U(i)] = low, high
    return np.float32(2) * (min(max(prediction, low), high) - y)


@_inline
def _blend(count: int, explore: float, score: F64, p: F64) -> None:
    """Uniform with that probability, else greedy."""
    best, ties = -np.inf, 0
    for a in range(U(count)):
        if score[a] > best:
            best, ties = score[a], 1
        elif score[a] == best:
            ties += 1
    share, rest = explore / count, (1 - explore) / max(ties, 1)
    for a in range(U(count)):
        p[a] = share + (rest if score[a] == best else 0.0)


@_inline
def _weigh(policy: Chooser, turn: int, count: int, score: F64, p: F64) -> None:
    """The probability of every action."""
    if policy.kind in (SQUARECB, SOFTMAX):
        best = -np.inf
        for a in range(U(count)):
            best = max(best, score[a])
        total, ties = 0.0, 0
        sharp = policy.first * turn**policy.second
        for a in range(U(count)):
            if policy.kind == SOFTMAX:
                p[a] = np.exp((score[a] - best) / policy.first)
                total += p[a]
            elif score[a] == best:
                ties += 1
            else:
                p[a] = 1 / (count + sharp * (best - score[a]))
                total += p[a]
        for a in range(U(count)):
            if policy.kind == SOFTMAX:
                p[a] /= total
            elif score[a] == best:
                p[a] = (1 - total) / ties
    elif policy.kind == EVERY:
        _blend(count, np.float64(turn % np.int64(policy.first) == 0), score, p)
    else:
        _blend(count, policy.first, score, p)


@_inline
def _pick(count: int, u: float, p: F64) -> int:
    """The first action with p_1 + .. + p_a > u."""
    total, last = 0.0, 0
    for a in range(count):
        if p[U(a)] > 0:
            total += p[U(a)]
            last = a
            if total > u:
                break
    return last


@_compile
def play(
    world: World,
    policy: Chooser,
    rules: Rules,
    xg: View,
    xl: View,
    reward_lag: Lags,
    up: Lags,
    down: Lags,
    global_: Models,
    local: Models,
    pending: Pending,
    o: Offer,
    record: Record,
) -> int:
    """All rounds of a run. Returns which version in `global_` is the final one."""
    clients = up.low.shape[0]
    history = global_.weights.shape[0] // global_.size
    connected = xg.width[0] > 0
    keep = record.action.shape[0] > 0
    for n in range(rules.rounds):
        for i in range(clients):
            key = _key(rules.seed, i, n)
            held = _newest(down, rules.seed, i, n) % history * global_.size
            own = i * local.size
            count = _offer(world, i, key, o.row, o.block)
            for a in range(U(count)):
                row, block = np.int64(o.row[a]), np.int64(o.block[a])
                seen = _predict(xg, row, block, global_, held)
                o.score[a] = seen + _predict(xl, row, block, local, own)
            if policy.kind == EPSILON:
                explores = _uniform(key, EXPLORE) < policy.first
                _blend(count, np.float64(explores), o.score, o.probability)
            else:
                explores = policy.kind == EVERY and (n + 1) % np.int64(policy.first) == 0
                _weigh(policy, n + 1, count, o.score, o.probability)
            action = _pick(count, _uniform(key, ACTION), o.probability)
            row, block = np.int64(o.row[U(action)]), np.int64(o.block[U(action)])
            mean = _mean(world, i, row, block)
            reward = _pay(world, mean, key)
            record.reward_by_round[n] += reward
            record.mean_by_round[n] += mean
            record.reward_by_client[U(i)] += reward
            if keep:
                record.action[n, i] = action
                record.reward[n, i] = reward
                _weigh(policy, n + 1, count, o.score, o.probability)
                for a in range(count):
                    record.probability[n, i, a] = o.probability[a]

            slot = U(n % pending.depth * clients + i)
            learned = -1
            if rules.all_decisions or explores:
                learned = n + _lag(reward_lag, i, key, REWARD_LAG)
            pending.learned[slot] = learned
            pending.arrives[slot] = learned if learned < 0 else learned + _lag(up, i, key, UP)
            pending.row[slot], pending.block[slot] = row, block
            pending.reward[slot] = reward

            # The client learns from rewards that are now known, and sends.
            for s in range(max(n - reward_lag.high[U(i)], 0), n - reward_lag.low[U(i)] + 1):
                slot = U(s % pending.depth * clients + i)
                if pending.learned[slot] == n:
                    row, block = np.int64(pending.row[slot]), np.int64(pending.block[slot])
                    residual = _predict(xl, row, block, local, own)
                    pending.residual[slot] = residual
                    prediction = _predict(xg, row, block, global_, held) + residual
                    slope = _slope(prediction, pending.reward[slot], local, i)
                    if rules.adaptive:
                        _adapt(xl, row, block, slope, local, own, own)
                    else:
                        _descend(xl, row, block, slope, local, own)

        if not connected:
            continue
        # The server works on what arrives: G_n becomes G_{n+1}.
        old, new = n % history * global_.size, (n + 1) % history * global_.size
        if new != old:
            for j in range(U(global_.size)):
                global_.weights[U(new) + j] = global_.weights[U(old) + j]
        for i in range(clients):
            longest = reward_lag.high[U(i)] + up.high[U(i)]
            shortest = reward_lag.low[U(i)] + up.low[U(i)]
            for s in range(max(n - longest, 0), n - shortest + 1):
                slot = U(s % pending.depth * clients + i)
                if pending.arrives[slot] == n:
                    row, block = np.int64(pending.row[slot]), np.int64(pending.block[slot])
                    # Sgd sums gradients taken at G_n; Adaptive goes example by example.
                    seen = _predict(xg, row, block, global_, new if rules.adaptive else old)
                    prediction = seen + pending.residual[slot]
                    slope = _slope(prediction, pending.reward[slot], global_, 0)
                    if rules.adaptive:
                        _adapt(xg, row, block, slope, global_, new, 0)
                    else:
                        _descend(xg, row, block, slope, global_, new)
    return rules.rounds % history


@_compile
def value(
    world: World,
    policy: Chooser,
    clients: int,
    turn: int,
    seed: int,
    decisions: int,
    xg: View,
    xl: View,
    global_: Models,
    local: Models,
    o: Offer,
) -> float:
    """The expected reward of a policy with fixed models, over so many decisions a client."""
    total = 0.0
    for i in range(clients):
        for n in range(decisions):
            count = _offer(world, i, _key(seed, i, n), o.row, o.block)
            for a in range(U(count)):
                row, block = np.int64(o.row[a]), np.int64(o.block[a])
                seen = _predict(xg, row, block, global_, 0)
                o.score[a] = seen + _predict(xl, row, block, local, i * local.size)
            _weigh(policy, turn, count, o.score, o.probability)
            for a in range(count):
                total += o.probability[a] * _mean(world, i, o.row[a], o.block[a])
    return total / (clients * decisions)
