"""Readings of section 6: what the paper does not state, and results depend on.

The paper names Vowpal Wabbit's ``--adaptive`` and leaves open how labels are coded, whether
predictions are clipped, with which step size, on which scale features are, and what exactly is late
when messages are. A `Reading` fixes all of that. The named ones were found by *search*: by trying
many and looking at what came out, so that one of them is near to the paper's figures is no evidence
that it is what the authors did. No step is tuned on the seeds of the figure.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from fedres.simulation.scaling import SCALES, Scale
from fedres.simulation.settings import choose
from fedres.simulation.split import Labels
from fedres.simulation.sweep import dataset

Coding = Literal["-1/1", "0/1", "1/2"]
Late = Literal["examples", "gradients", "arrival"]
CODINGS: tuple[Coding, ...] = get_args(Coding)
LATE: tuple[Late, ...] = get_args(Late)
FORMS: dict[Late, str] = {"examples": "late", "gradients": "gradients", "arrival": "arrival"}
VW_DEFAULT_ETA = 10.0
READING_SEEDS_FROM = 20_000  # of the figure: no step is tuned on them


@dataclass(frozen=True)
class Reading:
    """One way to read the paper's experiments.

    Attributes
    ----------
    name
        What figures call it.
    labels
        How the two classes of a client are coded: the other class, then C0.
    clip
        Whether predictions are clipped to the range of labels seen (with 0), as VW does.
    step
        Step size of the adaptive step: one for all schemes, or ``tuned`` for each scheme and set
        on seeds that no figure uses.
    scale
        Of the features: ``given`` (as the collection has them), ``raw``, ``0..1`` or ``-1..1``;
        then, after commas, sets with a scale of their own, such as ``given,satimage=0..1``.
    late
        What a delay makes late: ``examples``, ``gradients``, or only what travels (``arrival``).

    Examples
    --------
    >>> READINGS["nearest"].scale_on("satimage"), READINGS["nearest"].scale_on("letter")
    ('0..1', 'given')
    >>> print(READINGS["vw"])
    labels -1/1, clipped, step 0.5, features as given, late examples
    """

    name: str
    labels: Coding = "-1/1"
    clip: bool = True
    step: float | Literal["tuned"] = "tuned"
    scale: str = "given"
    late: Late = "arrival"

    def __post_init__(self) -> None:
        choose("labels", self.labels, CODINGS)
        choose("late", self.late, LATE)
        for scale in self._scales.values():
            choose("scale", scale, SCALES)
        if self.step != "tuned" and not (isinstance(self.step, float) and self.step > 0):
            raise ValueError(f"step must be 'tuned' or a positive number, not {self.step!r}")

    def __str__(self) -> str:
        special = [f"{name} {scale}" for name, scale in self._scales.items() if name]
        return ", ".join(
            (
                f"labels {self.labels}",
                "clipped" if self.clip else "not clipped",
                "steps tuned for each scheme" if self.step == "tuned" else f"step {self.step:g}",
                f"features {'as given' if self._scales[''] == 'given' else self._scales['']}"
                + (f" ({', '.join(special)})" if special else ""),
                "messages late" if self.late == "arrival" else f"late {self.late}",
            )
        )

    @property
    def _scales(self) -> dict[str, Scale]:
        pairs = (part.rpartition("=") for part in self.scale.split(","))
        named: Any = {name.strip(): scale.strip() for name, _, scale in pairs}
        return {"": "given", **named}

    def scale_on(self, data: str) -> Scale:
        """The scale of a set's features."""
        return self._scales.get(data, self._scales[""])

    @property
    def form(self) -> str:
        """The scheme that FedRes is under this reading."""
        return FORMS[self.late]

    def settings(self, data: str) -> dict[str, Any]:
        """What a `Case` of a set has to say of it."""
        low, high = (float(label) for label in self.labels.split("/"))
        labels: Labels = (low, high)
        return {"labels": labels, "clip": self.clip, "scale": self.scale_on(data)}

    def missing(self, data: str) -> str:
        """Why a set cannot be run under this reading; empty where it can."""
        try:
            dataset(data, self.scale_on(data))
        except ValueError as error:
            return str(error)
        return ""


READINGS = {
    reading.name: reading
    for reading in (
        Reading("library"),
        Reading("vw", step=0.5, late="examples"),
        Reading("vw-default", step=VW_DEFAULT_ETA, late="examples"),
        Reading(
            "vw-default-raw", step=VW_DEFAULT_ETA, scale="given,sensorless=raw", late="examples"
        ),
        Reading("late-gradients", step=0.5, late="gradients"),
        Reading("labels-01", "0/1", step=0.1, late="examples"),
        Reading("labels-12", "1/2", step=0.1, late="examples"),
        Reading("labels-12-unclipped", "1/2", clip=False, step=0.1, late="examples"),
        Reading("labels-12-tuned", "1/2", late="examples"),
        Reading(
            "nearest", "1/2", step=0.07, scale="given,satimage=0..1,sensorless=raw", late="examples"
        ),
    )
}


def known_and(reading: Reading) -> list[Reading]:
    """All that have a name, and this one if it is none of them."""
    return list({one.name: one for one in (*READINGS.values(), reading)}.values())


def find_reading(name: str, **changes: Any) -> Reading:
    """The reading of that name, with some of its fields changed, those that are not None.

    Examples
    --------
    >>> find_reading("library", labels="1/2", step="0.1").name
    'library, labels 1/2, step 0.1'
    """
    choose("reading", name, tuple(READINGS))
    reading = READINGS[name]
    given = {key: value for key, value in changes.items() if value is not None}
    step = given.get("step")
    if isinstance(step, str) and step != "tuned":
        try:
            given["step"] = float(step)
        except ValueError:
            raise ValueError(f"step must be 'tuned' or a positive number, not {step!r}") from None
    order = [field.name for field in fields(Reading) if field.name in given]
    words = [f"{key} {_word(given[key])}" for key in order if given[key] != getattr(reading, key)]
    return replace(reading, name=", ".join([name, *words]), **given)


def _word(value: Any) -> str:
    return (
        {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    )
