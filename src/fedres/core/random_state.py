"""States of random number generators that come from a file.

NumPy looks a generator up by any name, and its C code reads a stored position unchecked; so both
are checked here, for bandits and for models of scikit-learn alike.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937,
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.Philox,
        np.random.SFC64,
    )
}
WORDS = {"MT19937": 624, "Philox": 4}  # of the buffers that have a position


def bit_generator(state: Mapping[str, Any]) -> Any:
    """Return a bit generator in this state.

    Examples
    --------
    >>> state = np.random.default_rng(7).bit_generator.state
    >>> bit_generator(state).random_raw() == np.random.default_rng(7).bit_generator.random_raw()
    True
    """
    name = state["bit_generator"]
    if name not in BIT_GENERATORS:
        raise ValueError(f"there is no generator {name!r}, only {', '.join(BIT_GENERATORS)}")
    position = state["state"]["pos"] if name == "MT19937" else state.get("buffer_pos", 0)
    if not 0 <= position <= WORDS.get(name, position):
        raise ValueError(f"the state of {name} has position {position}, outside its buffer")
    bits: Any = BIT_GENERATORS[name]()
    bits.state = state
    return bits
