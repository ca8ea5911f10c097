"""Differences of accuracy between schemes, numbers of clients and delays, paired by seed."""

from collections.abc import Callable, Hashable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

KEYS: list[Hashable] = ["figure", "data", "scheme", "clients", "delay"]


class Difference(NamedTuple):
    """Where something was measured, its difference seed by seed, and what else differed."""

    where: str
    by_seed: "pd.Series"
    confounded: str = ""


Differences = list[Difference]


class PairedRuns:
    """Differences of accuracy, by seed."""

    def __init__(self, table: "pd.DataFrame", form: str) -> None:
        possible = table[table.accuracy.notna() & (table.figure != "readings")]
        indexed = possible.set_index([*KEYS, "seed"]).sort_index()
        self.accuracy, self.samples = indexed.accuracy, indexed.samples
        self.known = {key[:-1] for key in self.accuracy.index}
        self.form = form
        self.all = tuple(possible.data.unique())

    def of(self, names: Sequence[str]) -> list[str]:
        """Those of the sets that are here."""
        return [name for name in self.all if name in names]

    def each(
        self, names: Sequence[str], measure: Callable[..., "pd.Series | Difference"], *given: Any
    ) -> Differences:
        """A difference of each of these sets."""
        found = ((name, measure(name, *given)) for name in self.of(names))
        return [
            one._replace(where=name) if isinstance(one, Difference) else Difference(name, one)
            for name, one in found
        ]

    def values(self, name: str, figure: str, level: str) -> list[int]:
        """The numbers of clients, or the delays, that a figure has for a set."""
        try:
            return sorted(self.accuracy[figure, name].index.unique(level).tolist())
        except KeyError:
            return []

    def get(
        self, name: str, figure: str, scheme: str, clients: int | None = None, delay: int = 0
    ) -> "pd.Series":
        """Accuracy by seed, empty if it is not known; clients default to the most of the figure."""
        counts = self.values(name, figure, "clients")
        key = (figure, name, scheme, clients or max(counts, default=0), delay)
        return self.accuracy[key] if key in self.known else self.accuracy[:0].droplevel(KEYS)

    def less(
        self, name: str, figure: str, a: str, b: str, clients: int | None = None, delay: int = 0
    ) -> "pd.Series":
        """Scheme a less scheme b."""
        one, other = (self.get(name, figure, scheme, clients, delay) for scheme in (a, b))
        return one - other

    def over_best(
        self, name: str, figure: str, clients: int | None = None, delay: int = 0
    ) -> "pd.Series":
        """FedRes less whichever baseline has the higher mean."""
        fedres, *others = (
            self.get(name, figure, scheme, clients, delay)
            for scheme in (self.form, "independent", "central")
        )
        return fedres - max(others, key=lambda other: (len(other) > 0, other.mean()))

    def over_best_at(self, names: Sequence[str], figure: str, level: str) -> Differences:
        """The same at every number of clients, or every delay, of a figure."""
        word = "P =" if level == "clients" else level
        return [
            Difference(f"{name}, {word} {value}", self.over_best(name, figure, **{level: value}))
            for name in self.of(names)
            for value in self.values(name, figure, level)
        ]

    def fewer_samples(self, name: str, figure: str, few: int, most: int) -> str:
        """What is confounded with the number of clients: how many samples each of them has."""
        try:
            many, less = (self.samples[figure, name, "independent", p].mean() for p in (few, most))
        except KeyError:
            return ""
        if less == many:
            return ""
        return f"N falls from {many:.3g} at P = {few} to {less:.3g} at P = {most}"

    def growth(self, name: str) -> Difference:
        """FedRes at the most clients less FedRes at the fewest."""
        few, *_, most = self.values(name, "clients", "clients") or [0, 0]
        change = self.get(name, "clients", self.form) - self.get(name, "clients", self.form, few)
        return Difference(name, change, self.fewer_samples(name, "clients", few, most))

    def decay(self, name: str, scheme: str) -> "pd.Series":
        """What each seed loses from no delay to delay 200."""
        return self.get(name, "delay", scheme) - self.get(name, "delay", scheme, delay=200)

    def decay_of(self, names: Sequence[str], schemes: Sequence[str]) -> Differences:
        """The same of several sets and schemes."""
        pairs = product(self.of(names), schemes)
        return [Difference(f"{name}, {scheme}", self.decay(name, scheme)) for name, scheme in pairs]

    def decays_more(self, name: str, one: str, other: str) -> "pd.Series":
        """What one scheme loses by delay less what another does."""
        return self.decay(name, one) - self.decay(name, other)

    def between(self, name: str, low: int, high: int) -> "pd.Series":
        """FedRes at the lower delay less FedRes at the higher, at the number of Figure 5."""
        p = min(self.values(name, "delay", "clients"), default=None)
        a, b = (self.get(name, "clients-delay", self.form, p, tau) for tau in (low, high))
        return a - b

    def recovery(self, name: str) -> Difference:
        """How much less a delay of 80 costs with the most clients than with the fewest."""
        few, *_, most = self.values(name, "clients-delay", "clients") or [0, 0]
        with_few, with_most = (
            self.get(name, "clients", self.form, p)
            - self.get(name, "clients-delay", self.form, p, 80)
            for p in (few, most)
        )
        confounded = self.fewer_samples(name, "clients", few, most)
        return Difference(name, with_few - with_most, confounded)

    def harm(self, ones: Sequence[str], others: Sequence[str]) -> "pd.Series":
        """The mean loss at delay 200 over some sets less that over others, by seed."""
        import pandas as pd

        one, other = (
            pd.DataFrame({name: self.decay(name, self.form) for name in self.of(names)}).mean(
                axis=1
            )
            for names in (ones, others)
        )
        return one - other

    def both(self, ones: Sequence[str], others: Sequence[str]) -> str:
        """Two groups of sets in words, those of them that are here."""
        return " less ".join("+".join(self.of(names)) for names in (ones, others))


def negated(differences: Differences) -> Differences:
    """The same with the other sign."""
    return [one._replace(by_seed=-one.by_seed) for one in differences]
