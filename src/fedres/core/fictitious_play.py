"""Fictitious play (Agarwal, Langford and Wei, 2020, the update rules after Theorem 1).

    client   w_{i,t+1} = argmin_w  sum_{s <= t} l_{i,s}(w^g_{s-beta}, w)
             sends Z_{i,t} = (x^g, f(x^l; w_{i,t}), y)
    server   w^g_{t+1} = argmin_w  sum_i sum_{s <= t-alpha} l_{i,s}(w, w_{i,s})

Unlike FedRes.ERM, each sample keeps the other side's prediction of *its own* round. So residuals
are all that has to be sent, but both sides remember each other's old mistakes, and lock each
other: appendix C.
"""

import numpy as np

from fedres.core import erm
from fedres.core.messages import Upload, quantise
from fedres.core.models import linear
from fedres.core.types import F32, F64, Matrix

# A sample's offset enters a problem as one feature of the other side, whose weight is 1.
_ONE = np.ones(1)


class Client(erm.Client):
    """The client of fictitious play.

    Parameters are those of `fedres.core.sgd.Client`.

    Examples
    --------
    >>> from fedres.core.rule import Rule
    >>> rule = Rule(constant=False)
    >>> client, server = Client(rule, 1, 1), Server(rule, 1)
    >>> one, y = np.float32([[1.0]]), np.float32([1.0])
    >>> for _ in range(3):  # both make up for the same error, then remember having been right
    ...     print(client.predict(one, one))
    ...     server.apply(client.observe(one, one, y))
    ...     client.refresh(server.publish())
    [0.]
    [2.]
    [1.]
    """

    def observe(self, x_global: Matrix, x_local: Matrix, y: F32) -> Upload:  # type: ignore[override]
        """Take in the samples of a round; what to send."""
        self.settle()
        residual: F32 = linear(x_local, self.weights, self.constants[1])
        bits, span = (self.rule.residual_bits if self.weights.size else 0), self.rule.residual_span
        sent = quantise(residual, bits, span) if bits else np.zeros_like(residual)
        version = self.global_.version
        upload = Upload(self.client, self.round, version, x_global, sent, y, bits, span)
        seen: F64 = linear(x_global, self.global_.weights, self.constants[0], np.float64)
        self._problem.add(x_local, seen[:, None], y, self.weight, 0)
        self.round += 1
        return upload

    def _others(self) -> dict[int, F64]:
        return {0: _ONE}


class Server(erm.Server):
    """The server of fictitious play.

    Parameters are those of `fedres.core.sgd.Server`.
    """

    def apply(self, upload: Upload) -> None:  # type: ignore[override]
        """Take in samples with the residuals they were sent with."""
        residual = upload.residual.astype(np.float64)[:, None]
        weight = self._weights.get(upload.client, 1.0)
        self._problem.add(upload.x_global, residual, upload.y, weight, 0)
        self._locals[0] = (upload.round, _ONE)
