"""A user's table as a world for bandits: `fedres bandit --table`."""

import re
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from fedres.cli import table_options as shared

if TYPE_CHECKING:
    from fedres.bandits.replayed_rows import Replay

_CONDITION = re.compile(r"(?P<column>.+?)\s*>=\s*(?P<least>[-+\d.eE]+)")


class ReplayColumns(NamedTuple):
    """Which columns are what, as options say it."""

    table: str
    client: str | None
    action: str | None
    reward: str | None
    categorical: str | None
    local: str | None
    global_: str | None
    ignore: str | None

    def as_options(self, offers: int) -> str:
        """The options that say it again."""
        named = ((f"--{name.rstrip('_')}", value) for name, value in self._asdict().items())
        given = [shlex.quote(str(part)) for pair in named if pair[1] is not None for part in pair]
        return " ".join([*given, "--offers", str(offers)])

    def world(self, offers: int, as_json: bool) -> "Replay":
        """Read the table; clients are offered what they have rows of."""
        import numpy as np

        from fedres.bandits.replayed_rows import Replay
        from fedres.simulation.parallel import working
        from fedres.tables.encoder import Encoder

        client, action, reward = self.client, self.action, self.reward
        if client is None or action is None or reward is None:
            raise ValueError("--table needs --client, --action and --reward, each a column of it")
        condition = _CONDITION.fullmatch(reward)
        column = condition["column"] if condition else reward
        categorical = ",".join(filter(None, (self.categorical, action)))
        columns = shared.ColumnOptions(
            client, column, None, categorical, self.local, self.global_, self.ignore
        )
        rows = columns.read(self.table)
        frame: Any = rows.frame
        if not hasattr(frame, "columns") or action not in frame:
            raise ValueError(f"{self.table} has no column {action!r} for the action")
        paid = _numbers(rows.y, column, self.table)
        if condition:
            paid = (paid >= float(condition["least"])).astype(float)
        low, high = paid.min(), paid.max()
        if low == high:
            raise ValueError(f"every reward in {self.table} is {low:g}: there is nothing to learn")
        # A client that did the same again has changed its mind: the last row counts.
        whose = np.unique(np.asarray(rows.client, str), return_inverse=True)[1]
        what = np.unique(np.asarray(frame[action].astype(str)), return_inverse=True)[1]
        pairs = (whose * (what.max() + 1) + what)[::-1]
        last = np.sort(len(pairs) - 1 - np.unique(pairs, return_index=True)[1])
        model = columns.estimator(paid, "numbers", None, "linear", 0)
        rows = rows.take(last)
        with shared.quiet():
            shared.how_columns_are_read(rows, column, model, as_json)
            with working("encoding"):
                encoder = Encoder.fit(
                    rows.frame,
                    categorical=model.categorical_features,
                    local=model.local_features,
                    global_=model.global_features,
                )
                encoded = encoder.encode(rows.frame)
                x_global, x_local = encoder.views(encoded)
                _, x_all = encoder.of_method("independent").views(encoded)
        world = Replay.from_arrays(
            whose[last], (paid[last] - low) / (high - low), x_global, x_local, x_all, offers
        )
        if not as_json:
            scale = (
                "" if (low, high) == (0, 1) else f" Rewards from {low:g} to {high:g} are 0 to 1."
            )
            lost = len(np.unique(whose)) - world.clients
            left = f" {lost:,} clients with a single action are left out." if lost else ""
            print(f"{world.clients:,} clients, {len(world.pays):,} rewards.{scale}{left}")
        return world


def _numbers(values: Any, column: str, table: str) -> Any:
    """Rewards as numbers."""
    if values.dtype.kind in "iufb":
        return values.astype(float)
    raise ValueError(
        f"column {column!r} of {table} has {values[0]!r} and is no number: name another reward, or "
        "a condition such as 'rating>=4'"
    )
