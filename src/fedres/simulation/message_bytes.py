"""What the messages of a run weigh."""

import numpy as np

from fedres.core.messages import Ledger, model_bytes, upload_bytes
from fedres.core.types import I64
from fedres.simulation.federation import Federation
from fedres.simulation.settings import Settings


def count_bytes(
    federation: Federation,
    settings: Settings,
    bits: I64,
    packed: bool,
    features: int,
    extra: I64 | int = 0,
) -> Ledger:
    """The size of all uploads and of the global models fetched with them.

    By client, `bits` a residual and `extra` bytes an upload; in all, so many values of features,
    sparse where they are `packed`.
    """
    samples, passes = federation.train.counts, settings.passes
    if settings.rounds is not None:
        samples, passes = settings.seen(federation), 1
    full, rest = np.divmod(samples, settings.batch)

    def size(count: I64) -> I64:
        sizes: I64 = upload_bytes(count, 0, bits, packed) + extra
        return sizes

    batch = np.full_like(samples, settings.batch)
    up = passes * int((full * size(batch) + np.where(rest > 0, size(rest), 0)).sum())
    messages = passes * int((full + (rest > 0)).sum())
    model = model_bytes(federation.width_global + settings.constant)
    return Ledger(up + (8 if packed else 4) * features, messages * model)
