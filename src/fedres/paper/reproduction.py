"""Run the paper's experiments and judge its claims."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fedres.paper.appendix_c import appendix_c
from fedres.paper.claims import judge_claims
from fedres.paper.newcomers import Newcomers, newcomers
from fedres.paper.protocol import (
    CLIENTS,
    FIGURES,
    MANY,
    SETS,
    SYNTHETIC,
    StepSizes,
    Tagged,
    cases,
    cases_of_readings,
    forms,
    possible_clients,
)
from fedres.paper.readings import Reading, find_reading, known_and
from fedres.paper.regret_study import regret
from fedres.paper.rulings import Claim
from fedres.paper.tuning import tune, tune_adaptive
from fedres.simulation.parallel import count_cores
from fedres.simulation.run_store import RunStore
from fedres.simulation.settings import choose
from fedres.simulation.sweep import Backend, Case, dataset, fingerprint, run_cases

if TYPE_CHECKING:
    import pandas as pd

STUDIES: dict[str, Callable[..., "pd.DataFrame"]] = {"appendix-c": appendix_c, "regret": regret}


@dataclass
class Meter:
    """What runs have cost."""

    cores: int
    wall: float = 0.0  # seconds by the clock
    compiled: float = 0.0  # seconds that all cores together spent in compiled code
    client_rounds: int = 0

    def add(self, wall: float, seconds: float, client_rounds: int) -> None:
        """Count one more batch of runs."""
        self.wall += wall
        self.compiled += seconds
        self.client_rounds += client_rounds

    def __str__(self) -> str:
        if not self.client_rounds:
            return "nothing had to be computed anew"
        share = self.compiled / (self.wall * self.cores)
        return (
            f"{self.client_rounds / 1e6:,.0f} million client-rounds in {self.wall / 60:.1f} min "
            f"on {self.cores} cores, {share:.0%} of it in compiled code"
        )


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` found."""

    table: "pd.DataFrame"  # a row a run and figure: columns of `fedres.sweep`, figure and scheme
    figures: tuple[str, ...]
    data: tuple[str, ...]
    seeds: int
    many: dict[str, int]  # per set, the number of clients that stands for P = 50
    sizes: dict[str, StepSizes]
    notes: dict[str, str]  # per set, what a figure must say of it
    claims: dict[str, list[Claim]]  # per form of FedRes
    reading: Reading
    missing: dict[tuple[str, str], str]  # why a reading cannot be run on a set
    studies: "dict[str, pd.DataFrame]"  # tables of the figures that are no sweeps
    cost: Meter  # of what was computed anew

    @property
    def readings(self) -> list[Reading]:
        """Those that the figure of readings compares."""
        return known_and(self.reading)

    def title_of(self, name: str) -> str:
        """A set as figures and tables name it."""
        return f"{name} (sample)" if name in self.notes else name


def sets_here() -> list[str]:
    """The paper's data sets that are on this machine; on a bare one, the bundled digits."""
    here = []
    for name in SETS:
        try:
            dataset(name)
        except ValueError:
            continue
        here.append(name)
    return here or ["digits"]


def reproduce(
    data: Sequence[str] | None = None,
    figures: Sequence[str] | None = None,
    *,
    seeds: int = 50,
    reading: Reading | str = "library",
    store: RunStore | None = None,
    n_jobs: int | None = None,
    backend: Backend = "joblib",
    progress: bool = False,
) -> Reproduction:
    """Run the experiments behind these figures of `fedres.paper.protocol.FIGURES`, or behind all.

    On these data sets, or all of the paper's that are here; each number is an average over so many
    seeds. What the paper does not state is as a `Reading` has it; the figure ``readings`` compares
    all of them, and this one. A store keeps finished runs.
    """
    if seeds < 2:
        raise ValueError(f"seeds must be at least 2, to have intervals, not {seeds}")
    wanted = list(figures) if figures is not None else list(FIGURES)
    for figure in wanted:
        choose("figure", figure, tuple(FIGURES))
    choose("backend", backend, ("joblib", "ray"))
    reading = find_reading(reading) if isinstance(reading, str) else reading
    with_data = [figure for figure in wanted if figure not in SYNTHETIC]
    names = (list(data) if data is not None else sets_here()) if with_data else []
    import pandas as pd

    store = store or RunStore(None)
    meter = Meter(count_cores(n_jobs))

    def run(todo: Sequence[Case], what: str) -> "pd.DataFrame":
        began = perf_counter()
        table = run_cases(
            todo, store, n_jobs=n_jobs, backend=backend, progress=what if progress else None
        )
        meter.add(perf_counter() - began, **table.attrs["new"])
        return table

    many = {name: possible_clients(name, MANY) for name in names}
    for name, clients in many.items():
        if clients < min(CLIENTS):
            raise ValueError(
                f"{name} has too few rows for even {min(CLIENTS)} clients: leave it out"
            )
        if reading.missing(name):
            raise ValueError(reading.missing(name))
    swept = [figure for figure in with_data if figure not in ("readings", "newcomers")]
    sizes: dict[str, StepSizes] = {}  # of sweeps
    tagged: list[Tagged] = []
    if swept:
        grid = bool({"clients", "clients-delay"} & set(swept))
        sizes = tune(names, many, grid, run, reading)
        tagged += [
            pair
            for figure in swept
            for name in names
            for pair in cases(figure, name, sizes[name], many[name], seeds, reading)
        ]
    etas: dict[tuple[str, str], dict[str, float]] = {}
    missing: dict[tuple[str, str], str] = {}
    if "readings" in with_data:
        for one in known_and(reading):
            reasons = {name: one.missing(name) for name in names}
            missing |= {(one.name, name): reason for name, reason in reasons.items() if reason}
            here = [name for name, reason in reasons.items() if not reason]
            chosen = tune_adaptive(here, many, run, one)
            etas |= {(one.name, name): chosen[name] for name in here}
        tagged += cases_of_readings(known_and(reading), many, etas, seeds)
    table = pd.DataFrame()
    if tagged:
        table = run([case for _, case in tagged], "running the figures")
        for tag in ("figure", "scheme", "reading"):
            table[tag] = [tags[tag] for tags, _ in tagged]
    studies: dict[str, pd.DataFrame] = {}
    if "newcomers" in with_data:
        etas_of: Any = {name: sizes[name].adaptive for name in sizes}
        etas_of = etas_of or tune_adaptive(names, many, run, reading)
        jobs = [
            Newcomers(
                name, fingerprint(name, reading.scale_on(name)), many[name], seed,
                tuple(sorted(etas_of[name].items())), **reading.settings(name),
            )
            for name in names
            for seed in range(seeds)
        ]  # fmt: skip
        studies["newcomers"] = newcomers(jobs, store, n_jobs, "newcomers" if progress else None)
    for name in wanted:
        if name in SYNTHETIC:
            studies[name] = STUDIES[name](seeds, store=store, n_jobs=n_jobs, progress=progress)
    return Reproduction(
        table,
        tuple(wanted),
        tuple(names),
        seeds,
        many,
        sizes,
        {name: dataset(name).note for name in names if dataset(name).note},
        {form: judge_claims(table, form) for form in forms(reading)} if swept else {},
        reading,
        missing,
        studies,
        meter,
    )
