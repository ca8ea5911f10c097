"""A superlink and nodes as processes of this machine, for the demo, tests and benchmarks."""

import json
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedres.flower.flwr_command import Flwr, environment, program

HOST = "127.0.0.1"
STARTING = 60.0  # seconds that a superlink may take
STOPPING = 5.0


@dataclass(frozen=True)
class Tls:
    """Files of a superlink's certificate."""

    authority: Path
    certificate: Path
    key: Path


@dataclass
class Cluster:
    """A superlink, and nodes as they are started; all are stopped at the end."""

    folder: Path  # for logs, Flower's own files and the superlink's database
    tls: Tls | None = None  # of the superlink, which then also asks for node keys
    simulation: bool = False  # whether it runs Flower's simulation runtime instead of real nodes
    port: int = 0
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    NAME = "here"

    def __enter__(self) -> "Cluster":
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.flwr_at(self.folder / "flwr", self.port)
        try:
            self.start_superlink()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def flwr(self) -> Flwr:
        """The `flwr` command against this superlink."""
        return Flwr(self.NAME, self.folder / "flwr")

    def flwr_at(self, home: Path, port: int) -> Flwr:
        """The `flwr` command of somebody who has the certificate, against some port."""
        home.mkdir(exist_ok=True)
        security = "insecure = true"
        if self.tls:
            security = f"root-certificates = {json.dumps(str(self.tls.authority))}"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{self.NAME}"\n\n[superlink.{self.NAME}]\n'
            f'address = "{HOST}:{port}"\n{security}\n',
            encoding="utf-8",
        )
        return Flwr(self.NAME, home)

    def start_superlink(self) -> None:
        """Start the superlink, and wait until it answers."""
        security = ["--insecure"]
        if self.tls:
            security = ["--ssl-ca-certfile", str(self.tls.authority), "--enable-supernode-auth"]
            security += ["--ssl-certfile", str(self.tls.certificate)]
            security += ["--ssl-keyfile", str(self.tls.key)]
        command = [*security, "--host", HOST, "--port", str(self.port)]
        command += ["--database", str(self.folder / "superlink.db")]
        command += ["--simulation"] if self.simulation else []
        self._start("superlink", "flower-superlink", command)
        until = time.monotonic() + STARTING
        while not self._answers():
            if self.processes["superlink"].poll() is not None or time.monotonic() > until:
                raise ValueError(f"the superlink did not start: see {self.folder}/superlink.log")
            time.sleep(0.1)

    def start_node(
        self, name: str, config: Mapping[str, Any], key: Path | None = None, port: int | None = None
    ) -> None:
        """Start a node, with its configuration and its private key if there are keys.

        It connects to the superlink, or to that port in front of it.
        """
        security = ["--root-certificates", str(self.tls.authority)] if self.tls else ["--insecure"]
        if key is not None:
            security += ["--auth-supernode-private-key", str(key)]
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        command = [*security, "--superlink", f"{HOST}:{port or self.port}", "--host", HOST]
        command += ["--port", str(free_port()), "--node-config", pairs]
        self._start(name, "flower-supernode", command)

    def kill(self, name: str) -> None:
        """SIGKILL a process and those it started; it can be started again."""
        _kill(self.processes.pop(name))

    def stop(self) -> None:
        """Stop the nodes, then the superlink; what does not end in time is killed."""
        superlink = self.processes.pop("superlink", None)
        for group in (list(self.processes.values()), [superlink] if superlink else []):
            for process in group:
                process.send_signal(signal.SIGTERM)
            until = time.monotonic() + STOPPING
            for process in group:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, until - time.monotonic()))
                _kill(process)
        self.processes.clear()

    def _start(self, name: str, command: str, arguments: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [program(command), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment(FLWR_HOME=str(self.folder / "flwr")),
                # A group of its own: Ctrl-C reaches us alone, and we stop the others in order.
                start_new_session=True,
            )

    def _answers(self) -> bool:
        context = ssl.create_default_context(cafile=self.tls.authority) if self.tls else None
        scheme = "https" if self.tls else "http"
        try:
            address = f"{scheme}://{HOST}:{self.port}/health"
            with urllib.request.urlopen(address, timeout=2, context=context):
                return True
        except (urllib.error.URLError, OSError):
            return False


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all of its group, whose leader it is."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
