"""A sweep over the machines of a Ray cluster."""

import logging
import os
from collections.abc import Iterator
from typing import Any

from fedres.simulation.parallel import with_bar
from fedres.simulation.sweep import Case, run_group


def run_on_ray(
    groups: list[dict[str, Case]], progress: str | None
) -> Iterator[dict[str, dict[str, Any]]]:
    """Results as they come. Every machine needs fedres and the data sets (FEDRES_DATA)."""
    try:
        import ray
    except ImportError:
        raise ValueError("the Ray backend needs Ray: pip install 'fedres[ray]'") from None

    if not ray.is_initialized():
        # A cluster if RAY_ADDRESS names one; otherwise this machine, and no one else may connect.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        local: dict[str, Any] = (
            {} if "RAY_ADDRESS" in os.environ else {"_node_ip_address": "127.0.0.1"}
        )
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **local)
    run = ray.remote(_run)
    data_folder = os.environ.get("FEDRES_DATA")

    def results() -> Iterator[dict[str, dict[str, Any]]]:
        waiting = [run.remote(group, data_folder) for group in groups]
        while waiting:
            ready, waiting = ray.wait(waiting)
            yield from ray.get(ready)

    return with_bar(results(), len(groups), progress)


def _run(group: dict[str, Case], data_folder: str | None) -> dict[str, dict[str, Any]]:
    if data_folder is not None:
        os.environ.setdefault("FEDRES_DATA", data_folder)
    return run_group(group)
