"""Flower's own commands, called with the environment that fedres needs."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedres.core.extras import require

ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # fedres is installed already; nodes without a network could not fetch anything.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    # Ray would listen on every interface otherwise.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Flower's simulation would join a Ray that others have on this machine, and end with it.
    "RAY_ADDRESS": "local",
}


def environment(**more: str) -> dict[str, str]:
    """The environment of this process, with what Flower is to do and not to do."""
    scripts = str(Path(sys.executable).parent)
    path = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, **ENVIRONMENT, **more}


def program(name: str) -> str:
    """One of Flower's programs, from the environment that fedres is installed in."""
    require("flower", "fedres.flower")
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise ValueError(f"there is no {path}: install fedres and Flower into one environment")
    return str(path)


class Flwr:
    """The `flwr` command, against one superlink of the configuration in Flower's folder.

    That folder is `home`, or ~/.flwr.
    """

    def __init__(self, superlink: str, home: Path | None = None) -> None:
        self.superlink = superlink
        self._environment = environment(**({"FLWR_HOME": str(home)} if home else {}))

    def call(self, *arguments: str) -> str:
        """What a call printed; a failure is an error with the last of its words."""
        done = subprocess.run(
            [program("flwr"), *arguments],
            env=self._environment,
            # Where a folder has the superlink's name, flwr takes it for an app.
            cwd=Path(sys.executable).parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            words = " ".join((done.stdout + done.stderr).split())
            raise ValueError(f"`flwr {arguments[0]}` failed: {words[-500:]}")
        return done.stdout

    def run(self, app: Path, settings: Mapping[str, Any], options: Sequence[str] = ()) -> str:
        """Start a run; its id."""
        named = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
        overrides = [part for setting in named for part in ("-c", setting)]
        started = self._ask("run", str(app.resolve()), self.superlink, *overrides, *options)
        return str(started["run-id"])

    def status(self, run: str) -> str:
        """Such as ``running`` or ``finished:completed``."""
        answer = self._ask("list", "--run-id", run, self.superlink)
        try:
            return str(answer["runs"][0]["status"])
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"the superlink does not know run {run}") from None

    def log(self, run: str) -> str:
        """What the server's side of a run has printed."""
        return self.call("log", run, self.superlink, "--show")

    def stop(self, run: str) -> None:
        """End a run."""
        self.call("stop", run, self.superlink)

    def _ask(self, *arguments: str) -> Any:
        answer = self.call(*arguments, "--format", "json")
        try:
            found = json.loads(answer[answer.index("{") :])
        except ValueError:
            words = " ".join(answer.split())
            raise ValueError(f"`flwr {arguments[0]}` answered {words[-200:]!r}") from None
        if not found.get("success", True):
            words = " ".join(str(found.get("error-message")).split())
            raise ValueError(f"`flwr {arguments[0]}` failed: {words}")
        return found
