"""Generated clients of the kind that FedRes is made for: little data each, alike and yet different.

A shop wants to know which customers will buy. Of the 24 features of a customer 20 matter as much
in every shop, and are global. The other 4, which a shop keeps to itself, matter in every shop
otherwise: their weights are drawn anew for each. A customer buys (label 1) or not (-1) by the sign
of the weighted features, with some noise.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from fedres.simulation.federation import Federation

FEATURES, OWN = 24, 4
SAMPLES, TEST_SAMPLES = 100, 100
DIFFERENCE, NOISE = 1.5, 1.7


def generate_shops(clients: int, seed: int) -> Federation:
    """Deal so many shops.

    Examples
    --------
    >>> federation = generate_shops(clients=50, seed=0)
    >>> federation.train.counts[:3]
    array([100, 100, 100])
    """
    rng = np.random.default_rng(seed)
    weights = np.tile(rng.normal(size=FEATURES), (clients, 1))
    weights[:, -OWN:] = DIFFERENCE * rng.normal(size=(clients, OWN))

    def customers(each: int) -> tuple[Any, ...]:
        shop = np.repeat(np.arange(clients), each)
        x = rng.normal(size=(len(shop), FEATURES)).astype(np.float32)
        draw = (x * weights[shop]).sum(axis=1) + NOISE * rng.normal(size=len(shop))
        y = np.where(draw > 0, 1, -1).astype(np.float32)
        return x[:, :-OWN], x[:, -OWN:], y, shop

    train, test = customers(SAMPLES), customers(TEST_SAMPLES)
    dealt = Federation.from_arrays(*train, test=test, name="shops")
    return replace(dealt, facts={"samples": SAMPLES, "redraws": 0})
