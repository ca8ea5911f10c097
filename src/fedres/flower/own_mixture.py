"""What a client mixes, each for itself: its model on all it has, the shared model alone, FedRes.

Nothing of it travels. The client's own model learns from the same rows as FedRes, what the shared
model says of a row is known on the way to what FedRes says, and the trust in each
(`fedres.core.mixture`) is a few numbers in the client's folder.
"""

from dataclasses import replace

import numpy as np

from fedres.core.losses import find_loss
from fedres.core.mixture import EXPERTS, mix, new_mixture
from fedres.core.models import LinearModel, batch_of
from fedres.core.one_against_all import OutputModels
from fedres.core.primitives import view_of
from fedres.core.sgd import Flight
from fedres.core.state_files import Arrays
from fedres.core.types import F32, F64, I64, Matrix
from fedres.core.views import beside
from fedres.flower.app_settings import AppSettings
from fedres.flower.row_by_row import learn_rows

ONE = np.ones(1, np.float32)


class OwnMixture:
    """The client's own model of all features, and how far it trusts each expert, by output."""

    def __init__(self, settings: AppSettings) -> None:
        # Alone, a client waits for nobody.
        self._rule = replace(settings.rule, alignment="arrival")
        self.columns = _only_local(settings)
        width = settings.width_global + len(self.columns)
        step = self._rule.step_of_clients
        self.alone = OutputModels(settings.outputs, width, self._rule, step)
        labels = settings.label_low, settings.label_high
        self.mixtures = [
            new_mixture(find_loss(settings.loss).number, labels, 1, EXPERTS)
            for _ in range(settings.outputs)
        ]

    def learn(self, x_global: Matrix, x_local: Matrix, flights: list[Flight], joint: F32) -> F32:
        """Learn rows that FedRes has predicted and learned; the mixed predictions of them."""
        own = view_of(beside(x_global, x_local, self.columns))
        nobody = LinearModel(0, self._rule, self._rule.step)
        nothing, terms = np.empty((joint.shape[1], 0), np.float32), self._rule.terms(ONE)
        mixed = np.empty_like(joint)
        for k, (flight, alone) in enumerate(zip(flights, self.alone.each, strict=True)):
            said = learn_rows(terms, nobody, nothing, alone.on(own), batch_of(flight.label))
            experts = np.stack([said, flight.seen, joint[k]])
            mix(self.mixtures[k], experts, flight.label, mixed[k])
        return mixed

    @property
    def trust(self) -> F64:
        """Of every output: both halves of all weight, by expert."""
        return np.stack([[one.staying[:, 0], one.moving[:, 0]] for one in self.mixtures])

    @property
    def labels(self) -> F64:
        """Of every output: how many labels there were."""
        return np.concatenate([one.labels for one in self.mixtures])

    def arrays(self) -> Arrays:
        """All that learning has changed, to be kept."""
        return {
            "alone": self.alone.weights,
            "alone squares": self.alone.squares,
            "alone reach": np.array(self.alone.reach),
            "trust": self.trust,
            "labels": self.labels,
        }

    def restore(self, arrays: Arrays) -> None:
        """Go on from what was kept; begin anew if that was of other features, or nothing."""
        if "alone" not in arrays or arrays["alone"].size != self.alone.weights.size:
            return
        self.alone.weights[:], self.alone.squares[:] = arrays["alone"], arrays["alone squares"]
        low, high = arrays["alone reach"].tolist()
        self.alone.reach = low, high
        kept = zip(self.mixtures, arrays["trust"], arrays["labels"], strict=True)
        for one, (staying, moving), labels in kept:
            one.staying[:, 0], one.moving[:, 0], one.labels[0] = staying, moving, labels


def _only_local(settings: AppSettings) -> I64:
    """The local features, by number, that are not global as well; all where nobody can tell."""
    if not settings.features:
        return np.arange(settings.width_local)
    from fedres.tables.encoder import Encoder

    return Encoder.from_dict(settings.table["encoder"]).only_local
