"""A thin app directory: settings, and a README with the commands. Its code is fedres itself."""

import json
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedres.flower.app_labels import labels as encode_labels
from fedres.flower.app_settings import AppSettings
from fedres.tables.encoder import Encoder
from fedres.tables.read_table import read_table

Names = list[str] | None
FEW_NUMBERS = 30  # different labels at most that may as well be classes
FEWEST_FOR_ID = 10  # rows that tell an id from a column whose values happen to differ


def settings_like(
    sample: Path,
    *,
    label: str,
    client: str | None = None,
    time: str | None = None,
    local: Names = None,
    global_: Names = None,
    categorical: Names = None,
    allow_ids: bool = False,
    task: Literal["numbers", "classes"] | None = None,
    classes: Names = None,
) -> AppSettings:
    """Settings for tables that look like a sample: which columns, which labels.

    The sample is typical of all clients' tables, such as one made up for the purpose: its means,
    spreads and categories become part of the app, which all parties see. Which columns the server
    may see (`global_`) must be said; columns that look like ids are refused unless allowed. So must
    be the `task` where labels are a few whole numbers; `classes` names them all, those included
    that the sample lacks.
    """
    if global_ is None:
        raise ValueError(
            "say which columns the server may see, row by row: --global age,ward, or --global '*' "
            "for all of them"
        )
    named = [categorical] if isinstance(categorical, str) else categorical or ()
    table = read_table(sample, client=client, label=label, time=time, categorical=named)
    if not hasattr(table.frame, "columns"):
        raise ValueError(f"{sample} has no named columns: give a CSV or Parquet file")
    encoder = Encoder.fit(table.frame, local=local, global_=global_, categorical=categorical)
    if not allow_ids:
        _refuse_ids(table.frame, encoder)
    assert table.y is not None
    columns = {"label": label, "client_column": client or "", "time_column": time or ""}
    labels = _label_settings(table.y, task, classes)
    settings = _settings(table.frame, encoder, labels | columns)
    encode_labels(settings, table.y)
    return settings


def _refuse_ids(frame: Any, encoder: Encoder) -> None:
    """Refuse columns by which rows, and so people, could be known."""
    public = {encoder.columns[k].name for k in encoder.global_}
    for column in encoder.columns:
        values = frame[column.name].dropna()
        known = len(set(values.astype(str)))
        if len(values) < FEWEST_FOR_ID:
            continue
        if column.kind != "number" and 2 * known > len(values):
            raise ValueError(
                f"column {column.name!r} looks like an id ({known} different texts in "
                f"{len(values)} rows), and all of them would become part of the app, which travels "
                "to every node: leave it out of --global and --local, or say --allow-ids"
            )
        whole = values.dtype.kind in "iuf" and (values % 1 == 0).all()
        if whole and column.name in public and known == len(values):
            raise ValueError(
                f"column {column.name!r} looks like an id ({known} different whole numbers in as "
                "many rows), and the server would see it: leave it out of --global, or say "
                "--allow-ids"
            )


def views_of(settings: AppSettings) -> dict[str, list[str]]:
    """The columns of a table by who sees what is made of them."""
    described = settings.table
    encoder = Encoder.from_dict(described["encoder"])
    public = [encoder.columns[k].name for k in encoder.global_]
    own = [encoder.columns[k].name for k in encoder.local]
    neither = [name for name in described["columns"] if name not in {*public, *own}]
    return {"global": public, "local": own, "neither": neither}


def digits_settings() -> AppSettings:
    """Settings for the built-in digits."""
    from fedres.flower.digits import GLOBAL, LOCAL, tables

    frame = tables(3)[0].train.drop(columns="label")
    encoder = Encoder.fit(frame, local=LOCAL, global_=GLOBAL)
    more = {"label": "label", "data": "digits", "rows_per_message": 60, "passes": 0}
    return _settings(frame, encoder, class_settings(["-1", "1"]) | more)


def _settings(frame: Any, encoder: Encoder, more: dict[str, Any]) -> AppSettings:
    described = {"columns": [str(name) for name in frame.columns], "encoder": encoder.to_dict()}
    widths = encoder.width_global, encoder.width_local
    return AppSettings(*widths, features=json.dumps(described), **more)


def class_settings(names: list[str]) -> dict[str, Any]:
    """Settings that follow from the names of all classes."""
    return {"classes": json.dumps(names), "loss": "logistic"}


def _label_settings(y: Any, task: Any, classes: Names) -> dict[str, Any]:
    from fedres.tables.judging import task_of

    if classes is not None and task != "numbers":
        return class_settings(classes)
    found = np.unique(y)
    few = y.dtype.kind in "iuf" and 2 < len(found) <= FEW_NUMBERS and (found % 1 == 0).all()
    if task is None and few:
        raise ValueError(
            f"the label is one of {len(found)} whole numbers, {found[0]:g} to {found[-1]:g}: say "
            "whether these are classes or numbers, by --task"
        )
    if task_of(y, task) == "classes":
        return class_settings([str(label) for label in found.tolist()])
    numbers = found.astype(np.float64)
    mean, scale = float(np.mean(y.astype(np.float64))), float(np.std(y.astype(np.float64)))
    low, high = (float(end - mean) / scale for end in (numbers[0], numbers[-1]))
    # Clients may have labels beyond those of the sample, but not at any distance.
    reach = (high - low) / 2
    ends = {"label_low": low - reach, "label_high": high + reach}
    return {"label_mean": mean, "label_scale": scale, **ends}


def write_app(
    folder: Path, settings: AppSettings, client_app: str = "fedres.flower.client_app:app"
) -> None:
    """Write an app directory, whose name is the app's; nodes run `client_app`, a ``module:name``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_app(Path(folder) / "my-app", AppSettings(3, 2))
    ...     read_app(Path(folder) / "my-app") == AppSettings(3, 2)
    True
    """
    import tomli_w

    name = folder.resolve().name
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,38}", name):
        raise ValueError(
            f"Flower takes no app called {name!r}: use letters, digits and hyphens, a letter first"
        )
    if (folder / "pyproject.toml").exists():
        raise ValueError(f"{folder} holds an app already: name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    project = {
        "name": name,
        "version": "1.0.0",
        "description": "Federated Residual Learning",
        "license": "Apache-2.0",
        "dependencies": ["fedres[flower]"],
    }
    components = {"serverapp": "fedres.flower.server_app:app", "clientapp": client_app}
    app = {"publisher": "fedres", "components": components, "config": settings.to_config()}
    text = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    digits = settings.data == "digits"
    data = 'data="digits" partition-id=0 num-partitions=3' if digits else 'data="/data/clinic.csv"'
    readme = README.format(name=name, data=data)
    (folder / "README.md").write_text(readme, encoding="utf-8")


def read_app(folder: Path) -> AppSettings:
    """The settings in an app directory."""
    import tomllib

    path = folder / "pyproject.toml"
    if not path.exists():
        raise ValueError(f"{folder} holds no app: make one with `fedres flower init {folder}`")
    project = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        config = project["tool"]["flwr"]["app"]["config"]
    except KeyError:
        raise ValueError(f"{path} has no [tool.flwr.app.config]") from None
    return AppSettings.from_config(config)


README = """# {name}

A Flower app that is fedres: the settings are in `pyproject.toml`, under `[tool.flwr.app.config]`.

On this machine alone, with Flower's simulation runtime: `fedres flower run . --local 3`.

On several machines, each with fedres and Flower (`pip install '.[flower]'` in a checkout of
fedres) and
`export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1`:

On the server, behind a proxy that lets only the calls of nodes pass (fedres's deploy/nginx.conf:
anyone who reaches the superlink itself can run apps on it). Name it in `~/.flwr/config.toml`:
`[superlink.server]`, `address = "localhost:8000"`, `root-certificates = "ca.crt"`.

```
flower-superlink --host 127.0.0.1 --port 8000 --database superlink.db \\
  --ssl-ca-certfile ca.crt --ssl-certfile server.pem --ssl-keyfile server.key \\
  --enable-supernode-auth
fedres flower run . --superlink server
```

On each client (its key registered before: `flwr supernode register node.pub server`):

```
flower-supernode --superlink HOST:443 --root-certificates ca.crt \\
  --auth-supernode-private-key node --host 127.0.0.1 \\
  --node-config '{data} state="/var/lib/fedres" client="clinic-3"'
```

`data` is a table or a function as `module:name`; `state` a folder where the local model lives and
must stay; `client` the client's name. fedres's docs/deployment.md says how to make certificates
and keys, and what each party can see.
"""
