"""The figures of a run in the text format of Prometheus, for scrapers on the same machine."""

from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedres.flower.run_folder import read_run

HOST = "127.0.0.1"  # figures of clients are nobody's business outside
RUN = {
    "rounds": "Rounds so far",
    "version": "Uploads used so far",
    "seconds": "Seconds of work, those before a resume included",
    "clients": "Clients known",
}
CLIENT = {
    "applied": "Uploads used",
    "rows": "Rows used",
    "loss": "Mean progressive loss of the newest upload, as the client says",
    "accuracy": "Share of its rows whose class was predicted, as the client says",
    "lag": "Rounds that the newest upload was late",
    "last_seen": "When it was heard last, in seconds since 1970",
    "bytes_up": "Bytes of its uploads",
    "bytes_down": "Bytes of models sent to it",
    "held_back": "Uploads that were held back",
    "ignored": "Whether it is ignored",
    "done": "Whether it has no more rows",
}


def metrics(facts: Mapping[str, Any]) -> str:
    """What `read_run` found, as text.

    Examples
    --------
    >>> facts = {"rounds": 2.5, "version": 5, "seconds": 9.0, "clients": 0, "members": {}}
    >>> print(metrics(facts).splitlines()[2])
    fedres_rounds 2.5
    """
    return "".join(f"{line}\n" for line in _lines(facts))


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    members = facts["members"].items()
    for name, words in RUN.items():
        yield from _head(name, words)
        yield f"fedres_{name} {float(facts[name]):g}"
    for name, words in CLIENT.items():
        yield from _head(f"client_{name}", words)
        for client, member in members:
            if member[name] is None:  # there are no classes
                continue
            yield f'fedres_client_{name}{{client="{_quoted(client)}"}} {float(member[name])!r}'
    for name, words in {"refused": "Uploads refused", "faults": "Faults of the client"}.items():
        yield from _head(f"client_{name}", words)
        for client, member in members:
            for reason, count in member[name].items():
                labels = f'client="{_quoted(client)}",reason="{_quoted(reason)}"'
                yield f"fedres_client_{name}{{{labels}}} {count}"


def _head(name: str, words: str) -> Iterator[str]:
    yield f"# HELP fedres_{name} {words}."
    yield f"# TYPE fedres_{name} gauge"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def metrics_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server of the figures of a run, on this machine alone; port 0 takes a free one."""
    read_run(folder, 0)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = metrics(read_run(folder)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Scrapes are no news."""

    return ThreadingHTTPServer((HOST, port), Handler)
