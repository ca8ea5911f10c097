"""A message of many rows worked through one after the other, by the functions of the core.

A client's process lives for one message, and loading compiled code would take it longer than these
loops: it calls them as they stand. The server's process lasts: it has `apply_rows` compiled.
"""

from typing import Any

import numpy as np

from fedres.core.losses import clip
from fedres.core.models import LinearModel, linear
from fedres.core.sgd import Flight, Linear, Message, Terms, apply, evaluate, learn, send
from fedres.core.types import F32, Matrix


def learn_rows(
    terms: Terms, global_: LinearModel, x_global: Matrix, local: Any, flight: Flight
) -> F32:
    """Predict and learn each row at the local model that the row before left behind.

    Returns the joint prediction of each row, clipped, just before its label was seen; what is to
    be sent of it is in ``flight.sent`` afterwards.
    """
    joint = np.empty_like(flight.label)
    # The global model does not change on the way.
    flight.seen[:] = linear(x_global, global_.weights, global_.constant)
    alone = local.models.size[0] == 1
    for c in range(len(joint)):
        message = Message(0, flight, c, c + 1)
        evaluate(local, 0, message, flight.own)
        send(terms, message)
        # Without a local model it is the server that knows the range of labels.
        models = global_.models if alone else local.models
        joint[c] = clip(flight.seen[c] + flight.own[c], models.low[0], models.high[0])
        learn(local, terms, message)
    return joint


def apply_rows(terms: Terms, global_: Linear, flight: Flight) -> None:
    """Let the server learn each row at the model that the row before left behind."""
    for c in range(len(flight.label)):
        apply(terms, global_, 0, 0, Message(0, flight, c, c + 1))
