"""The Flower ServerApp: carries tasks and replies between `ServerState` and Flower's grid."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from fedres.core.files import locked
from fedres.flower.app_settings import AppSettings
from fedres.flower.client_app import RECORD, content_of
from fedres.flower.log import LOG, set_level
from fedres.flower.model_folder import write_global
from fedres.flower.server_state import ServerState

PAUSE = 0.2  # seconds between two looks at what has come
FAREWELL = 60.0  # seconds that clients have to fetch the last model
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run until a stop condition is met."""
    settings = AppSettings.from_config(context.run_config)
    folder = Path(settings.folder)
    set_level(settings.log_level)
    end_with_parent()
    # What a superlink that died has left behind may still be at work there, for a moment.
    with locked(folder, patience=60, signed=True):
        state = ServerState(settings, folder)
        serve(grid, state)
        if settings.features:
            write_global(folder / "model", settings, state.global_.weights)
        state.finish()


def end_with_parent(every: float = 1.0) -> None:
    """End this process when the one that started it has ended.

    Flower's grid would try to reach a superlink that was killed for ever, and keep the folder
    locked for whoever resumes. To end at any moment is safe: state on disk is always whole.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        LOG.error("fedres: the superlink is gone; resume the run")
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve(grid: Grid, state: ServerState) -> None:
    """Send the newest model to whoever has room, apply what comes, until it is time to stop."""
    post = Post(grid, state)
    while not (reason := state.finished()):
        post.send()
        time.sleep(PAUSE)
        post.collect()
    LOG.info("fedres: stopped (%s) after round %.1f", reason, state.progress.rounds)
    if absent := state.absent():
        LOG.warning("fedres: not waited for, as absent: %s", ", ".join(absent))
    post.send(last=True)
    until = time.monotonic() + FAREWELL
    while state.flights and time.monotonic() < until:
        time.sleep(PAUSE)
        post.collect()
        state.keep_only(grid.get_node_ids())
    state.reason = reason


class Post:
    """Messages of the grid and the tasks that they carry."""

    def __init__(self, grid: Grid, state: ServerState) -> None:
        self.grid, self.state = grid, state
        self._task_of: dict[str, str] = {}

    def send(self, last: bool = False) -> None:
        """Push the tasks there are."""
        tasks = self.state.tasks(self.grid.get_node_ids(), last)
        if not tasks:
            return
        messages = [
            Message(content_of(task), dst_node_id=node, message_type=MessageType.TRAIN)
            for node, task in tasks
        ]
        ids = list(self.grid.push_messages(messages))
        if len(ids) != len(tasks):
            raise ValueError("the superlink takes no messages this large: use fewer features")
        for message, (_, task) in zip(ids, tasks, strict=True):
            # Flower gives no id to a message that it could not take.
            if message:
                self._task_of[message] = task.task
            else:
                self.state.lost(task.task)

    def collect(self) -> None:
        """Take in the replies that have come."""
        for reply in self.grid.pull_messages(list(self._task_of)):
            task = self._task_of.pop(reply.metadata.reply_to_message_id)
            if reply.has_error():
                self.state.failed(task)
                continue
            record: Any = reply.content.get(RECORD, {})
            self.state.receive(task, record.get("head"), record.get("body"))
        self._task_of = {
            message: task for message, task in self._task_of.items() if task in self.state.flights
        }
