"""Array types used throughout."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
if TYPE_CHECKING:
    from scipy import sparse

    Matrix = F32 | sparse.csr_array
else:
    # Not imported for its name's sake: a Flower client starts anew for every message.
    Matrix = F32
