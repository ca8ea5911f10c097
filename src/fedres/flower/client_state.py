"""The client's side of a Flower run: a local model that survives anything, one task at a time.

Flower starts a process for every message and forgets it afterwards, so all that a client knows
is in one file (`memory`), put in place at once after every upload. From that follows

- killed at any moment, a client goes on from its last upload;
- a task delivered twice is answered twice with the same reply, and nothing changes;
- an upload whose reply was lost is sent again until the server says that it has it.
"""

import zlib
from pathlib import Path
from typing import Protocol

import numpy as np

from fedres.core import sgd
from fedres.core.feature_limit import clipped
from fedres.core.messages import MOST_ROWS, GlobalModel, Upload
from fedres.core.models import batch_of
from fedres.core.one_against_all import OutputModels
from fedres.core.primitives import view_of
from fedres.core.receipts import number_of
from fedres.core.types import F32, Matrix
from fedres.flower.app_labels import accuracy, targets, unfit
from fedres.flower.app_settings import AppSettings
from fedres.flower.memory import Memory, Unconfirmed, begin_again
from fedres.flower.row_by_row import learn_rows
from fedres.flower.wire import Reply, Sent, Task

REMEMBERED = 8  # answers kept for tasks that come again


class RowSource(Protocol):
    """A client's rows, in a fixed order."""

    @property
    def key(self) -> str:
        """Another one when what they are made from has changed; empty if nobody can tell."""
        ...

    def take(self, position: int, count: int) -> tuple[Matrix, Matrix, F32]:
        """Up to `count` samples from that position on: x_global, x_local, y; none at the end."""
        ...


class ClientState:
    """A client between two tasks; state that is found in its folder is gone on from."""

    def __init__(self, settings: AppSettings, name: str, folder: Path, source: RowSource) -> None:
        self.settings, self.folder, self.source = settings, folder, source
        self.memory = Memory.load(folder, name, settings)

    def work(self, task: Task) -> Reply:
        """Answer a task: learn from the next batch, keep it all, and say what to send."""
        if task.task in self.memory.answered:
            return self._reply(self.memory.answered[task.task])
        if task.session == self.memory.misfit[0]:
            raise ValueError(
                f"the state in {self.folder} is of this run, and has {self.memory.misfit[1]}: go "
                f"back to the local columns that it began with, or {begin_again(self.folder)}"
            )
        model = self._unpacked(task.model)
        if task.session != self.memory.session:
            # Models of two trainings do not add up.
            self.memory = Memory.blank(self.memory.client, task.session, self.settings)
        memory = self.memory
        # Of a server that was put back from a backup, the newest model has a lower version.
        if (task.started, model.version) >= (memory.started, memory.global_.version):
            memory.started, memory.global_ = task.started, model
        self._confirm(task)
        numbers = [k for k, one in memory.outbox.items() if one.task not in task.waiting]
        if not task.last:
            numbers += self._learn()
        for number in numbers:
            memory.outbox[number].task = task.task
        memory.answered[task.task] = numbers
        for old in list(memory.answered)[:-REMEMBERED]:
            del memory.answered[old]
        memory.save(self.folder)
        return self._reply(numbers)

    def _confirm(self, task: Task) -> None:
        """Forget the uploads that the server has; where clients wait for that, learn from them."""
        memory = self.memory
        for number in [k for k in memory.outbox if k < task.have or k in task.also]:
            del memory.outbox[number]
        for number in [k for k in memory.waiting if k < task.have or k in task.also]:
            self._learn_waiting(*memory.waiting.pop(number))
        # A client that lost its state must not use numbers again: the server would drop them.
        memory.next = max([memory.next, task.have, *(1 + number for number in task.also)])

    def _learn(self) -> list[int]:
        """Predict and learn from the next batch; the number of its upload, if there is one."""
        memory, rule = self.memory, self.settings.rule
        local, model = memory.local, memory.global_
        self._check_trail()
        x_global, x_local, y = self._samples()
        memory.done = len(y) == 0
        if memory.done:
            return []
        wanted, own = targets(self.settings, y), view_of(x_local)
        flights = [batch_of(each) for each in wanted]
        joint = np.stack(
            [
                learn_rows(self._terms, there, x_global, here.on(own), flight)
                for there, here, flight in zip(
                    self._global_models().each, local.each, flights, strict=True
                )
            ]
        )
        if memory.own is not None:
            memory.own.learn(x_global, x_local, flights, joint)
        if rule.waits:
            slopes = np.stack([flight.slope for flight in flights])
            memory.waiting[memory.next] = memory.position, slopes
        bits, span = rule.residual_bits if local.width else 0, rule.residual_span
        sent = (
            np.stack([flight.sent for flight in flights], axis=1)
            if bits
            else np.zeros_like(joint.T)
        )
        number, client = memory.next, number_of(memory.client)
        upload = Upload(client, number, model.version, x_global, sent, y, bits, span)
        loss = float(rule.loss.of_sum.value(joint, wanted).mean())
        right = accuracy(self.settings, joint, y)
        memory.outbox[number] = Unconfirmed("", loss, upload.pack(), right)
        memory.losses += loss * len(y)
        if memory.trail_rows == memory.position:
            memory.trail = _trail(x_global, x_local, y, memory.trail)
            memory.trail_rows += len(y)
        memory.position += len(y)
        memory.next += 1
        return [number]

    def _check_trail(self) -> None:
        """Of a table that has changed, compare the rows that were used before."""
        memory, key, trail, at = self.memory, self.source.key, 0, 0
        if key == memory.source:
            return
        while memory.source and at < memory.trail_rows:
            rows = min(MOST_ROWS, memory.trail_rows - at)
            x_global, x_local, y = self.source.take(at, rows)
            trail = _trail(clipped(x_global, self.settings.feature_limit), x_local, y, trail)
            at += rows
        if memory.source and trail != memory.trail:
            raise ValueError(
                f"the first {memory.trail_rows} rows of the table, which were used before, are no "
                f"longer the same: add new rows at the end, or {begin_again(self.folder)}"
            )
        memory.source = key

    def _learn_waiting(self, position: int, slopes: F32) -> None:
        """The local steps on rows that the server has used by now."""
        x_global, x_local, y = self.source.take(position, slopes.shape[1])
        seen, own = view_of(clipped(x_global, self.settings.feature_limit)), view_of(x_local)
        models = zip(self._global_models().each, self.memory.local.each, strict=True)
        for k, (global_, local) in enumerate(models):
            flight = batch_of(targets(self.settings, y)[k])
            flight.slope[:] = slopes[k]
            for c in range(len(y)):
                message = sgd.Message(0, flight, c, c + 1)
                sgd.learn_waiting(local.on(own), self._terms, global_.on(seen), 0, message)

    def _global_models(self) -> OutputModels:
        held, settings = self.memory.global_, self.settings
        rule = settings.rule
        models = OutputModels(settings.outputs, settings.width_global, rule, rule.step)
        models.weights[:] = held.weights
        models.reach = held.low, held.high
        return models

    @property
    def _terms(self) -> sgd.Terms:
        return self.settings.rule.terms(np.ones(1, np.float32))

    def _samples(self) -> tuple[Matrix, Matrix, F32]:
        """The next batch, checked as the server will."""
        settings = self.settings
        x_global, x_local, y = self.source.take(self.memory.position, settings.rows_per_message)
        for name, x, width in (
            ("global", x_global, settings.width_global),
            ("local", x_local, settings.width_local),
        ):
            if x.shape != (len(y), width):
                raise ValueError(
                    f"the {name} features have the shape {x.shape}, and the settings say "
                    f"({len(y)}, {width}): run the app that was made for this data"
                )
            if not np.isfinite(x if isinstance(x, np.ndarray) else x.data).all():
                raise ValueError(f"a {name} feature is not finite: remove or fill in such rows")
        settings.rule.loss.check(targets(settings, y))
        if (wrong := unfit(settings, y)).size:
            low, high = settings.label_low, settings.label_high
            raise ValueError(
                f"a label is {wrong[0]:g}, and labels of this run are {low:g} to {high:g}: "
                "change label-low and label-high in the app"
            )
        x_global = clipped(x_global, settings.feature_limit)
        if not isinstance(x_global, np.ndarray):
            x_global.sum_duplicates()  # and in rising order, which the server insists on
        return x_global, x_local, y

    def _reply(self, numbers: list[int]) -> Reply:
        outbox = self.memory.outbox
        kept = ((k, outbox[k]) for k in numbers if k in outbox)
        sent = tuple(Sent(k, one.loss, one.upload, one.accuracy) for k, one in kept)
        first = min(outbox, default=self.memory.next)
        return Reply(self.memory.client, sent, self.memory.done, first)

    def _unpacked(self, packed: bytes) -> GlobalModel:
        model = GlobalModel.unpack(packed, 0)
        expected = self.memory.global_.weights.size
        if model.weights.size != expected:
            raise ValueError(
                f"the server sent {model.weights.size} weights, and the settings say {expected}: "
                "run the same app on the server and on all clients"
            )
        return model


def _trail(x_global: Matrix, x_local: Matrix, y: F32, before: int) -> int:
    """A checksum that goes on from the rows before, however rows are cut into batches."""
    sums = (np.asarray(x.sum(axis=1), np.float32).ravel() for x in (x_global, x_local))
    return zlib.crc32(np.column_stack([y, *sums]).tobytes(), before)
