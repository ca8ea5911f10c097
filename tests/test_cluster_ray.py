"""Shards on Ray: the same weights, and nothing counted twice whatever dies.

One cluster of three nodes on this machine serves all tests; one of them loses a node.
"""

import json
import os
import signal
from functools import partial

import numpy as np
import pytest
from sklearn.utils import check_random_state

from fedres import load_model
from fedres.cluster import shard_bayes, shard_sgd
from fedres.cluster.local_parts import messages_known, read_part
from fedres.cluster.ray_bayes import solve_on_ray
from fedres.cluster.ray_sgd import message_rows, train_on_ray
from fedres.simulation.ray_cluster import connect
from fedres.tables.online_models import ModelShape
from fedres.tables.sgd_tuning import Trial
from test_cluster import dealt, dying, events, in_shards, local_weights
from test_cluster_commands import COLUMNS
from test_table_commands import run

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # no other machine may connect
pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
BEST = Trial(0.3, 10.0, 1)
PASSES = shard_sgd.count_passes(BEST)


@pytest.fixture(scope="module")
def cluster():
    """A head without cores, where the server is, and two nodes for workers."""
    import ray
    from ray.cluster_utils import Cluster

    soon = {"health_check_period_ms": 300, "health_check_failure_threshold": 3}
    here = {"node_ip_address": "127.0.0.1", "include_dashboard": False}
    cluster = Cluster(True, head_node_args={"num_cpus": 0, "_system_config": soon, **here})
    for _ in range(2):
        cluster.add_node(num_cpus=2, **here)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def table(folder, shards, rows=900):
    shards = dealt(events(rows), folder, shards)
    encoder = shards[0].layout.encoder
    shape = ModelShape(encoder.width_global, encoder.width_local, shrinkage=BEST.shrinkage)
    return shards, shard_sgd.SgdProblem(encoder, shape, 1)


def parts(shards):
    return [read_part(shard) for shard in shards]


def test_one_worker_has_the_bits_of_one_process_without_ray(cluster, tmp_path):
    shards, problem = table(tmp_path, 3)
    here = shard_sgd.train(shards, problem, BEST, check_random_state(0))
    local = parts(shards)
    run = train_on_ray(shards, problem, BEST, check_random_state(0), 1, rows_a_message=64)
    assert_the_same(run, here, shards, local)


def test_a_run_that_was_broken_off_goes_on_to_the_same_bits(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("fedres.cluster.ray_sgd.POLL", 0.01)
    shards, problem = table(tmp_path, 3)
    here = shard_sgd.train(shards, problem, BEST, check_random_state(0))
    local = parts(shards)

    def break_off(rows):
        if any(messages_known(shard) for shard in shards):
            raise KeyboardInterrupt

    train = partial(train_on_ray, shards, problem, BEST, workers=1, rows_a_message=4)
    with pytest.raises(KeyboardInterrupt):
        train(check_random_state(0), watch=break_off)
    laid_out = [path for shard in shards if (path := shard.path("stream")).exists()]
    written = [path.stat().st_mtime_ns for path in laid_out]
    run = train(check_random_state(0), go_on=True)
    assert_the_same(run, here, shards, local)
    assert written == [path.stat().st_mtime_ns for path in laid_out]


def assert_the_same(run, here, shards, local):
    """As one process without Ray, each row once a pass."""
    np.testing.assert_array_equal(run.global_.weights, here.weights)
    np.testing.assert_array_equal(run.global_.squares, here.squares)
    for ours, theirs in zip(parts(shards), local, strict=True):
        for name in theirs:
            np.testing.assert_array_equal(ours[name], theirs[name])
    assert {*run.used.delays} == {0}
    assert sum(run.used.rows.values()) == PASSES * 900


def assert_each_row_counted_once(shards, used, rows_a_message):
    """By the server as often as there were passes, and by the local models likewise."""
    for shard in shards:
        messages = PASSES * -(-shard.rows // message_rows(shard, rows_a_message))
        assert used.rows[shard.number] == PASSES * shard.rows
        assert used.messages[shard.number] == messages == messages_known(shard)
    assert sum(used.delays.values()) == sum(used.messages.values())


def loss(shards, problem, global_):
    """The mean squared error on all rows."""
    errors = []
    for shard in shards:
        opened = shard_sgd.open_shard(shard, problem, global_)
        errors.append(opened.models.predict(opened.rows) - opened.y)
    return np.square(np.concatenate(errors, axis=1)).mean()


@pytest.mark.parametrize(
    ("task", "workers", "fatal"), [("numbers", 1, "begin"), ("classes", 2, "advance")]
)
def test_sums_give_the_same_bits_whoever_adds_them_up_and_dies(
    cluster, tmp_path, monkeypatch, task, workers, fatal
):
    shards, problem, model = in_shards(task, tmp_path)
    here, own = shard_bayes.solve(shards, problem), local_weights(shards)
    np.testing.assert_allclose(here[0], model._models.w_global[0], atol=1e-4)
    monkeypatch.setattr(shard_bayes, fatal, dying(getattr(shard_bayes, fatal)))
    np.testing.assert_array_equal(solve_on_ray(shards, problem, workers), here)
    assert local_weights(shards) == own
    assert shards[1].path("death").exists()


def test_fit_on_ray_saves_a_model_and_says_how_late_messages_were(cluster, tmp_path):
    frame = events(600)
    frame.to_parquet(tmp_path / "events.parquet", index=False)
    where = tmp_path / "events.parquet", *COLUMNS, "--solver", "sgd", "--method", "fedres"
    ray = "--backend", "ray", "--workers", "2", "--out", tmp_path / "model"
    found = json.loads(run("fit", *where, *ray, "--json"))
    assert (found["workers"], found["shards"], found["rows"]) == (2, 2, 600)
    assert found["messages"]["used"] == 2 * 16 * (found["passes"] + 3)
    assert found["messages"]["dropped"] == 0
    model = load_model(tmp_path / "model")
    assert {*model.clients_} == {*frame.user}
    assert model.score(frame.drop(columns="y"), frame.y) > 0.8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "2"], "--workers 2 is for --backend ray: add that, or leave it out"),
        (["--backend", "spark"], "unknown backend 'spark': choose one of joblib, ray"),
        (["--backend", "ray", "--workers", "0"], "workers must be at least 1, not 0"),
        (["--backend", "ray", "--workers", "99"], "too few for 99 workers: add nodes"),
        (["--backend", "ray", "--shared", "trees"], "--shared trees needs all rows in memory"),
    ],
)
def test_options_that_cannot_be_are_refused_in_a_sentence(cluster, tmp_path, options, words):
    events(60).to_parquet(tmp_path / "events.parquet", index=False)
    where = tmp_path / "events.parquet", *COLUMNS, "--out", tmp_path / "model"
    with pytest.raises(ValueError, match=words):
        run("fit", *where, *options)


def test_where_no_cluster_answers_a_sentence_says_so(monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(
        ValueError, match=r"no Ray cluster answers at '127\.0\.0\.1:1': start one by ray"
    ):
        connect("127.0.0.1:1")


def living(kind):
    """The node and the process of every actor of a kind that lives."""
    from ray._private.state import actors

    return [
        (one["Address"]["NodeID"], one["Pid"])
        for one in actors().values()
        if one["ActorClassName"] == kind and one["State"] == "ALIVE"
    ]


class Killer:
    """Watches a run: when each worker has done more than so many rows, something is killed."""

    def __init__(self, when):
        self.left = dict(when)

    def __call__(self, rows):
        if self.left and min(rows) > min(self.left):
            self.left.pop(min(self.left))()


def kill(kind):
    os.kill(living(kind)[0][1], signal.SIGKILL)


def kill_a_node(cluster):
    theirs = living("SgdWorker")[0][0]
    (node,) = [one for one in cluster.worker_nodes if one.node_id == theirs]
    cluster.remove_node(node, allow_graceful=False)


@pytest.mark.parametrize("what", ["worker and server", "node"])
def test_whatever_dies_each_row_counts_once(cluster, tmp_path, what, monkeypatch):
    monkeypatch.setattr("fedres.cluster.ray_sgd.POLL", 0.05)
    shards, problem = table(tmp_path, 4, 2000)
    here = loss(shards, problem, shard_sgd.train(shards, problem, BEST, check_random_state(0)))
    deaths = {
        "worker and server": {
            500: partial(kill, "SgdWorker"),
            2000: partial(kill, "SharedServer"),
        },
        "node": {500: partial(kill_a_node, cluster)},
    }
    killer = Killer(deaths[what])
    run = train_on_ray(shards, problem, BEST, check_random_state(0), 2, killer, rows_a_message=8)
    assert not killer.left
    assert_each_row_counted_once(shards, run.used, 8)
    assert max(run.used.delays) > 0
    assert loss(shards, problem, run.global_) < 1.05 * here
