"""The index of a model's folder, `model.json`: what is in it, and which files are its own."""

import json
import re
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

NAME = "model.json"
FORMAT = "fedres model"
VERSION = 1
# Files of a model beside the index and the lock: groups of arrays, and what a stopped write left.
OURS = re.compile(r"[\w-]+-[0-9a-f]{16}\.(safetensors|part)")
DIGEST = re.compile(rb'\{"sha256": "([0-9a-f]{64})",\n')


def index_text(meta: Any, groups: Any) -> bytes:
    """The index as text that begins with a digest of the rest."""
    body = {
        "format": FORMAT,
        "version": VERSION,
        "fedres": version("fedres"),
        "groups": groups,
        "meta": meta,
    }
    try:
        rest = json.dumps(body, allow_nan=False).encode()[1:]
    except (TypeError, ValueError) as error:
        raise ValueError(f"what describes a model must be plain JSON: {error}") from None
    return b'{"sha256": "%s",\n%s' % (sha256(rest).hexdigest().encode(), rest)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it has the number {name}, which is not JSON")


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a folder; what is damaged, foreign or of another version is refused."""
    path = folder / NAME
    if not path.is_file():
        raise ValueError(f"{folder} holds no model: there is no {NAME} in it")
    text = path.read_bytes()
    try:
        index = json.loads(text, parse_constant=_refuse_constant)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{path} is damaged or not that of a model: {error}") from None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise ValueError(f"{path} is not that of a fedres model: give the folder of one")
    if index.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {index.get('version')} of the format and is by fedres "
            f"{index.get('fedres')}, this fedres reads version {VERSION}: use a matching fedres"
        )
    digest = DIGEST.match(text)
    if not digest or sha256(text[digest.end() :]).hexdigest() != digest[1].decode():
        raise ValueError(f"{path} is damaged: its content does not match its digest")
    return index
