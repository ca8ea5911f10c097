"""`simulate`: a federation and a method in, a `Run` out."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from fedres.core import clock
from fedres.core.delays import Delay, as_delay
from fedres.core.erm import ErmRule
from fedres.core.losses import SQUARED, Loss, PairLoss, joint_loss
from fedres.core.participation import Participation
from fedres.core.sgd import Alignment, Play, new_flight
from fedres.core.steps import Step
from fedres.core.types import F32
from fedres.simulation.dealing import NOT_KEPT, Deck, new_deck
from fedres.simulation.erm_sides import ErmSides
from fedres.simulation.federation import Federation
from fedres.simulation.mixing import mix_runs
from fedres.simulation.run import Run
from fedres.simulation.settings import (
    SGD_METHODS,
    ClientWeight,
    Initial,
    Method,
    Settings,
    options_of,
)
from fedres.simulation.sgd_sides import SgdSides


def simulate(
    federation: Federation,
    method: Method = "fedres",
    *,
    rounds: int | None = None,
    passes: int = 1,
    delay: int | Delay = 0,
    step: Step | None = None,
    local_step: Step | None = None,
    alignment: Alignment | None = None,
    loss: str | Loss | PairLoss = "squared",
    batch: int = 1,
    radius: float | None = None,
    client_weight: ClientWeight | None = None,
    constant: bool = True,
    residual_bits: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    initial_global: Initial | None = None,
    initial_local: Initial | None = None,
    ridge: float | None = None,
    solve_every: int | None = None,
    switching: float | None = None,
    keep_path: bool = False,
    participation: Participation | None = None,
    compiled: bool = True,
) -> Run:
    """Run one method on a federation and return what happened.

    Parameters
    ----------
    federation
        Clients and their samples.
    method
        ``fedres``; ``independent`` (each client alone, on all features, without delay); or
        ``central`` (the server alone, on the global features): all three by SGD. ``mixture``:
        each client mixes these three and never loses much to its best (`fedres.core.mixture`);
        nothing more goes up, since Z holds what Central learns from, and one more model comes
        down. Or ``fedres-erm`` or its cousin ``fictitious-play``: both sides minimise over all
        samples so far, compiled for the squared loss; other losses are minimised anew each time.
    rounds
        T: samples that each client sees, going round and round through its rows. If None, every
        client sees each of its rows `passes` times; the busiest sets the pace, and the rows of
        the others are spread evenly over each pass.
    passes
        Passes over the rows where `rounds` is not given.
    delay
        Rounds that messages are late: a `Delay`, or a round trip to be split evenly.
    step
        Of SGD: `Adaptive(eta)` or `Sgd(eta)`, for both sides; `Adaptive(0.5)` if None.
    local_step
        Of SGD: the clients' own step (eta_i) where it is not the server's (eta); of the same kind.
    alignment
        Of SGD: which pair of models gradients are taken at, ``arrival`` (if None), ``aligned``,
        ``asymmetric`` or ``late``.
    loss
        ``squared`` or ``logistic`` (labels -1 and 1); or a `PairLoss` of one's own, of the global
        and the local prediction, for SGD alone and without the compiler.
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
        1 to 8, 16 or 32 (if None) bits for each residual sent; ``fedres-erm`` sends none.
    shuffle
        Whether each pass goes through a client's rows in a new random order.
    seed
        Decides that order and random delays; nothing else is random.
    initial_global, initial_local
        Weights that models begin with, zeros if None; the constant's comes last and may be left
        out. Local ones for all clients alike, or one row a client, or by client.
    ridge
        Of the methods that minimise: the weight of ||w||^2 in each argmin; 0 if None.
    solve_every
        Of the methods that minimise: rounds from one argmin to the next; 1 if None.
    switching
        Of the mixture: the share of the moving half of all weight that is dealt out evenly again
        after each label, so that another expert can take over; 1 / (n + 1) after the n-th label
        if None. 0 for Vovk's own algorithm; more than 0 where the world never ceases to change.
    keep_path
        Whether `Run.global_path` is kept.
    participation
        When clients join and leave, and in which share of the rounds they take part (rounds of
        `batch` samples); all in all rounds if None. Needs `rounds`.
    compiled
        False runs the same functions without the compiler: the same result, slowly.

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
    options = options_of(
        method, step=step, local_step=local_step, alignment=alignment, residual_bits=residual_bits,
        ridge=ridge, solve_every=solve_every, switching=switching,
    )  # fmt: skip
    settings = Settings(
        method, options, rounds, passes, as_delay(delay), joint_loss(loss), batch, radius,
        client_weight, constant, shuffle, seed, initial_global, initial_local, keep_path,
        participation,
    )  # fmt: skip
    settings.check(federation)
    # scipy minimises other losses than the squared one, which cannot be compiled
    by_scipy = isinstance(options, ErmRule) and settings.loss != SQUARED
    as_it_stands = by_scipy or isinstance(settings.loss, PairLoss)
    compile_ = _compiler() if compiled and not as_it_stands else _as_it_stands
    if method == "mixture":
        # All see the same samples: one of the three keeps their labels.
        shape = settings.total(federation), len(federation.clients)
        kept = {"central": np.full(shape, np.nan, np.float32)}
        experts = {
            of: _play(federation, settings.of_expert(of), compile_, kept.get(of, NOT_KEPT))
            for of in SGD_METHODS
        }
        return mix_runs(federation, settings, experts, kept["central"], compile_)
    return _play(federation, settings, compile_)


def _play(
    federation: Federation,
    settings: Settings,
    compile_: Callable[..., Any],
    labels: F32 = NOT_KEPT,
) -> Run:
    """Play a run: the same functions, compiled or not; `labels` are kept if there is room."""
    sides: SgdSides | ErmSides
    if isinstance(settings.options, ErmRule):
        sides = ErmSides(federation, settings, settings.options)
    else:
        sides = SgdSides(federation, settings, settings.options)
    rows, clients = federation.train, len(federation.clients)
    turns, total = settings.turns(federation), settings.total(federation)
    path = np.zeros((turns + 1 if settings.keep_path else 0, len(sides.begin_global)), np.float32)
    path[:1] = sides.begin_global
    deck = new_deck(
        rows.y,
        rows.row_start,
        turns,
        total,
        cycle=settings.cycle,
        shuffle=settings.shuffle,
        seed=settings.seed,
        stored=sides.stored,
        alone=sides.xl.width == 0,
        labels=labels,
    )
    flight = new_flight(sides.plan.depth, clients, settings.batch, sides.dtype, sides.samples)
    kinds = (Deck, *sides.kinds, type(flight.samples))
    play = compile_(clock.play, *kinds, allocates=sides.allocates)
    began = perf_counter()
    with np.errstate(all="ignore"):  # a run may diverge, and shuffles overflow on purpose
        play(deck, Play(sides.terms, sides.times, sides.global_, sides.local, flight), path)
        tested = None if federation.test is None else sides.test(compile_)
    seconds = perf_counter() - began
    ledger = sides.ledger(int(deck.stored_sent[0]))
    with np.errstate(invalid="ignore"):  # rounds in which all clients rest have no loss
        return Run(
            federation,
            settings,
            deck.predictions.T,
            float(deck.loss_by_round.sum() / deck.weight_by_round.sum()),
            deck.loss_by_round / deck.weight_by_round,
            deck.loss_by_client / settings.seen(federation),
            *sides.weights(),
            ledger.up,
            ledger.down,
            tested,
            seconds,
            path if settings.keep_path else None,
        )


def _compiler() -> Callable[..., Any]:
    # A compiler takes a moment to load, which the command line should not wait for.
    from fedres.core.compiled import compiled

    return compiled


def _as_it_stands(function: Any, *_: type, allocates: bool = False) -> Any:  # noqa: ARG001
    return function
