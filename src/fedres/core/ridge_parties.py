"""FedRes by ridge regression as two parties that exchange messages.

The algorithm is that of `fedres.core.ridge`; here is who keeps what between two messages. Both are
used as the parties of FedRes.SGD are (`fedres.core.parties`), and send the same kinds of messages:
an upload's row has one feature more, what is left of the constant, and a published global model
has Q behind its weights.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Any

import numpy as np

from fedres.core.messages import GlobalModel, Upload
from fedres.core.models import batch_of, linear, whole
from fedres.core.primitives import view_of
from fedres.core.ridge import Gaussian, Ridge, absorb, deviate, hold, new_sides, publish, take_in
from fedres.core.types import F32, F64, Matrix

WIDEST = 2000  # features of one side whose covariances are kept
NO_VIEW = view_of(np.empty((0, 0), np.float32))


class Known:
    """A model, and what is known of its weights, the constant's last.

    Parameters
    ----------
    side
        That of a federation of one client.
    kept
        What learning changes of it beside the weights.
    """

    def __init__(self, side: Gaussian, *kept: str) -> None:
        self.side, self._kept = side, kept

    @property
    def width(self) -> int:
        """Number of features."""
        return max(int(self.side.mean.shape[1]) - 1, 0)

    @property
    def weights(self) -> F32:
        """What predicts; a view that can be written to."""
        return self.side.models.weights[: self.side.mean.shape[1]]

    def state(self) -> dict[str, Any]:
        """All that learning has changed, to be kept."""
        return {"weights": self.weights, **{name: getattr(self.side, name) for name in self._kept}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that was kept."""
        for name, now in self.state().items():
            now[...] = state[name]


def _new_models(steps: tuple[Ridge, Ridge], width_global: int, width_local: int) -> Any:
    if not steps[0].diagonal and (widest := max(width_global, width_local)) > WIDEST:
        raise ValueError(
            f"{widest} features have {widest**2:,} covariances: use Ridge(diagonal=True), or at "
            f"most {WIDEST} features"
        )
    views = [
        NO_VIEW._replace(width=np.array([width], np.int64)) for width in (width_global, width_local)
    ]
    return new_sides((views[0], views[1]), steps, 1, constant=True)


class RidgeClient:
    """The local model under any global model, and the newest global model it was sent.

    Parameters
    ----------
    step
        The penalty on local weights.
    width_global, width_local
        Number of features of each view; 0 for no model on that side.
    client
        Its number, in its uploads.

    Examples
    --------
    >>> client, server = RidgeClient(Ridge(), 2, 1), RidgeServer(Ridge(), 2)
    >>> x_global, x_local = np.float32([[1.0, 0.0]]), np.float32([[2.0]])
    >>> for _ in range(20):
    ...     server.apply(client.observe(x_global, x_local, np.float32([1.0])))
    ...     client.refresh(server.publish())
    >>> round(float(client.predict(x_global, x_local)[0]), 2)
    0.99
    """

    def __init__(self, step: Ridge, width_global: int, width_local: int, client: int = 0) -> None:
        global_, local = _new_models((step, step), width_global, width_local)
        self.step, self.client, self.round = step, client, 0
        self.epoch = self.version = 0  # of the newest global model
        self.global_ = Known(global_, "published")
        self.local = Known(local, "mean", "covariance", "response")
        self._bits = 32 if width_local else 0

    @property
    def upload_width(self) -> int:
        """How many features the rows of uploads have."""
        return len(self.global_.weights)

    @staticmethod
    def features_of(step: Ridge, numbers: int) -> int:
        """How many features a global model has that is published in so many numbers."""
        return max((numbers // 2 if step.diagonal else (isqrt(4 * numbers + 1) - 1) // 2) - 1, 0)

    def refresh(self, model: GlobalModel) -> None:
        """Take in a published global model, in any order."""
        if (model.epoch, model.version) > (self.epoch, self.version):
            self.epoch, self.version = model.epoch, model.version
            size = len(self.global_.weights)
            self.global_.weights[:] = model.weights[:size]
            told = self.global_.side.published[0]
            told[:] = model.weights[size:].reshape(told.shape)
            self._settle()

    def predict(self, x_global: Matrix, x_local: Matrix) -> F32:
        """f(x^g; w^g) + f(x^l; w_i); learns nothing."""
        both = zip((x_global, x_local), (self.global_.weights, self.local.weights), strict=True)
        seen, own = (linear(x, w, constant=len(w) > 0) for x, w in both)
        return seen + own

    def errors(self, x_global: Matrix, x_local: Matrix) -> F64:
        """The standard errors of predictions, in units of the noise."""
        rows = x_global.shape[0]
        flight, out = batch_of(np.zeros(rows, np.float32)), np.empty(rows)
        deviate(self._side(x_global, x_local, 0), whole(flight), out)
        return out

    def observe(self, x_global: Matrix, x_local: Matrix, y: F32) -> Upload:
        """Learn from samples, and send them."""
        side, flight = self._side(x_global, x_local, len(y)), batch_of(y)
        flight.seen[:] = linear(x_global, self.global_.weights, len(self.global_.weights) > 0)
        for c in range(len(y)):
            absorb(side, 0, flight, c)
        self._settle()
        upload = Upload(
            self.client, self.round, self.version, side.sent[:, :-2].copy(),
            side.sent[:, -2].copy(), side.sent[:, -1].copy(), self._bits,
        )  # fmt: skip
        self.round += 1
        return upload

    def _side(self, x_global: Matrix, x_local: Matrix, messages: int) -> Gaussian:
        sent = np.zeros((messages, self.upload_width + 2), np.float32)
        side = self.local.side._replace(x=view_of(x_local), z=view_of(x_global), sent=sent)
        return side._replace(published=self.global_.side.published)

    def _settle(self) -> None:
        hold(self.local.side, 0, self.global_.side.models, 0)


class RidgeServer:
    """The global model.

    Parameters
    ----------
    step
        The penalty on global weights.
    width
        Number of global features.
    """

    def __init__(self, step: Ridge, width: int) -> None:
        self.step = step
        self.global_ = Known(_new_models((step, step), width, 0)[0], "mean", "covariance")
        self.epoch = self.version = 0

    def check_width(self, upload: Upload) -> None:
        """Refuse an upload with another number of features."""
        if (width := upload.x_global.shape[1]) != len(self.global_.weights):
            raise ValueError(
                f"client {upload.client} sent {max(width - 1, 0)} global features, this server was "
                f"made for {self.global_.width}: use the same on both sides"
            )

    def apply(self, upload: Upload) -> None:
        """Work on one upload."""
        self.check_width(upload)
        for row, residual, y in zip(upload.x_global, upload.residual, upload.y, strict=True):
            take_in(self.global_.side, 0, np.append(row, [residual, y]))

    def publish(self) -> GlobalModel:
        """Close the round: the next version of the global model."""
        self.version += 1
        publish(self.global_.side, 0)
        return self.current()

    def current(self) -> GlobalModel:
        """The newest version of the global model."""
        told = self.global_.weights, self.global_.side.published[0].ravel()
        return GlobalModel(self.version, np.concatenate(told), -np.inf, np.inf, {}, self.epoch)
