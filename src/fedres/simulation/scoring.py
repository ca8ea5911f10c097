"""Final models on rows, and the columns that each client's rows have."""

from fedres.core.primitives import View, predict_row
from fedres.core.sgd import Linear
from fedres.core.types import F32, I32, I64


def joint(global_: Linear, version: int, local: Linear, row_start: I64, out: F32) -> None:
    """The sum of both models on every row, not clipped."""
    for i in range(len(row_start) - 1):
        for row in range(row_start[i], row_start[i + 1]):
            out[row] = predict_row(global_.models, version, global_.x, i, row, 0) + predict_row(
                local.models, i, local.x, i, row, 0
            )


def number_columns(
    view: View, row_start: I64, width: I64, stamp: I32, number: I32, indices: I32, columns: I32
) -> None:
    """Number each client's columns anew, 0, 1, ... as they come: models need only those.

    `stamp` (all -1) and `number` are scratch as wide as the view. On return `width` holds how
    many columns each client has, `columns` which, client after client.
    """
    total = 0
    for i in range(len(row_start) - 1):
        count = 0
        for e in range(view.indptr[row_start[i]], view.indptr[row_start[i + 1]]):
            j = view.indices[e]
            if stamp[j] != i:
                stamp[j] = i
                number[j] = count
                columns[total + count] = j
                count += 1
            indices[e] = number[j]
        width[i] = count
        total += count
