"""Local columns that a client alone has: how they are encoded is its own affair.

The app says which columns the server sees, and how they become features; that must be the same for
all. What a local model sees need not be: a node may name local columns of its own table, which take
the place of the app's. Nobody else learns of them, not even their names or how many there are.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedres.core.files import whole_file
from fedres.flower.app_settings import AppSettings

OWN = "columns.json"


def own_settings(
    settings: AppSettings, node: Mapping[str, Any], client: str, folder: Path
) -> AppSettings:
    """The app's settings with the local columns that a node's configuration names, if any.

    ``local`` names columns of its table, as a,b or a wildcard, ``categorical`` those of them that
    are numbers and mean categories. Means, spreads and categories are learned once and stay in the
    client's folder. ``width-local`` is for rows that a function yields.
    """
    if "width-local" in node:
        return replace(settings, width_local=int(node["width-local"]))
    if "local" not in node:
        return settings
    local, categorical = (_listed(node.get(name)) for name in ("local", "categorical"))
    key = hashlib.sha256(repr((local, categorical, settings.features)).encode()).hexdigest()
    path = folder / OWN
    kept: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # not there, or damaged
        kept = json.loads(path.read_text(encoding="utf-8"))
    if kept.get("key") != key:
        kept = {"key": key, **_learned(settings, node, client, local, categorical)}
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(json.dumps(kept).encode())
    return replace(settings, width_local=kept["width"], features=kept["features"])


def _learned(
    settings: AppSettings,
    node: Mapping[str, Any],
    client: str,
    local: list[str],
    categorical: list[str],
) -> dict[str, Any]:
    from fedres.flower.samples import rows_of, table_of
    from fedres.tables.encoder import Encoder

    frame: Any = rows_of(settings, table_of(settings, node), client, categorical).frame
    app = Encoder.from_dict(settings.table["encoder"])
    own = Encoder.fit(frame, local=local, global_=[], categorical=categorical)
    public = tuple(app.columns[k] for k in app.global_)
    last = len(public) + len(own.columns)
    encoder = Encoder(
        "table", (*public, *own.columns), tuple(range(len(public))), tuple(range(len(public), last))
    )
    described = {"columns": [str(name) for name in frame.columns], "encoder": encoder.to_dict()}
    return {"width": own.width_local, "features": json.dumps(described)}


def _listed(text: Any) -> list[str]:
    return [name for name in str(text or "").split(",") if name]
