"""Real superlinks and nodes, on this machine alone."""

import json
import shutil
import socket
import sqlite3
import ssl
import subprocess
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedres.cli.flower import app as commands
from fedres.flower.app_folder import settings_like, write_app
from fedres.flower.client_app import state_folder
from fedres.flower.launch import launch, launch_here, write_report
from fedres.flower.local_cluster import Cluster, Tls, free_port
from fedres.flower.memory import STATE, Memory
from fedres.flower.replay import replay, unused
from fedres.flower.run_folder import holds_run, read_log, read_run
from fedres.flower.samples import ROWS, StoredSource
from fedres.tables.stored_estimator import load_model

PATIENCE = 400.0  # seconds: generous, as other work may keep the machine busy
QUIET = Console(quiet=True)


def make_app(folder, **changes):
    """An app for made-up clinics, and a table for each of three."""
    rng = np.random.default_rng(0)
    for clinic in range(3):
        age, dose = rng.normal(50, 20, 300), rng.normal(size=300)
        frame = pd.DataFrame(
            {"age": age.round(1), "dose": dose, "ward": rng.choice(["a", "b"], 300)}
        )
        score = (age - 50) / 20 + (clinic - 1) * dose + 0.1 * rng.normal(size=300)
        frame["ill"] = np.where(score > 0, "yes", "no")
        frame.to_csv(folder / f"clinic-{clinic}.csv", index=False)
    settings = settings_like(folder / "clinic-0.csv", label="ill", local=["dose"], global_=["*"])
    settings = replace(
        settings,
        rows_per_message=20,
        passes=0,
        folder=str(folder / "run"),
        **{"rounds": 4, "bind_names": False} | changes,
    )
    write_app(folder / "app", settings, "fedres.flower.slow_client_app:app")
    return settings


def node(folder, clinic):
    return {
        "client": f"clinic-{clinic}",
        "data": str(folder / f"clinic-{clinic}.csv"),
        "state": str(folder / "state"),
        "wait": 0.5 if clinic == 2 else 0.0,
    }


def state_of(folder, settings, clinic):
    return state_folder(node(folder, clinic), settings, f"clinic-{clinic}")


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)


def applied(folder, clinic):
    run = folder / "run"
    members = read_run(run)["members"] if holds_run(run) else {}
    return members.get(f"clinic-{clinic}", {"applied": 0})["applied"]


def given_up(cluster, node):
    """Let the superlink find at once that a node is gone, which takes it a minute otherwise."""
    signed = node - 2**64 if node >= 2**63 else node
    with closing(sqlite3.connect(cluster.folder / "superlink.db", timeout=60)) as base, base:
        changed = base.execute("UPDATE node SET online_until = 0 WHERE node_id = ?", (signed,))
        assert changed.rowcount == 1


def test_killed_nodes_and_a_killed_server_lose_nothing_and_count_nothing_twice(tmp_path):
    settings = make_app(tmp_path, rounds=99)
    with Cluster(tmp_path / "cluster") as cluster:
        for clinic in range(3):
            cluster.start_node(f"clinic-{clinic}", node(tmp_path, clinic))
        cluster.flwr.run(tmp_path / "app", {"folder": str(tmp_path / "run")})
        until(lambda: applied(tmp_path, 1) >= 1, "an upload of clinic-1")

        cluster.kill("clinic-1")
        given_up(cluster, read_run(tmp_path / "run")["members"]["clinic-1"]["node"])
        before = Memory.load(state_of(tmp_path, settings, 1), "clinic-1", settings)
        cluster.start_node("clinic-1", node(tmp_path, 1))
        until(lambda: applied(tmp_path, 1) > before.next, "clinic-1 after its restart")
        after = Memory.load(state_of(tmp_path, settings, 1), "clinic-1", settings)
        assert after.session == before.session
        assert after.position == 20 * after.next > before.position

        cluster.kill("superlink")
        used = read_run(tmp_path / "run")["version"]
        cluster.start_superlink()
        launch(cluster.flwr, tmp_path / "app", {"resume": True, "rounds": 3}, console=QUIET)

    facts, lines = read_run(tmp_path / "run"), read_log(tmp_path / "run")
    assert facts["reason"] == "rounds"
    assert facts["version"] == len(lines) > used
    pairs = [(line["client"], line["number"]) for line in lines]
    assert len(set(pairs)) == len(pairs)
    assert all(member["refused"] == {} for member in facts["members"].values())

    sources, memories = {}, {}
    for clinic in range(3):
        name, state = f"clinic-{clinic}", state_of(tmp_path, settings, clinic)
        memory = memories[name] = Memory.load(state, name, settings)
        sources[name] = StoredSource(settings, state / ROWS)
        mine = {number for client, number in pairs if client == name}
        assert set(range(memory.next)) - mine <= set(memory.outbox)
        assert facts["members"][name]["confirmed"] == len(mine)
        lines += [o for o in unused(memory, settings) if (name, o["number"]) not in set(pairs)]
    # The same rows, in the same order and as late, through the reference objects.
    published, clients = replay(settings, lines, sources)
    model = load_model(tmp_path / "run" / "model")
    np.testing.assert_allclose(
        published[facts["version"]].weights[:-1], model.global_model_.weights, atol=1e-3
    )
    for name, memory in memories.items():
        np.testing.assert_allclose(clients[name].local.weights, memory.local.weights, atol=1e-3)
    # How late each was depends on the machine; none met a model older than its own.
    assert all(line["made"] > line["made_with"] for line in lines if "lag" in line)

    # What is left behind predicts without any server.
    table = pd.read_csv(tmp_path / "clinic-0.csv")
    personal = load_model(state_of(tmp_path, settings, 0) / "model")
    assert personal.clients_ == ["clinic-0"]
    assert model.clients_ == []
    assert set(personal.predict(table.drop(columns="ill"))) == {"yes", "no"}
    # Of which version its global model is depends on the machine; that it is one of them does not.
    ours = personal.global_model_.weights
    assert any(np.allclose(one.weights[:-1], ours, atol=1e-3) for one in published)
    page = write_report(tmp_path / "run", settings).read_text()
    assert "clinic-2" in page
    assert "Measured delays" in page


NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


@pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("ssh-keygen") and NGINX),
    reason="openssl and ssh-keygen make certificates and keys, and nginx is the gate",
)
def test_the_gate_lets_in_the_calls_of_registered_nodes_and_nothing_else(tmp_path):
    make_app(tmp_path, rounds=1, bind_names=True)
    tls = certificate(tmp_path)
    for name in ("known", "stranger"):
        command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f"]
        subprocess.run([*command, str(tmp_path / name)], check=True)
    with Cluster(tmp_path / "cluster", tls=tls) as cluster, gate(tmp_path, cluster) as port:
        flwr, here = cluster.flwr, cluster.NAME
        flwr.call("supernode", "register", str(tmp_path / "known.pub"), here)
        cluster.start_node("clinic-0", node(tmp_path, 0), tmp_path / "known", port)
        cluster.start_node("clinic-1", node(tmp_path, 1), tmp_path / "stranger", port)
        # The very commands that the operator has, by somebody with the certificate.
        outsider = cluster.flwr_at(tmp_path / "outsider", port)
        for attack in (
            ["list", here],
            ["supernode", "list", here],
            ["supernode", "register", str(tmp_path / "stranger.pub"), here],
            ["run", str(tmp_path / "app"), here],
        ):
            with pytest.raises(ValueError, match="failed"):
                outsider.call(*attack)
        run = flwr.run(tmp_path / "app", {"folder": str(tmp_path / "run")})
        for attack in (["log", run, here, "--show"], ["stop", run, here]):
            with pytest.raises(ValueError, match="failed"):
                outsider.call(*attack)
        assert_only_fleet(port, tls)
        until(lambda: applied(tmp_path, 0) >= 1, "an upload through the gate")
        until(lambda: cluster.processes["clinic-1"].poll() is not None, "the stranger's end")
        assert run in flwr.call("list", here, "--format", "json")
        assert (
            len(json.loads(flwr.call("supernode", "list", here, "--format", "json"))["nodes"]) == 1
        )
    refusal = (tmp_path / "cluster" / "clinic-1.log").read_text(errors="replace")
    assert "Failed to activate SuperNode" in refusal
    assert list(read_run(tmp_path / "run")["members"]) == ["clinic-0"]
    assert not (tmp_path / "state" / "clinic-1" / STATE).exists()


def assert_only_fleet(port, tls):
    """No other path of the superlink's is reached, however it is written."""
    from flwr.supercore.routers.runtime.router import router as runtime
    from flwr.superlink.routers.control import router as control
    from flwr.superlink.routers.fleet.router import router as fleet

    paths = [route.path for router in (control, runtime) for route in router.routes]
    assert len(paths) > 50
    paths += ["/v1/fleet/register-node", "/v1/fleet/unregister-node", "/docs", "/openapi.json"]
    paths += [
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/..%2fcontrol%2flist-runs",
        "/v1/control/list-runs%3f/../../fleet/pull-messages",
        "/v1/fleet/pull-messages/../../control/list-runs",
        "//v1//control//list-runs",
        "/V1/CONTROL/list-runs",
        "/v1/fleet/pull-messages%00/v1/control/list-runs",
    ]
    answers = {path: ask(port, tls, path) for path in paths}
    tricked = {path: code for path, code in answers.items() if code in range(200, 400)}
    assert not tricked
    assert {answers[path] for path in paths[:50]} == {404}
    assert ask(port, tls, "/v1/fleet/pull-messages", "GET") == 403
    # Those that pass reach Flower, which asks for a key.
    through = [route.path for route in fleet.routes if not route.path.endswith("register-node")]
    assert {ask(port, tls, path) for path in through} == {401}


def ask(port, tls, path, method="POST"):
    context = ssl.create_default_context(cafile=tls.authority)
    connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=20)
    with closing(connection):
        connection.putrequest(method, path, skip_accept_encoding=True)
        connection.putheader("Content-Type", "application/protobuf")
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        return connection.getresponse().status


@contextmanager
def gate(folder, cluster):
    """nginx with deploy/nginx.conf in front of a superlink; its port."""
    port, home = free_port(), folder / "nginx"
    home.mkdir()
    text = (Path(__file__).parents[1] / "deploy" / "nginx.conf").read_text()
    for documented, here in {
        "listen 443": f"listen 127.0.0.1:{port}",
        "127.0.0.1:8000": f"127.0.0.1:{cluster.port}",
        "/etc/fedres": str(folder),
    }.items():
        assert documented in text
        text = text.replace(documented, here)
    temporary = "".join(
        f"{kind}_temp_path {home}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (home / "nginx.conf").write_text(
        f"daemon off; pid {home}/pid; error_log {home}/error.log; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{text}\n}}\n"
    )
    command = [NGINX, "-e", str(home / "error.log"), "-c", str(home / "nginx.conf")]
    process = subprocess.Popen(command, env={"FLWR_HOME": str(home)})
    try:
        until(lambda: answers(port), "nginx")
        yield port
    finally:
        process.terminate()
        process.wait(20)


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def certificate(folder):
    """As docs/deployment.md makes one."""
    script = """
    openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj "/CN=fedres CA" \
      -keyout ca.key -out ca.crt
    openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" -keyout server.key -out server.csr
    printf "subjectAltName=DNS:localhost,IP:127.0.0.1" > server.ext
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 1 \
      -extfile server.ext -out server.pem
    """
    subprocess.run(["sh", "-e", "-c", script], cwd=folder, check=True, capture_output=True)
    return Tls(folder / "ca.crt", folder / "server.pem", folder / "server.key")


def test_the_simulation_runtime_runs_the_same_app_on_a_ray_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # where there is none
    settings = make_app(tmp_path)
    tables = {f"client-{k}": pd.read_csv(tmp_path / f"clinic-{k}.csv") for k in range(3)}
    frames = [table.assign(clinic=name) for name, table in tables.items()]
    pd.concat(frames).to_csv(tmp_path / "all.csv", index=False)
    app = tmp_path / "app-here"
    write_app(app, replace(settings, data=str(tmp_path / "all.csv"), client_column="clinic"))
    launch_here(app, {"folder": str(tmp_path / "here"), "rounds": 2}, nodes=3)
    members = read_run(tmp_path / "here")["members"]
    assert sorted(members) == ["client-0", "client-1", "client-2"]
    assert all(member["applied"] and not member["refused"] for member in members.values())


def test_the_demo_runs_and_writes_its_report(tmp_path, monkeypatch):
    """The README's `fedres flower demo`, with less waiting."""
    monkeypatch.setattr("fedres.flower.demo.SECONDS", 0.5)
    page = tmp_path / "report.html"
    done = CliRunner().invoke(commands, ["demo", "--rounds", "1", "--report", str(page)])
    assert done.exit_code == 0, done.output
    assert "clinic-3" in page.read_text()


def test_processes_are_stopped_whatever_happens(tmp_path):
    with pytest.raises(KeyboardInterrupt), Cluster(tmp_path / "cluster") as cluster:  # noqa: PT012
        cluster.start_node("clinic-0", {})
        raise KeyboardInterrupt
    assert cluster.processes == {}


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path):
    """No process of Flower's, nor one that those started, outlives a test."""
    yield
    until(lambda: not processes_of(tmp_path), "processes to end")


def processes_of(folder):
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append(process.name)
    return found
