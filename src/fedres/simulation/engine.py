"""`simulate`: a federation and a method in, a `Run` out."""

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from fedres.core import clock
from fedres.core.delays import Delay, as_delay
from fedres.core.erm import is_squared
from fedres.core.losses import Loss, find_loss
from fedres.core.messages import Ledger, model_bytes, upload_bytes
from fedres.core.primitives import View
from fedres.core.schedule import never, plan
from fedres.core.sgd import Alignment, Linear, Many, One, new_flight, new_models
from fedres.core.steps import Adaptive, Step
from fedres.core.types import F32, F64, I64
from fedres.simulation import scoring
from fedres.simulation.dealing import Deck, new_deck
from fedres.simulation.federation import Federation, sides
from fedres.simulation.run import LocalWeights, Run
from fedres.simulation.settings import SGD_METHODS, ClientWeight, Initial, Method, Settings
from fedres.simulation.sparse_columns import known_columns, own_columns


def simulate(
    federation: Federation,
    method: Method = "fedres",
    *,
    rounds: int | None = None,
    passes: int = 1,
    delay: int | Delay = 0,
    step: Step = Adaptive(0.5),
    local_step: Step | None = None,
    alignment: Alignment = "arrival",
    loss: str | Loss = "squared",
    batch: int = 1,
    radius: float | None = None,
    client_weight: ClientWeight | None = None,
    constant: bool = True,
    residual_bits: int = 32,
    shuffle: bool = True,
    seed: int = 0,
    initial_global: Initial | None = None,
    initial_local: Initial | None = None,
    ridge: float = 0.0,
    solve_every: int = 1,
    keep_path: bool = False,
    compiled: bool = True,
) -> Run:
    """Run one method on a federation and return what happened.

    Parameters
    ----------
    federation
        Clients and their samples.
    method
        ``fedres``; ``independent`` (each client alone, on all features, without delay); or
        ``central`` (the server alone, on the global features): all three by SGD. Or
        ``fedres-erm`` or its cousin ``fictitious-play``: both sides minimise over all samples
        so far. Compiled for the squared loss; other losses are minimised anew each time.
    rounds
        T: samples that each client sees, going round and round through its rows. If None, every
        client sees each of its rows `passes` times; the busiest sets the pace, and the rows of
        the others are spread evenly over each pass.
    passes
        Passes over the rows where `rounds` is not given.
    delay
        Rounds that messages are late: a `Delay`, or a round trip to be split evenly.
    step
        `Adaptive(eta)` or `Sgd(eta)`, for both sides.
    local_step
        The clients' own step (eta_i) where it is not the server's (eta); of the same kind.
    alignment
        Which pair of models gradients are taken at: ``arrival``, ``aligned`` or ``asymmetric``.
    loss
        ``squared`` or ``logistic`` (labels -1 and 1).
    batch
        b: both sides step once in so many samples, on their mean gradient.
    radius
        D: every model is projected on the ball of this radius; None for no bound.
    client_weight
        lambda_i: a weight a client, in their order or by id; or ``"T/N"``, which weighs all
        clients alike however many samples they see.
    constant
        Whether every model has a feature that is always 1.
    residual_bits
        1 to 8, 16 or 32 bits for each residual sent.
    shuffle
        Whether each pass goes through a client's rows in a new random order.
    seed
        Decides that order and random delays; nothing else is random.
    initial_global, initial_local
        Weights that models begin with, zeros if None; the constant's comes last and may be left
        out. Local ones for all clients alike, or one row a client, or by client.
    ridge
        Of the methods that minimise: the weight of ||w||^2 in each argmin.
    solve_every
        Of the methods that minimise: rounds from one argmin to the next.
    keep_path
        Whether `Run.global_path` is kept.
    compiled
        False runs the objects of `fedres.core` instead: the same result, slowly.

    Examples
    --------
    >>> import fedres
    >>> federation = fedres.federate("digits", clients=10, seed=0)
    >>> run = simulate(federation, "fedres", rounds=500, delay=20)
    >>> run.predictions.shape
    (10, 500)
    >>> run.accuracy > simulate(federation, "central", rounds=500, delay=20).accuracy
    True
    """
    settings = Settings(
        method, rounds, passes, as_delay(delay), step, local_step, alignment, find_loss(loss),
        batch, radius, client_weight, constant, residual_bits, shuffle, seed,
        initial_global, initial_local, ridge, solve_every, keep_path,
    )  # fmt: skip
    settings.check(federation)
    if method in SGD_METHODS:
        return _simulate(federation, settings, compiled)
    if compiled and is_squared(settings.loss):
        from fedres.simulation.erm_engine import simulate_erm

        return simulate_erm(federation, settings)
    from fedres.simulation.reference import simulate_reference

    return simulate_reference(federation, settings)


def _simulate(federation: Federation, settings: Settings, compiled: bool) -> Run:
    """Play a run of FedRes.SGD or a baseline: the same functions, compiled or not."""
    run, score = (clock.play, scoring.joint) if not compiled else _compiled(settings.batch)
    rule, rows, batch = settings.rule(federation), federation.train, settings.batch
    clients = len(federation.clients)
    turns, total = settings.turns(federation), settings.total(federation)
    xg, xl = sides(federation, rows, settings.method)
    full_width = xl.width
    columns = None
    if xl.sparse and settings.initial_local is None:
        xl, columns = own_columns(xl, rows.row_start)
    connected = bool(xg.width[0])  # else there is no server and nothing to wait for
    layout = plan(
        clients,
        turns,
        batch,
        settings.delay if connected else Delay(),
        waits=connected and settings.alignment in ("aligned", "late"),
        frozen=not settings.step.adaptive,
        passes=None if settings.cycle else (rows.counts, settings.passes),
        seed=settings.seed,
    )
    times = layout.times if connected else layout.times._replace(due_server=never(turns))
    weight = settings.weights(federation)
    terms = (rule if connected else replace(rule, alignment="arrival")).terms(weight)
    global_ = Linear(
        xg,
        new_models(xg.width[:1], settings.constant, rule.reach, times.history),
        np.float32(settings.step.eta),
        np.zeros(int(xg.width[0]) + 1, np.float32),
    )
    local = Linear(
        xl,
        new_models(xl.width, settings.constant, rule.reach),
        np.float32(rule.step_of_clients.eta),
        np.zeros(int(xl.width.max()) + 1, np.float32),
    )
    begin_global, begin_local = settings.initial(federation, int(xg.width[0]), xl.width)
    global_.models.weights[: len(begin_global)] = begin_global
    if settings.initial_local is not None:
        for weights, start in zip(begin_local, local.models.start, strict=True):
            local.models.weights[start : start + len(weights)] = weights
    path = np.zeros((turns + 1 if settings.keep_path else 0, len(begin_global)), np.float32)
    path[:1] = begin_global
    deck = new_deck(
        rows.y,
        rows.row_start,
        turns,
        total,
        cycle=settings.cycle,
        shuffle=settings.shuffle,
        seed=settings.seed,
        stored=np.diff(xg.indptr) if xg.sparse else None,
        alone=xl.width == 0,
    )
    began = perf_counter()
    with np.errstate(all="ignore"):  # a run may diverge, and shuffles overflow on purpose
        run(deck, terms, times, global_, local, new_flight(layout.depth, clients, batch), path)
        version = turns % times.history
        tested = None
        if federation.test is not None:
            test = federation.test
            tested = np.empty(len(test.y), np.float32)
            xg_test, xl_test = sides(federation, test, settings.method)
            if columns is not None:
                xl_test = known_columns(xl_test, test.row_start, columns, xl.width)
            final = global_._replace(x=xg_test), local._replace(x=xl_test)
            score(final[0], version, final[1], test.row_start, tested)
    seconds = perf_counter() - began
    start = global_.models.start[version]
    return finish(
        federation,
        settings,
        deck.predictions.T,
        deck.loss_by_round,
        deck.weight_by_round,
        deck.loss_by_client,
        global_.models.weights[start : start + len(begin_global)].copy(),
        LocalWeights(
            local.models.weights, local.models.start, full_width, local.models.constant, columns,
            xl.width,
        ),
        _bytes(federation, settings, xg, xl, layout.arrivals, int(deck.stored_sent[0])),
        tested,
        seconds,
        path if settings.keep_path else None,
    )  # fmt: skip


def _compiled(batch: int) -> tuple[Any, Any]:
    # A compiler takes a moment to load, which the command line should not wait for.
    from fedres.core.compiled import compiled

    return compiled(clock.play, Deck, Linear, One if batch == 1 else Many), compiled(scoring.joint)


def finish(
    federation: Federation,
    settings: Settings,
    predictions: F32,
    loss_by_round: F64,
    weight_by_round: F64,
    loss_by_client: F64,
    w_global: F32,
    w_local: Sequence[F32],
    ledger: Ledger,
    test_predictions: F32 | None,
    seconds: float,
    path: F32 | None,
) -> Run:
    """Turn sums of losses into averages."""
    seen = settings.rounds or settings.passes * federation.train.counts
    with np.errstate(invalid="ignore"):  # rounds in which all clients rest have no loss
        return Run(
            federation,
            settings,
            predictions,
            float(loss_by_round.sum() / weight_by_round.sum()),
            loss_by_round / weight_by_round,
            loss_by_client / seen,
            w_global,
            w_local,
            ledger.up,
            ledger.down,
            test_predictions,
            seconds,
            path,
        )


def _bytes(
    federation: Federation, settings: Settings, xg: View, xl: View, arrivals: int, features: int
) -> Ledger:
    """The size of all messages of a run of SGD."""
    if not xg.width[0]:
        return Ledger()
    bits = np.where(xl.width > 0, settings.residual_bits, 0)
    if not xg.sparse:
        seen = settings.rounds or settings.passes * federation.train.counts
        features = int((seen * xg.width).sum())
    ledger = count_bytes(federation, settings, bits, xg.sparse, features)
    if settings.alignment == "aligned":
        ledger.down += 4 * arrivals
    return ledger


def count_bytes(
    federation: Federation,
    settings: Settings,
    bits: I64,
    packed: bool,
    features: int,
    extra: I64 | int = 0,
) -> Ledger:
    """The size of all uploads and of the global models fetched with them.

    Parameters
    ----------
    federation, settings
        Who sends, and how often.
    bits
        Bits a residual, by client.
    packed, features
        Whether features are sent sparse, and how many values are sent in all.
    extra
        Further bytes an upload, by client.
    """
    samples, passes = federation.train.counts, settings.passes
    if settings.rounds is not None:
        samples, passes = np.full_like(samples, settings.rounds), 1
    full, rest = np.divmod(samples, settings.batch)

    def size(count: I64) -> I64:
        sizes: I64 = upload_bytes(count, 0, bits, packed) + extra
        return sizes

    batch = np.full_like(samples, settings.batch)
    up = passes * int((full * size(batch) + np.where(rest > 0, size(rest), 0)).sum())
    messages = passes * int((full + (rest > 0)).sum())
    model = model_bytes(federation.width_global + settings.constant)
    return Ledger(up + (8 if packed else 4) * features, messages * model)
