"""Runs of FedRes.ERM and fictitious play with the squared loss."""

from time import perf_counter

import numpy as np

from fedres.core.erm import with_constant
from fedres.core.schedule import plan
from fedres.core.types import F32, F64, I64
from fedres.core.views import View, client_rows, whole
from fedres.simulation.federation import Federation, Rows
from fedres.simulation.run import LocalWeights, Run
from fedres.simulation.settings import Settings


def simulate_erm(federation: Federation, settings: Settings) -> Run:
    """Play a run of either method, compiled."""
    from fedres.simulation import erm_kernels
    from fedres.simulation.engine import count_bytes, finish, row_order

    rows, clients, batch = federation.train, len(federation.clients), settings.batch
    turns, total = settings.turns(federation), settings.total(federation)
    times = plan(
        clients,
        turns,
        batch,
        settings.delay,
        False,
        None if settings.cycle else (rows.counts, settings.passes),
        settings.seed,
    )
    fictitious = settings.method == "fictitious-play"
    span = settings.rule(federation).residual_span
    xg, xl = _padded(rows.x_global, rows, settings), _padded(rows.x_local, rows, settings)
    sg, sl = xg.shape[1], xl.shape[1]
    initial_global, initial_local = settings.initial(federation)
    history, depth = times.oldest + 1, times.longest + 1
    wg, wl = np.zeros((history, sg)), np.zeros((clients, sl))
    wg[0] = initial_global
    width, constant = rows.x_local.width, (rows.x_local.width > 0) & settings.constant
    for i, weights in enumerate(initial_local):
        _put(wl[i], weights, int(width[i]))
    ridge = settings.ridge

    def sums(size: int, other: int, each: tuple[int, ...], linked: int) -> erm_kernels.Sums:
        return erm_kernels.Sums(
            np.tile(ridge * np.eye(size), (*each, 1, 1)),
            np.zeros((*each, size)),
            np.zeros((0 if fictitious else linked, size, other)),
        )

    record = erm_kernels.ErmRecord(
        np.full((total, clients), np.nan, np.float32),
        np.zeros(turns),
        np.zeros(turns),
        np.zeros(clients),
        np.zeros((turns + 1 if settings.keep_path else 0, sg)),
        np.zeros(1, np.int64),
    )
    sent = (rows.x_global,) if fictitious else (rows.x_global, rows.x_local)
    packed = any(view.sparse for view in sent)
    if settings.keep_path:
        record.path[0] = wg[0]
    began = perf_counter()
    slot = erm_kernels.play_erm(
        erm_kernels.ErmRules(
            fictitious,
            np.inf if settings.radius is None else settings.radius,
            settings.solve_every,
            batch,
            settings.cycle,
            total,
            settings.shuffle,
            settings.seed,
            settings.residual_bits if fictitious else 32,
            np.float32(span[0]),
            np.float32(span[1]),
        ),
        xg,
        xl,
        np.sum([_stored(view, rows, packed) for view in sent], axis=0),
        rows.y,
        rows.row_start,
        row_order(rows),
        *np.zeros((2, clients), np.int64),
        times.active,
        times.due_server,
        times.down,
        times.version,
        settings.weights(federation),
        sums(sl, sg, (clients,), clients),
        sums(sg, sl, (), clients),
        wg,
        wl,
        np.zeros((depth, clients, sl)),
        np.zeros((depth, clients, batch), np.int32),
        np.zeros((depth, clients, batch)),
        np.zeros((depth, clients), np.int32),
        np.full(clients, -1, np.int64),
        np.zeros((clients, sl)),
        record,
    )
    seconds = perf_counter() - began
    w_local = np.concatenate(
        [_take(wl[i], int(width[i]), bool(constant[i])) for i in range(clients)]
    )
    sizes = width + constant
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    tested = None
    if federation.test is not None:
        test = federation.test
        x_test = (_padded(view, test, settings) for view in (test.x_global, test.x_local))
        seen, residual = x_test
        owner = np.repeat(np.arange(clients), test.counts)
        tested = (seen @ wg[slot] + (residual * wl[owner]).sum(axis=1)).astype(np.float32)
    return finish(
        federation,
        settings,
        record.predictions.T,
        record.loss_by_round,
        record.weight_by_round,
        record.loss_by_client,
        wg[slot].astype(np.float32),
        LocalWeights(
            w_local.astype(np.float32), start, width, constant.astype(np.float32), None, width
        ),
        count_bytes(
            federation,
            settings,
            np.where(width > 0, settings.residual_bits if fictitious else 0, 0),
            packed,
            int(record.features_sent[0]),
            # ERM sends its local model with every upload
            0 if fictitious else 4 * sizes,
        ),
        tested,
        seconds,
        record.path.astype(np.float32) if settings.keep_path else None,
    )


def _padded(view: View, rows: Rows, settings: Settings) -> F64:
    """All rows, dense, as wide as the widest client, the constant last."""
    clients = len(rows.row_start) - 1
    most = int(view.width.max())
    has = settings.constant and most > 0
    matrix = whole(view)
    if matrix is not None:
        return np.ascontiguousarray(with_constant(matrix, has))
    padded = np.zeros((int(rows.row_start[-1]), most + has))
    for i in range(clients):
        part, width = slice(rows.row_start[i], rows.row_start[i + 1]), int(view.width[i])
        padded[part, :width] = with_constant(client_rows(view, rows.row_start, i), False)
        padded[part, most:] = width > 0
    return padded


def _put(row: F64, weights: F32, width: int) -> None:
    row[:width] = weights[:width]
    if len(weights) > width:
        row[-1] = weights[-1]


def _take(row: F64, width: int, constant: bool) -> F64:
    return np.append(row[:width], row[-1]) if constant else row[:width]


def _stored(view: View, rows: Rows, packed: bool) -> I64:
    """Values that each row takes in a message: all of them, or those that are not zero."""
    width = np.repeat(view.width, rows.counts)
    if view.sparse:
        width = np.diff(view.indptr)
    elif packed:
        starts = np.concatenate([[0], np.cumsum(width)])
        width = np.diff(np.concatenate([[0], np.cumsum(view.values != 0)])[starts])
    return width
