"""Models on disk: a folder of arrays (safetensors) and an index (JSON); no code is stored or run.

``model.json`` says what the model is, and names the file of every group of arrays with its size
and digests.
"""

from fedres.tables.storage.ids import hashes, pack_ids, pack_keys, unpack_ids
from fedres.tables.storage.reading import Stored, open_folder
from fedres.tables.storage.writing import refuse_foreign, write

__all__ = [
    "Stored",
    "hashes",
    "open_folder",
    "pack_ids",
    "pack_keys",
    "refuse_foreign",
    "unpack_ids",
    "write",
]
