"""A ClientApp for nodes that are to be slow, in the demo and in tests."""

import time

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedres.flower import client_app
from fedres.flower.log import LOG

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer as fedres does, `wait` seconds of the node's configuration later."""
    reply = client_app.train(message, context)
    wait = context.node_config.get("wait", 0)
    if isinstance(wait, int | float):
        time.sleep(max(0, wait))
    else:  # to raise would send the text to the server
        LOG.error("fedres: wait in --node-config is no number: %r", wait)
    return reply
