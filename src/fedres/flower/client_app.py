"""The Flower ClientApp: carries a task to `ClientState` and its reply back."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedres.core.files import locked
from fedres.flower.app_settings import AppSettings
from fedres.flower.client_state import ClientState
from fedres.flower.log import LOG, set_level
from fedres.flower.model_folder import write_personal
from fedres.flower.own_columns import own_settings
from fedres.flower.samples import open_source
from fedres.flower.wire import LONGEST_NAME, Reply, Task, fit_name

RECORD = "fedres"
OFTEN = 50  # uploads from one personal model to the next, which takes as long as a small message
app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer a message of the server's."""
    node = context.node_config
    client = client_name(node, context.node_id)
    try:
        settings = AppSettings.from_config(context.run_config)
        set_level(str(node.get("log-level", settings.log_level)))
        reply = _work(message, settings, node, client)
    except Exception as error:
        # The words stay here, where they may quote data; the server learns only the kind. Where the
        # error is one of ours, they say what to do; how it came about is for others.
        LOG.error("fedres: client %s could not answer: %s", client, error)
        level = logging.DEBUG if isinstance(error, ValueError) else logging.ERROR
        LOG.log(level, "fedres: where that was", exc_info=True)
        reply = Reply(client, error=type(error).__name__)
    return Message(content_of(reply), reply_to=message)


def content_of(packable: Task | Reply) -> RecordDict:
    """A task or a reply as what Flower carries."""
    head, body = packable.pack()
    return RecordDict({RECORD: ConfigRecord({"head": head, "body": body})})


def _work(message: Message, settings: AppSettings, node: Mapping[str, Any], client: str) -> Reply:
    folder = state_folder(node, settings, client)
    record: Any = message.content[RECORD]
    task = Task.unpack(record["head"], record["body"])
    with locked(folder):
        for part in folder.glob("*.part"):  # of a process that was killed while it wrote
            part.unlink()
        settings = own_settings(settings, node, client, folder)
        state = ClientState(settings, client, folder, open_source(settings, node, client, folder))
        reply = state.work(task)
        LOG.debug(
            "fedres: %s sends uploads %s; the next row is %d%s", client,
            [sent.number for sent in reply.sent], state.memory.position,
            ", which is not there" if reply.done else "",
        )  # fmt: skip
        if settings.features and (task.last or reply.done or state.memory.next % OFTEN == 1):
            write_personal(folder / "model", settings, state.memory)
        return reply


def client_name(node: Mapping[str, Any], node_id: int) -> str:
    """The client's name for itself, which it keeps when its node gets another id."""
    if "client" in node:
        name = str(node["client"])
        if not fit_name(name):
            LOG.error(
                "fedres: the server will refuse the name %r: client in --node-config must have 1 "
                "to %d printable letters", name, LONGEST_NAME,
            )  # fmt: skip
        return name
    return f"client-{node['partition-id']}" if "partition-id" in node else f"node-{node_id}"


def state_folder(node: Mapping[str, Any], settings: AppSettings, client: str) -> Path:
    """Where a client's state lives: a folder a client, as several may share a disk."""
    base = node.get("state") or (settings.data and Path(settings.folder) / "clients")
    if not base:
        raise ValueError("this node has no state folder: name it in --node-config, as state=...")
    return Path(str(base)) / re.sub(r"[^\w.-]", "_", client)
