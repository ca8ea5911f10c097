"""Vowpal Wabbit's ``dsjson``, there and back: one JSON line a decision, as its services log them.

    {"Version": "1", "EventId": "anna:019e3c5f2a1b4c5d", "Timestamp": "2026-11-16T12:00:00.250Z",
     "a": [2, 1], "p": [0.9, 0.1],
     "c": {"User": {"client": "anna"}, "_multi": [{"g": {"0": 0.5}}, {"g": {"1": 2.0}}]},
     "_label_cost": -1.0, "_label_probability": 0.9, "_label_Action": 2, "_labelIndex": 1}

Actions are counted from 1, the one that was chosen comes first, and costs are negative rewards.
What fedres has written comes back as it was; features of others are hashed.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fedres.bandits.logs import Event, events_in
from fedres.core.types import Matrix

WIDTH = 2**12
_SIDES = {"g": "contexts_global", "l": "contexts_local"}


def write_dsjson(events: Iterable[Event], path: str | Path) -> int:
    """Write events for Vowpal Wabbit (``vw --dsjson --cb_adf``); returns how many.

    The global features are the namespace ``g``, the local ones ``l``, and the client is
    ``client`` in the namespace ``User``: ``-q Ug`` lets Vowpal Wabbit tell clients apart. Events
    whose reward is not known have no label.
    """
    count = 0
    with open(path, "w", encoding="utf-8") as file:
        for count, event in enumerate(events, 1):  # noqa: B007
            file.write(json.dumps(_as_dsjson(event), separators=(",", ":")) + "\n")
    return count


def read_dsjson(path: str | Path, client: str | None = None, width: int = WIDTH) -> Iterator[Event]:
    """Read events of ``dsjson`` one by one; a broken line is a ValueError with its number.

    Parameters
    ----------
    path
        The file.
    client
        Of logs that others wrote: where in the shared context the client is, such as
        ``User.id``. None if all decisions are one client's.
    width
        Their features, those of actions and the products of these with shared ones, are hashed
        to so many columns, the same in both views.
    """
    turns: dict[Any, int] = {}

    def read(line: bytes) -> Event:
        fields = json.loads(line)
        if "fedres" in fields:
            return Event.from_fields(_ours(fields))
        who = _client_of(fields["c"], client)
        turns[who] = turns.get(who, 0) + 1
        return Event.from_fields(_theirs(fields, width) | {"client": who, "turn": turns[who]})

    return events_in(path, read)


def _as_dsjson(event: Event) -> dict[str, Any]:
    first = event.action
    order = [first, *(a for a in range(len(event.probabilities)) if a != first)]
    views = {key: getattr(event, name) for key, name in _SIDES.items()}
    actions: list[dict[str, Any]] = [{} for _ in order]
    for key, x in views.items():
        for action, row in zip(actions, _as_dicts(x), strict=True):
            if row:
                action[key] = row
    label = {} if event.reward is None else {"_label_cost": -event.reward}
    when = datetime.fromtimestamp(event.time or 0, UTC).isoformat(timespec="microseconds")
    return {
        **label,
        "_label_probability": event.probability,
        "_label_Action": first + 1,
        "_labelIndex": first,
        "Version": "1",
        "EventId": str(event.id),
        "Timestamp": when.replace("+00:00", "Z"),
        "a": [a + 1 for a in order],
        "c": {"User": {"client": str(event.client)}, "_multi": actions},
        "p": event.probabilities[order].tolist(),
        "VWState": {"m": "{}/{}".format(*event.model) if event.model else "N/A"},
        # What dsjson has no place for; Vowpal Wabbit passes over it.
        "fedres": {
            "client": event.client,
            "id": event.id,
            "turn": event.turn,
            "time": event.time,
            "model": event.model,
            "expired": event.expired,
            "views": {key: [x.shape[1], isinstance(x, np.ndarray)] for key, x in views.items()},
        },
    }


def _choice(fields: dict[str, Any]) -> dict[str, Any]:
    """What was chosen, and what it brought."""
    order, actions = [a - 1 for a in fields["a"]], fields["c"]["_multi"]
    if sorted(order) != list(range(len(actions))):
        raise ValueError(f"its actions are {fields['a']}, and it has {len(actions)} of them")
    probabilities = np.empty(len(order))
    probabilities[order] = fields["p"]
    cost = fields.get("_label_cost")
    reward = None if cost is None else -float(cost)
    return {"action": order[0], "probabilities": probabilities, "reward": reward}


def _ours(fields: dict[str, Any]) -> dict[str, Any]:
    more, actions = fields["fedres"], fields["c"]["_multi"]
    views = {
        name: _as_matrix([action.get(key, {}) for action in actions], *more["views"][key])
        for key, name in (("g", "global"), ("l", "local"))
    }
    return {**more, **_choice(fields), **views}


def _theirs(fields: dict[str, Any], width: int) -> dict[str, Any]:
    x, told = _hashed(fields["c"], fields["c"]["_multi"], width), _choice(fields)
    if "Timestamp" in fields:
        told["time"] = datetime.fromisoformat(fields["Timestamp"]).timestamp()
    return {"id": fields["EventId"], "global": x, "local": x, **told}


def _as_dicts(x: Matrix) -> list[dict[str, float]]:
    if isinstance(x, np.ndarray):
        x = sparse.csr_array(x)
    # The shortest decimals that give the same float32.
    values = [float(text) for text in x.data.astype(str)]
    return [
        dict(zip(map(str, x.indices[a:b].tolist()), values[a:b], strict=True))
        for a, b in zip(x.indptr[:-1], x.indptr[1:], strict=True)
    ]


def _as_matrix(rows: list[dict[str, float]], width: int, dense: bool) -> Matrix:
    x = np.zeros((len(rows), width), np.float32)
    for a, row in enumerate(rows):
        for name, value in row.items():
            x[a, int(name)] = value
    return x if dense else sparse.csr_array(x)


def _client_of(context: dict[str, Any], path: str | None) -> int | str:
    found: Any = context
    for name in path.split(".") if path else ():
        if not isinstance(found, dict) or name not in found:
            raise ValueError(f"it has no {path!r} in its context to name the client by")
        found = found[name]
    return found if path and isinstance(found, int) else str(found) if path else 0


def _hashed(context: dict[str, Any], actions: list[Any], width: int) -> Matrix:
    from sklearn.feature_extraction import FeatureHasher

    shared = dict(_flat({name: x for name, x in context.items() if name != "_multi"}))
    rows = []
    for action in actions:
        own = dict(_flat(action))
        crossed = {f"{a}^{b}": x * y for a, x in shared.items() for b, y in own.items()}
        rows.append(own | crossed)
    hasher = FeatureHasher(width, dtype=np.float32)
    return sparse.csr_array(hasher.transform(rows))


def _flat(part: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Features by name: numbers as they are, texts as ``name=text``, lists by place."""
    if isinstance(part, dict):
        for key, value in part.items():
            if not key.startswith("_"):  # those are Vowpal Wabbit's own
                yield from _flat(value, f"{name}.{key}" if name else key)
    elif isinstance(part, list):
        for place, value in enumerate(part):
            yield from _flat(value, f"{name}.{place}")
    elif isinstance(part, str):
        yield f"{name}={part}", 1.0
    elif part is not None and part is not False:
        yield name, float(part)
