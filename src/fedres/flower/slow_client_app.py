"""A ClientApp for nodes that are to be slow, in the demo and in tests."""

import time

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedres.flower import client_app

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer as fedres does, `wait` seconds of the node's configuration later."""
    reply = client_app.train(message, context)
    time.sleep(float(context.node_config.get("wait", 0)))
    return reply
