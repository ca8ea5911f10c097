"""Start a run, show how it goes, and leave a report."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fedres.core.extras import require
from fedres.flower.app_folder import read_app
from fedres.flower.app_settings import AppSettings
from fedres.flower.flwr_command import Flwr
from fedres.flower.run_folder import holds_run, read_log, read_run
from fedres.report.terminal_table import terminal_table

LOOK = 1.0  # seconds between two looks at the checkpoint
ASK = 15.0  # seconds between two questions to the superlink, each of which starts a process
SHOWN = 40  # clients at most, in the terminal
GIVE_UP = 600.0  # seconds in which neither the superlink nor the run gave a sign of life


def launch(
    flwr: Flwr,
    app: Path,
    overrides: Mapping[str, Any],
    options: Sequence[str] = (),
    console: Console | None = None,
) -> AppSettings:
    """Run an app to its end; the settings it ran with, which `overrides` changes.

    The superlink must be on this machine: the run's folder is. `options` are more for `flwr run`.
    """
    settings = read_app(app)
    settings = replace(settings, **{name.replace("-", "_"): v for name, v in overrides.items()})
    settings = replace(settings, folder=str(Path(settings.folder).resolve()))
    folder = Path(settings.folder)
    there = holds_run(folder)
    if there and not settings.resume:
        raise ValueError(
            f"{folder} holds a run: go on with --resume, or name another folder with --out"
        )
    if settings.resume and not there:
        raise ValueError(f"there is no run in {folder}: leave out --resume")
    before = read_run(folder, 0)["seconds"] if there else -1.0
    run = flwr.run(app, {**overrides, "folder": settings.folder}, options)
    try:
        _watch(flwr, run, folder, before, console or Console())
    except KeyboardInterrupt:
        flwr.stop(run)
        raise
    return settings


def _watch(flwr: Flwr, run: str, folder: Path, before: float, console: Console) -> None:
    asked = alive = time.monotonic()
    seen = before
    with Live(console=console, refresh_per_second=2) as live:
        while True:
            time.sleep(LOOK)
            facts = _facts(folder)
            # Until the server has written anew, what is there is of the run that is resumed.
            if facts and facts["seconds"] > before:
                live.update(progress_table(facts))
                if facts["reason"]:
                    return
                if facts["seconds"] > seen:
                    seen, alive = facts["seconds"], time.monotonic()
            if time.monotonic() - asked > ASK:
                asked = time.monotonic()
                try:
                    status = flwr.status(run)
                except ValueError as error:
                    # A superlink that was killed comes back; the run may not even have noticed.
                    console.print(f"The superlink gives no answer: {escape(str(error))[:300]}")
                    if asked - alive > GIVE_UP:
                        raise ValueError(
                            f"neither the superlink nor the run in {folder} has given a sign of "
                            f"life for {GIVE_UP:.0f} s: start the superlink, then go on with "
                            "--resume"
                        ) from None
                    continue
                alive = asked
                if status.startswith("finished") and not (_facts(folder) or {}).get("reason"):
                    words = " ".join(flwr.log(run).split())
                    then = "; --resume goes on with it" if holds_run(folder) else ""
                    raise ValueError(f"the run ended early ({status}){then}: {words[-600:]}")


def _facts(folder: Path) -> dict[str, Any] | None:
    return read_run(folder, SHOWN) if holds_run(folder) else None


def progress_table(facts: Mapping[str, Any]) -> Table:
    """Who is there, how late and how well."""
    rows, members = [], facts["members"]
    of_classes = any(member["accuracy"] is not None for member in members.values())
    most = 12 if of_classes else 16  # letters, for a table of 80 columns
    for name, member in sorted(members.items()):
        seen = f"{time.time() - member['last_seen']:.0f} s"
        seen = "ignored" if member["ignored"] else "done" if member["done"] else seen
        short = name if len(name) <= most else f"{name[: most - 1]}…"
        row = [escape(short), str(member["applied"]), f"{member['loss']:.4f}"]
        row += [f"{member['accuracy']:.0%}" if member["accuracy"] is not None else ""] * of_classes
        row += [f"{member['lag']:.1f}", seen]
        row += [f"{member['held_back'] / max(1, member['applied']):.0%}"]
        rows.append([*row, *(str(sum(member[what].values())) for what in ("refused", "faults"))])
    columns = ["client", "used", "loss", *["right"] * of_classes, "late", "seen", "held"]
    columns += ["refused", "faults"]
    title = f"Round {facts['rounds']:.1f}, {facts['seconds']:.0f} s"
    if facts["reason"]:
        title += f", ended ({facts['reason']})"
    if facts["strangers"]:
        strangers = ", ".join(f"{reason} {count}" for reason, count in facts["strangers"].items())
        title += f"; refused of unknown nodes: {strangers}"
    if (more := facts["clients"] - len(rows)) > 0:
        title += f"; {more:,} more clients"
    return terminal_table(columns, rows, ("client",), title=title)


def write_report(folder: Path, settings: AppSettings) -> Path:
    """The report of a run, from its folder."""
    from fedres.report.flower_page import write_run

    page = folder / "report.html"
    described = {k: v for k, v in settings.to_config().items() if k not in ("features", "resume")}
    write_run(read_run(folder), read_log(folder), described, page)
    return page


def launch_here(app: Path, overrides: Mapping[str, Any], nodes: int) -> AppSettings:
    """Run an app on nodes of Flower's simulation runtime."""
    from tempfile import TemporaryDirectory

    from fedres.flower.local_cluster import Cluster

    require("ray", "--local")
    if nodes < 1:
        raise ValueError(f"--local needs at least one node, not {nodes}")
    if not read_app(app).data:
        raise ValueError(
            "set data in the app: nodes of the simulation runtime have none of their own"
        )
    options = ("--federation-config", f"num-supernodes={nodes} client-resources-num-cpus=1")
    with (
        TemporaryDirectory(prefix="fedres-") as folder,
        Cluster(Path(folder), simulation=True) as cluster,
    ):
        return launch(cluster.flwr, app, {**overrides, "bind-names": False}, options)
