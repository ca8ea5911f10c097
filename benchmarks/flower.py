"""What a run on Flower costs, beside an empty app with messages of the same size.

Run with `python benchmarks/flower.py`. Three nodes on this machine, two messages under way to
each. The floor is Flower's own: it starts a process for every message. Seconds a message are those
of the clock, whoever else uses the machine; what fedres code takes is in seconds of a core, beside
those that Flower's process for the message takes with an empty app.
"""

import json
import sys
import time
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import tomli_w
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

began = process_time()
from fedres.flower import client_app  # noqa: E402

IMPORTING = process_time() - began

NODES, MESSAGES, WIDTH, ROWS = 3, 24, 32, 20_000
PAUSE = 0.2  # as in fedres's own server
TIMES = "times.jsonl"

# Apps, each in processes of its own.

empty_server = ServerApp()
empty_client = ClientApp()
fedres_server = ServerApp()
fedres_client = ClientApp()


@empty_client.train()
def empty_train(message, context):
    body = bytes(context.run_config["size"])
    note(context.node_config["times"], empty=process_time() - IMPORTING)
    return Message(RecordDict({"reply": ConfigRecord({"body": body})}), reply_to=message)


@empty_server.main()
def empty_main(grid, context):
    def message(node):
        content = RecordDict({"task": ConfigRecord({"body": bytes(4 * WIDTH)})})
        return Message(content, dst_node_id=node, message_type=MessageType.TRAIN)

    wait_for_nodes(grid)
    seconds, under_way, done = perf_counter(), {}, 0
    while done < MESSAGES:
        busy = list(under_way.values())
        new = [node for node in grid.get_node_ids() for _ in range(2 - busy.count(node))]
        ids = grid.push_messages([message(node) for node in new]) if new else []
        under_way.update(zip(ids, new, strict=True))
        time.sleep(PAUSE)
        for reply in grid.pull_messages(list(under_way)):
            under_way.pop(reply.metadata.reply_to_message_id)
            done += 1
    note(context.run_config["times"], wall=perf_counter() - seconds)


@fedres_client.train()
def fedres_train(message, context):
    seconds = process_time()
    reply = client_app.train(message, context)
    note(context.node_config["times"], client=IMPORTING + process_time() - seconds)
    return reply


@fedres_server.main()
def fedres_main(grid, context):
    from fedres.flower import server_app
    from fedres.flower.server_state import ServerState

    spent = [0.0]

    def timed(call):
        def timing(*arguments):
            seconds = process_time()
            try:
                return call(*arguments)
            finally:
                spent[0] += process_time() - seconds

        return timing

    for name in ("tasks", "receive"):  # `tasks` saves the checkpoint, too
        setattr(ServerState, name, timed(getattr(ServerState, name)))
    settings = server_app.AppSettings.from_config(context.run_config)
    wait_for_nodes(grid)
    state = ServerState(settings, Path(settings.folder))
    post, seconds = server_app.Post(grid, state), perf_counter()
    loops = []
    while state.version < MESSAGES:
        before, spent[0] = state.version, 0.0
        post.send()
        time.sleep(PAUSE)
        post.collect()
        loops.append((spent[0], state.version - before))
    note(
        Path(settings.folder).with_name(TIMES),
        wall=perf_counter() - seconds,
        uploads=state.version,
        server=per_upload(loops),
    )


def per_upload(loops):
    """Seconds for each upload; looking in vain counts to the next that comes."""
    found, spent = [], 0.0
    for seconds, uploads in loops:
        spent += seconds
        if uploads:
            found += [spent / uploads] * uploads
            spent = 0.0
    return found


def wait_for_nodes(grid):
    while len(list(grid.get_node_ids())) < NODES:
        time.sleep(0.2)


def note(path, **times):
    with open(path, "a") as file:
        file.write(json.dumps(times) + "\n")


# The measurement.


def main():
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Three nodes, 32 global and 32 local features", box=box.SIMPLE_HEAD)
    for column in (
        "rows a message",
        "floor, s a message",
        "fedres, s a message",
        "rows a second",
        "Flower's process, s",
        "fedres code: client, s",
        "server, s",
        "fedres / Flower",
    ):
        table.add_column(column, justify="right")
    for rows in (1000, 10_000):
        with TemporaryDirectory(prefix="fedres-") as folder:
            floor, lines = measure(Path(folder), rows)
        run = next(line for line in lines if "wall" in line)
        wall, own = floor[0]["wall"] / MESSAGES, run["wall"] / run["uploads"]
        empty = mean([line["empty"] for line in lines if "empty" in line])
        # The first message of a node reads its table, once for the whole run.
        client = mean([line["client"] for line in lines if "client" in line][NODES:])
        # The first upload waits for the compiler, once for the whole installation.
        server = mean(run["server"][1:])
        table.add_row(
            f"{rows:,}",
            f"{wall:.2f}",
            f"{own:.2f}",
            f"{rows / own:,.0f}",
            f"{empty:.2f}",
            f"{client:.3f}",
            f"{server:.3f}",
            f"{(client + server) / empty:.0%}",
        )
    Console(width=110).print(table)


def measure(folder, rows):
    from dataclasses import replace

    from fedres.core.messages import upload_bytes
    from fedres.flower.app_folder import settings_like
    from fedres.flower.local_cluster import Cluster

    write_table(folder / "rows.csv")
    columns = [f"x{j}" for j in range(2 * WIDTH)]
    settings = settings_like(
        folder / "rows.csv", label="y", global_=columns[:WIDTH], local=columns[WIDTH:]
    )
    settings = replace(
        settings,
        rows_per_message=rows,
        passes=0,
        rounds=10**6,
        bind_names=False,
        folder=str(folder / "run"),
    )
    size = int(upload_bytes(rows, rows * settings.width_global, 32, sparse=False))
    write_app(folder / "empty", "empty", {"size": size, "times": str(folder / "floor.jsonl")})
    write_app(folder / "ours", "fedres", settings.to_config())
    with Cluster(folder / "cluster") as cluster:
        for k in range(NODES):
            cluster.start_node(
                f"node-{k}",
                {
                    "client": f"node-{k}",
                    "data": str(folder / "rows.csv"),
                    "state": str(folder / "state"),
                    "times": str(folder / TIMES),
                },
            )
        for app in ("empty", "ours"):
            run = cluster.flwr.run(folder / app, {})
            while not cluster.flwr.status(run).startswith("finished"):
                time.sleep(5)
    return [
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("floor.jsonl", TIMES)
    ]


def write_table(path):
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2 * WIDTH))
    frame = pd.DataFrame(x.round(4), columns=[f"x{j}" for j in range(2 * WIDTH)])
    frame["y"] = np.sign(x.sum(axis=1) + rng.normal(size=ROWS)).astype(int)
    frame.to_csv(path, index=False)


def write_app(folder, name, config):
    folder.mkdir()
    parts = {"serverapp": f"flower:{name}_server", "clientapp": f"flower:{name}_client"}
    app = {"publisher": "fedres", "components": parts, "config": config}
    project = {"name": folder.name, "version": "1.0.0", "license": "Apache-2.0"}
    project |= {"description": "A benchmark", "dependencies": []}
    pyproject = {"project": project, "tool": {"flwr": {"app": app}}}
    (folder / "pyproject.toml").write_text(tomli_w.dumps(pyproject))


if __name__ == "__main__":
    import os

    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, here)
    main()
