"""Array types used throughout."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Matrix = F32 | sparse.csr_array
