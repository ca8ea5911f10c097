"""What one process compiled, others load: the right function, whoever compiles at the same time.

Run as a script it calls the compiled twin of `one_way_or_another` for each kind that is named, in
a process that it forks when it has the twins.
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import singledispatch
from multiprocessing import get_context
from pathlib import Path
from subprocess import PIPE, Popen

import numpy as np

from fedres.core import compiled as compiling
from fedres.core import elementary, losses, primitives, schedule, sgd
from fedres.core.clock import play
from fedres.core.compiled import compiled
from fedres.core.sgd import Linear, One
from fedres.core.source import apart
from fedres.simulation import dealing
from fedres.simulation.dealing import Deck


class Added:
    """One is added to each number."""


class Doubled:
    """Each number is doubled."""


@singledispatch
def changed(kind, x):
    raise TypeError(kind)


@changed.register(Added)
def _(kind, x):
    return x + 1.0


@changed.register(Doubled)
def _(kind, x):
    return x * 2.0


@apart
def sum_of_changed(x):
    """Too long to be laid out where it is called, and called more than once."""
    total = 0.0
    for i in range(len(x)):
        total += changed(0, x[i])
        if total > 1e9:
            total = np.sqrt(total) + np.exp(total) - np.log(total) * np.sin(total) * np.cos(total)
        x[i] += 0 * total
    return total


def one_way_or_another(x):
    return sum_of_changed(x) + sum_of_changed(x[1:]) + sum_of_changed(x[2:])


def run(*kinds, cache):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, __file__, *kinds]
    return Popen(command, stdout=PIPE, text=True, env=environment)


def result(process):
    with process:
        return json.loads(process.stdout.read())


def test_what_two_processes_compiled_for_two_kinds_a_third_tells_apart(tmp_path):
    first = result(run("Added", cache=tmp_path))
    second = result(run("Doubled", cache=tmp_path))
    assert (first["Added"], second["Doubled"]) == ([26.0, 0], [34.0, 0])
    both = result(run("Added", "Doubled", cache=tmp_path))
    assert both == {"Added": [26.0, 1], "Doubled": [34.0, 1]}


def test_of_two_processes_that_need_the_same_one_compiles_it(tmp_path):
    at_once = [run("Added", cache=tmp_path) for _ in range(2)]
    assert sorted(result(process)["Added"] for process in at_once) == [[26.0, 0], [26.0, 1]]


def test_it_is_kept_under_all_the_source_that_it_was_made_of():
    twin = compiling._twin(play, (Deck, Linear, One), False).py_func
    files = set(compiling._sources(twin))
    for module in (sgd, losses, schedule, dealing, elementary, primitives, compiling):
        assert Path(module.__file__).read_bytes() in files


def call_twins():
    return {
        name: [twin(np.arange(4.0)), sum(twin.stats.cache_hits.values())]
        for name, twin in twins.items()
    }


if __name__ == "__main__":
    ours = [one_way_or_another, sum_of_changed, changed, *changed.registry.values()]
    for function in ours:
        function.__module__ = "fedres.core.sgd"  # one that numba finds again when it loads
    twins = {name: compiled(one_way_or_another, globals()[name]) for name in sys.argv[1:]}
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        print(json.dumps(pool.submit(call_twins).result()))
