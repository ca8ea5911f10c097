"""The global model at the server: what uploads do to it, and its part of the checkpoint."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedres.core.messages import GlobalModel, Upload
from fedres.core.models import batch_of, linear
from fedres.core.one_against_all import OutputModels
from fedres.core.primitives import view_of
from fedres.core.sgd import Linear, Many
from fedres.core.types import F32
from fedres.flower.app_labels import targets
from fedres.flower.app_settings import AppSettings
from fedres.flower.checks import RefusedError
from fedres.flower.jury import Jury
from fedres.flower.members import Member
from fedres.flower.row_by_row import apply_rows


class GlobalSide:
    """The global model, the old ones that uploads may refer to, and the jury."""

    def __init__(self, settings: AppSettings) -> None:
        # Compiled code takes a moment to load, which a client need not wait for.
        from fedres.core.compiled import compiled

        self._learn = compiled(apply_rows, Linear, Many)
        self.settings = settings
        rule = settings.rule
        self.model = OutputModels(settings.outputs, settings.width_global, rule, rule.step)
        self.version = 0
        self.jury = self._new_jury()
        self._old = {0: self.model.weights.copy()}
        self._kept = -1  # the newest version that the checkpoint holds
        self._heard: set[str] = set()  # whose rows there are newer than in the checkpoint

    def _new_jury(self) -> Jury:
        return Jury(self.settings.rule.loss.of_sum, partial(targets, self.settings))

    def packed(self) -> bytes:
        """The newest model, as it is sent."""
        return GlobalModel(self.version, self.model.weights, *self.model.reach).pack(0)

    def apply(self, client: str, members: Mapping[str, Member], upload: Upload) -> None:
        """Step along the rows, one after the other; nothing changes if that is impossible."""
        model, rule = self.model, self.settings.rule
        if rule.looks_back and upload.version not in self._old:
            raise RefusedError("model too old")
        before = model.weights.copy(), model.squares.copy(), model.reach
        judges = self.jury if self.settings.jury != "off" else self._new_jury()
        try:
            share = judges.apply(model, client, members, upload, lambda: self._step(upload))
            judges.hear(client, upload)
        except BaseException:
            model.weights[:], model.squares[:], model.reach = before
            raise
        self._heard.add(client)
        members[client].held_back += share < 1
        self.version += 1
        if rule.looks_back:
            self._old[self.version] = model.weights.copy()
            self._old.pop(self.version - self.settings.history - 1, None)

    def _step(self, upload: Upload) -> None:
        rule, x, wanted = self.settings.rule, upload.x_global, targets(self.settings, upload.y)
        terms, view = rule.terms(np.ones(1, np.float32)), view_of(x)
        residual = upload.residual.reshape(len(upload.y), -1)
        for k, model in enumerate(self.model.each):
            flight = batch_of(wanted[k])
            flight.sent[:] = residual[:, k]
            if rule.looks_back:
                old = self._old[upload.version].reshape(len(wanted), -1)[k]
                flight.seen[:] = linear(x, old, model.constant)
            self._learn(terms, model.on(view), flight)

    def forget(self, client: str) -> None:
        """Let a client that is ignored judge no more."""
        if self.jury.heard.pop(client, None):
            self._heard.add(client)

    def facts(self) -> dict[str, Any]:
        """What the checkpoint says of it beside arrays."""
        return {
            "version": self.version,
            "range": list(self.model.reach),
            "jury_scale": self.jury.scale,
        }

    def arrays(self) -> dict[str, F32]:
        """The newest model."""
        return {"weights": self.model.weights, "squares": self.model.squares}

    def news(self) -> dict[str, Any]:
        """Rows of judges and old models since the last time, and which old ones are needed."""
        rows = {name: self._packed_rows(name) for name in self._heard}
        old, oldest = {}, 0
        if self.settings.rule.looks_back:
            old = {version: self._old[version] for version in self._old if version > self._kept}
            oldest = min(self._old)
        return {"jury": rows, "old": old, "oldest": oldest}

    def saved(self) -> None:
        """All of it is on the disk."""
        self._heard, self._kept = set(), self.version

    def load(
        self,
        facts: Mapping[str, Any],
        arrays: Mapping[str, F32],
        old: dict[int, F32],
        rows: Mapping[str, bytes],
    ) -> None:
        """Go on from a checkpoint."""
        model = self.model
        if arrays["weights"].shape != model.weights.shape:
            raise ValueError(
                f"the checkpoint has {arrays['weights'].size} weights, and the settings say "
                f"{model.weights.size}: resume with the settings it began with"
            )
        model.weights[:], model.squares[:] = arrays["weights"], arrays["squares"]
        model.reach = tuple(facts["range"])
        self.version = self._kept = facts["version"]
        self._old = old or self._old
        self.jury.scale = facts["jury_scale"]
        for name, packed in rows.items():
            settings = self.settings
            rows_of = Upload.unpack(packed, settings.width_global, outputs=settings.outputs)
            self.jury.hear(name, rows_of)

    def _packed_rows(self, client: str) -> bytes:
        """The rows that a client judges others by; none where it is no longer among the judges."""
        rows = self.jury.heard.get(client)
        return Upload(0, 0, 0, *rows).pack() if rows else b""
