"""What a Flower run agrees on: the settings in an app's pyproject.toml."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from fedres.core.losses import find_loss
from fedres.core.messages import MOST_ROWS, check_bits, upload_bytes
from fedres.core.rule import Rule
from fedres.core.sgd import ALIGNMENTS
from fedres.core.steps import Adaptive
from fedres.flower.jury import JURIES
from fedres.flower.log import check_level

MOST_CLASSES = 1000
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclass(frozen=True)
class AppSettings:
    """Settings of a run, the same on the server and on every client.

    Examples
    --------
    >>> AppSettings.from_config({"width-global": 3, "width-local": 2}).rows_per_message
    1000
    """

    width_global: int  # number of features of each view
    width_local: int
    # JSON: the names of a table's ``columns``, and the ``encoder`` that makes features of them;
    # empty where samples come as numbers already.
    features: str = ""
    label: str = "y"  # column of a table that holds the label
    # JSON: the names of all classes; empty where labels are numbers. Two are -1 and 1 to one model,
    # of more each has a model of its own, against all others.
    classes: str = ""
    label_mean: float = 0.0  # a label y that is a number is (y - mean) / scale to the models
    label_scale: float = 1.0
    client_column: str = ""  # names the client, where one table holds many
    time_column: str = ""  # tells when a row was made: rows are then taken in that order
    # Where nodes that name no data of their own find it: a table or "digits". Only nodes on the
    # server's machine share its files, as those of Flower's simulation runtime do.
    data: str = ""
    loss: str = "squared"  # this and the next as in `fedres.core.rule.Rule`; steps are adaptive
    eta: float = 0.5
    alignment: str = "arrival"
    radius: float = 100.0
    residual_bits: int = 32
    # Whether each client mixes FedRes with a model of its own and the shared one, see
    # `fedres.flower.own_mixture`: what it leaves behind then predicts so. Nothing of it is sent.
    mix: bool = False
    label_low: float = -1.0  # range of labels as the models see them; others are refused
    label_high: float = 1.0
    feature_limit: float = 10.0  # clients clip features to this size; larger ones are refused
    rows_per_message: int = 1000  # models learn from them one by one
    passes: int = 1  # how often a client goes through its rows; 0 for as long as the run lasts
    # When to stop, 0 for never: after so many rounds (a round is an upload from every client there
    # is), so many seconds, or so many rounds without a lower loss.
    rounds: int = 20
    seconds: int = 0
    patience: int = 0
    # A client that was not there for so many seconds is waited for no more: the run ends when all
    # others are done. If it comes back before, it goes on.
    absent_after: int = 600
    # Whether a client's name belongs for good to the node that used it first. Not for nodes
    # without keys, which Flower gives another id each time they start: there a name is free again
    # when its node is gone.
    bind_names: bool = True
    refusals: int = 20  # after so many refused uploads a client is ignored
    # How uploads that do harm to the other clients are held back: see `fedres.flower.jury`.
    jury: str = "own-history"
    history: int = 1000  # old global models, for the alignments other than ``arrival``
    folder: str = "run"  # on the server: checkpoint, log, model and report
    log_level: str = "INFO"  # what the logs leave out: see `fedres.flower.log`
    resume: bool = False  # whether to go on from the checkpoint in that folder

    def __post_init__(self) -> None:
        find_loss(self.loss)
        check_bits(self.residual_bits)
        if self.alignment not in ALIGNMENTS:
            raise ValueError(
                f"alignment must be one of {', '.join(ALIGNMENTS)}, not {self.alignment!r}"
            )
        if self.classes and len(self.class_names) > 2 and self.loss != "logistic":
            raise ValueError(
                f"{len(self.class_names)} classes are told apart by the logistic loss, not by "
                f"loss={self.loss!r}"
            )
        check_level(self.log_level)
        if self.jury not in JURIES:
            raise ValueError(f"jury must be one of {', '.join(JURIES)}, not {self.jury!r}")
        if not 1 <= self.rows_per_message <= MOST_ROWS:
            raise ValueError(
                f"rows-per-message must be 1 to {MOST_ROWS}, not {self.rows_per_message}"
            )
        if not self.label_low < self.label_high:
            raise ValueError(
                f"label-low must be less than label-high, not {self.label_low:g} and "
                f"{self.label_high:g}"
            )
        for name in (
            "eta",
            "radius",
            "feature_limit",
            "label_scale",
            "refusals",
            "history",
            "absent_after",
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"{_dashed(name)} must be positive, not {getattr(self, name)}")
        for name in ("width_global", "width_local", "passes", "rounds", "seconds", "patience"):
            if getattr(self, name) < 0:
                raise ValueError(f"{_dashed(name)} must not be negative: {getattr(self, name)}")
        if not (self.rounds or self.seconds or self.patience or self.passes):
            raise ValueError("the run would never stop: set rounds, seconds, patience or passes")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "AppSettings":
        """Read a run's configuration, whose names have dashes."""
        known = {_dashed(field.name): field for field in fields(cls)}
        if unknown := sorted(set(config) - set(known)):
            raise ValueError(f"unknown setting {unknown[0]!r}: the settings are {', '.join(known)}")
        values = {}
        for name, value in config.items():
            wanted: Any = known[name].type
            if type(value) is not wanted and (wanted, type(value)) != (float, int):
                raise ValueError(f"setting {name} must be {WORDS[wanted]}, not {value!r}")
            values[known[name].name] = wanted(value)
        if missing := {"width_global", "width_local"} - set(values):
            raise ValueError(f"setting {_dashed(min(missing))} is missing: add it to the app")
        return cls(**values)

    def to_config(self) -> dict[str, Any]:
        """The settings under the names that pyproject.toml has."""
        return {_dashed(field.name): getattr(self, field.name) for field in fields(self)}

    @cached_property
    def rule(self) -> Rule:
        """The arithmetic that follows from them."""
        loss = find_loss(self.loss)
        reach = self.label_high - self.label_low
        return Rule(
            Adaptive(self.eta),
            loss,
            self.alignment,  # type: ignore[arg-type]
            radius=self.radius,
            residual_bits=self.residual_bits,
            # Few-bit residuals cover twice the range of the labels, as in simulations.
            residual_span=loss.residuals
            or (self.label_low - reach / 2, self.label_high + reach / 2),
        )

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """All classes; none where labels are numbers."""
        try:
            names = json.loads(self.classes or "[]")
        except ValueError:
            names = None
        fine = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not fine or (self.classes and not 2 <= len(set(names)) == len(names) <= MOST_CLASSES):
            raise ValueError(
                f"classes must be a JSON list of 2 to {MOST_CLASSES} different texts, not "
                f"{self.classes!r}"
            )
        return tuple(names)

    @property
    def outputs(self) -> int:
        """How many models there are side by side: one a class, where there are more than two."""
        return len(self.class_names) if len(self.class_names) > 2 else 1

    @property
    def table(self) -> dict[str, Any]:
        """What `features` says of tables."""
        if not self.features:
            raise ValueError(
                "the app does not say what the columns of a table mean: make it with "
                "`fedres flower init --like`"
            )
        described: dict[str, Any] = json.loads(self.features)
        return described

    @property
    def largest_upload(self) -> int:
        """Bytes that no honest upload exceeds."""
        rows = self.rows_per_message
        return int(upload_bytes(rows, rows * self.width_global, 32, True, self.outputs))


def _dashed(name: str) -> str:
    return name.replace("_", "-")
