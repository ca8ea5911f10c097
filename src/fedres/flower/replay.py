"""A run once more in this process: the same rows, order and delays, by the reference objects."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from fedres.core.feature_limit import clipped
from fedres.core.messages import GlobalModel, Upload
from fedres.core.parties import Client, Server
from fedres.flower.app_labels import targets
from fedres.flower.app_settings import AppSettings
from fedres.flower.client_state import RowSource
from fedres.flower.memory import Memory


def replay(
    settings: AppSettings,
    lines: Sequence[Mapping[str, Any]],
    sources: Mapping[str, RowSource],
    output: int = 0,
) -> tuple[list[GlobalModel], dict[str, Client]]:
    """All versions of the global model, and the clients after the last of their uploads.

    `lines` are the log: which upload of whom, made with which global model, in the order of use;
    those that never came to be used are without ``made``. Of several classes, the `output` is one
    against all others: what is learned of the others does not touch it.
    """
    rule = settings.rule
    server = Server(rule, settings.width_global)
    # Local widths may differ from client to client.
    widths = [(settings.width_global, own.take(0, 0)[1].shape[1]) for own in sources.values()]
    clients = {name: Client(rule, *widths[i], client=i) for i, name in enumerate(sources)}
    published = [GlobalModel(0, server.global_.weights.copy(), *server.global_.reach)]
    made: dict[str, list[list[Upload]]] = {name: [] for name in sources}
    by_number = sorted(lines, key=itemgetter("number"))
    plan = {name: [line for line in by_number if line["client"] == name] for name in sources}
    position = dict.fromkeys(sources, 0)
    for line in lines:
        name = line["client"]
        # An upload may have overtaken an earlier one, which the client made first all the same.
        while len(made[name]) <= line["number"]:
            step = plan[name][len(made[name])]
            client = clients[name]
            client.refresh(published[step["made_with"]])
            samples = sources[name].take(position[name], step["rows"])
            made[name].append(_observe(client, samples, settings, output))
            position[name] += step["rows"]
        if "made" in line:
            for upload in made[name][line["number"]]:
                server.apply(upload)
            published.append(server.publish())
    return published, clients


def unused(memory: Memory, settings: AppSettings) -> list[dict[str, Any]]:
    """Uploads that a client has made and the server has not confirmed, as lines of a log."""
    lines = []
    for number, one in memory.outbox.items():
        span = settings.rule.residual_span
        upload = Upload.unpack(one.upload, settings.width_global, span, settings.outputs)
        line = {"client": memory.client, "number": number, "made_with": upload.version}
        lines.append({**line, "rows": len(upload.y)})
    return lines


def _observe(client: Client, samples: Any, settings: AppSettings, output: int) -> list[Upload]:
    x_global, x_local, labels = samples
    y = targets(settings, labels)[output]
    x_global = clipped(x_global, settings.feature_limit)
    uploads = []
    for i in range(len(y)):
        one = slice(i, i + 1)
        upload = client.observe(x_global[one], x_local[one], y[one])
        assert upload is not None  # the rule's batch is one row
        uploads.append(upload)
    return uploads
