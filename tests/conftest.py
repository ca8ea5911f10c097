import os

import numpy as np
import pytest
from hypothesis import settings

import fedres
from compile_first import compile_on_two_cores


def pytest_configure(config):
    """The same examples each time, unless --hypothesis-seed asks for others."""
    settings.register_profile(
        "fedres",
        deadline=None,
        max_examples=60,
        derandomize=config.getoption("--hypothesis-seed") is None,
        database=None,
    )
    settings.load_profile("fedres")
    # Random tables are doubtful by chance; tests of these warnings ask for them.
    for kind in ("column_notes.LabelWarning", "unseen.UnseenWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::fedres.tables.{kind}")
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        compile_on_two_cores()


def pytest_collection_modifyitems(items):
    """Skip tests that read real data sets, unless the user says where these are."""
    if not os.environ.get("FEDRES_DATA"):
        skip = pytest.mark.skip(reason="set FEDRES_DATA to a folder with the paper's data sets")
        for item in items:
            if item.get_closest_marker("needs_data"):
                item.add_marker(skip)


def random_federation(
    seed=0, clients=3, rows=12, width_global=3, width_local=2, labels="numbers", sparse=False
):
    """Generic data: no error is ever exactly zero, where an adaptive step would tip over."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(seed)
    counts = rng.integers(max(1, rows // 2), rows + 1, clients)
    owner = np.repeat(np.arange(clients), counts)

    def rows_of(owner):
        n = len(owner)
        x = [rng.normal(size=(n, w)).astype(np.float32) for w in (width_global, width_local)]
        if sparse:
            x = [csr_array(np.where(rng.random(one.shape) < 0.5, one, 0)) for one in x]
        y = rng.normal(size=n)
        return (*x, np.sign(y) if labels == "signs" else y, owner)

    return fedres.Federation.from_arrays(
        *rows_of(owner), test=rows_of(rng.permutation(owner)), name="random"
    )


@pytest.fixture(scope="session")
def digits():
    return fedres.federate("digits", clients=10, seed=0)


@pytest.fixture
def users_style():
    """Unlike ours; whoever draws must leave all of it, but for the backend, as it was."""

    import matplotlib as mpl

    def now():
        return {name: value for name, value in mpl.rcParams.copy().items() if name != "backend"}

    with mpl.rc_context({"font.size": 17.0, "axes.grid": False, "axes.spines.top": True}):
        before = now()
        yield
        assert now() == before
