"""A Ray cluster that is there, or Ray on this machine for this process alone."""

import logging
import os
import socket
from typing import Any

from fedres.core.extras import require


def connect(address: str | None = None, cpus: int | None = None) -> Any:
    """Connect to a cluster, unless this process is connected, and return the module `ray`.

    Parameters
    ----------
    address
        Of the cluster; None for what RAY_ADDRESS names. If that names none, Ray is started on
        this machine, and nobody else may connect.
    cpus
        How many cores a Ray that is started here has; None for all.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    where: dict[str, Any] = {"address": address}
    if address is None:
        # Ray, which reads this when it is imported, would listen on every interface otherwise.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        where = {"address": "local", "_node_ip_address": "127.0.0.1", "num_cpus": cpus}
        where["include_dashboard"] = False
    require("ray", "the Ray backend")
    import ray

    if ray.is_initialized():
        return ray
    try:
        if address is not None:
            _refuse_silent(address)
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **where)
    except OSError:
        raise ValueError(
            f"no Ray cluster answers at {address!r}: start one by ray start --head, or leave out "
            "--address to run on this machine"
        ) from None
    return ray


def _refuse_silent(address: str) -> None:
    """Raise OSError if nobody listens there, for Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()
