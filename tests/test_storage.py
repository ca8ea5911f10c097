import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.testing import assert_array_equal

from fedres.core.files import LOCK, locked
from fedres.tables.storage import ids as storage_ids
from fedres.tables.storage import index, open_folder, pack_ids, reading, unpack_ids, write

META = {"loss": "squared", "eta": 0.1, "nested": {"names": ["a", "ä"], "none": None}}
ARRAYS = {
    "global": {"weights": np.float32([1, 2, 3]), "squares": np.float32([4, 5, 6])},
    "clients": {
        **pack_ids(["cyd", "ann", "bob"]),
        "start": np.array([0, 2, 2, 5]),
        "weights": np.arange(5, dtype=np.float32),
    },
}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "model", META, ARRAYS)
    return tmp_path / "model"


def same(stored, meta=META, groups=ARRAYS):
    stored.verify()
    assert stored.meta == meta
    for name, arrays in groups.items():
        found = stored.group(name)
        assert set(found) == set(arrays)
        for key, array in arrays.items():
            assert found[key].dtype == array.dtype
            assert_array_equal(found[key], array)


def files(folder):
    return [path for path in folder.iterdir() if path.name != LOCK]


def group_file(folder, name):
    (path,) = folder.glob(f"{name}-*.safetensors")
    return path


# Round trips


def test_what_was_written_is_read(folder):
    same(open_folder(folder))
    assert "global" in open_folder(folder)
    assert "other" not in open_folder(folder)
    # only the index and one file a group, and nothing but plain data in them
    assert sorted(path.suffix for path in files(folder)) == [
        ".json",
        ".safetensors",
        ".safetensors",
    ]
    text = json.loads((folder / "model.json").read_text())
    assert (text["format"], text["version"]) == ("fedres model", 1)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
any_array = arrays_of.arrays(
    st.sampled_from(["f4", "f8", "f2", "i4", "i8", "u1", "u8", "?", ">f4", ">i8"]),
    arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(
    st.dictionaries(st.text(), json_values, max_size=4),
    st.dictionaries(
        st.from_regex(r"\w{1,8}", fullmatch=True),
        st.dictionaries(st.text(min_size=1), any_array, max_size=3),
        max_size=3,
    ),
)
def test_anything_survives_storage(tmp_path_factory, meta, groups):
    folder = tmp_path_factory.mktemp("model")
    write(folder, meta, groups)
    stored = open_folder(folder)
    stored.verify()
    assert stored.meta == meta
    for name, arrays in groups.items():
        found = stored.group(name)
        assert set(found) == set(arrays)
        for key, array in arrays.items():
            assert found[key].dtype == array.dtype.newbyteorder("=")
            assert found[key].shape == array.shape
            assert found[key].tobytes() == array.astype(found[key].dtype).tobytes()


@given(any_array.filter(lambda array: array.ndim), st.integers(0, 5), st.none() | st.integers(0, 5))
def test_slices_are_those_of_numpy(tmp_path_factory, array, a, b):
    folder = tmp_path_factory.mktemp("model")
    array = np.nan_to_num(array)
    write(folder, {}, {"g": {"array": array, "turned": array.T}})
    stored = open_folder(folder)
    assert_array_equal(stored.slice("g", "array", a, b), array[a:b])
    assert_array_equal(stored.slice("g", "turned", a, b), array.T[a:b])


# Client ids

ids = (
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True)
    | st.lists(st.text(), unique=True)
    | st.lists(st.floats(allow_nan=False), unique=True)
    | st.lists(st.booleans(), unique=True)
)


@given(ids, st.text() | st.integers(-5, 5))
def test_ids_are_found_where_they_were(tmp_path_factory, ids, other):
    folder = tmp_path_factory.mktemp("model")
    write(folder, {}, {"clients": pack_ids(ids)})
    stored = open_folder(folder)
    assert unpack_ids(stored.group("clients")).tolist() == ids
    assert [stored.find("clients", id_) for id_ in ids] == list(range(len(ids)))
    if other not in ids:
        assert stored.find("clients", other) is None
    for id_ in (None, (), b"a", float("nan"), "\0"):
        assert stored.find("clients", id_) == (ids.index(id_) if id_ in ids else None)


@pytest.mark.parametrize("kind", [str, int, float])
def test_one_of_many_ids_is_found(tmp_path, kind):
    ids = [kind(i) for i in np.random.default_rng(0).permutation(5000) * 3]
    write(tmp_path, {}, {"clients": pack_ids(ids)})
    stored = open_folder(tmp_path)
    assert [stored.find("clients", id_) for id_ in ids] == list(range(5000))
    for other in (-1, 1, 14_998, 2**80):
        assert stored.find("clients", kind(other)) is None


def test_texts_with_one_hash_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_ids, "hashes", lambda texts: np.uint64([len(t) for t in texts]))
    ids = ["ann", "b", "bob", "cyd", "dd"]
    write(tmp_path, {}, {"clients": pack_ids(ids)})
    stored = open_folder(tmp_path)
    assert [stored.find("clients", id_) for id_ in ids] == list(range(5))
    assert [stored.find("clients", other) for other in ("eve", "f", "four")] == [None] * 3


@pytest.mark.parametrize(
    "ids",
    [
        np.array([3, 1, 2], np.int32),
        np.array(["b", "a"]),
        np.array(["b", "a"], object),
        np.array([2, 1], object),
        [np.int64(2), 1],
        range(3),
        [],
    ],
    ids=repr,
)
def test_ids_as_they_come(ids):
    assert unpack_ids(pack_ids(ids)).tolist() == list(ids)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, "a"], "all numbers or all strings, not int, str"),
        ([None], "all numbers or all strings, not NoneType"),
        ([(1, 2), (3, 4)], "not tuple"),
        (np.array(["2020-01-01"], "M8[D]"), "not date"),
        ([1.0, float("nan")], "none of them NaN"),
        ([2**80], "at most 64 bits"),
        ([1j], "at most 64 bits"),
        (["a", "b", "a"], "client id 'a' occurs 2 times"),
        ([4, 3, 3], "client id 3 occurs 2 times"),
    ],
)
def test_ids_that_will_not_do(ids, message):
    with pytest.raises(ValueError, match=message):
        pack_ids(ids)


def test_one_client_is_read_alone(folder):
    stored = open_folder(folder)
    row = stored.find("clients", "ann")
    assert row == 1
    a, b = stored.slice("clients", "start", row, row + 2)
    assert_array_equal(stored.slice("clients", "weights", a, b), [])
    row = stored.find("clients", "bob")
    a, b = stored.slice("clients", "start", row, row + 2)
    assert_array_equal(stored.slice("clients", "weights", a, b, finite=True), [2, 3, 4])


# Whole or not at all

NEW = {"global": {"weights": np.float32([7])}}


def test_a_model_replaces_another(folder):
    (folder / "README").write_text("mine")
    write(folder, {"new": 1}, NEW)
    same(open_folder(folder), {"new": 1}, NEW)
    assert len(files(folder)) == 3  # the index, one group, and what is not ours
    write(folder, {"new": 1}, NEW)  # the very same again
    same(open_folder(folder), {"new": 1}, NEW)
    assert len(files(folder)) == 3


def test_files_are_as_open_to_others_as_the_folder_of_their_owner_lets_them(folder):
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {0o666 & ~_umask()}


def _umask():
    os.umask(mask := os.umask(0))
    return mask


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", range(1, 19))
def test_whenever_it_is_killed_there_is_the_old_model_or_the_new_one(folder, monkeypatch, step):
    """Every call that touches the disk may be the last one; the dead clear nothing up."""
    calls = []

    def dies_at_step(name, real):
        def call(*args, **kwargs):
            if name == "open" and "wb" not in args:
                return real(*args, **kwargs)
            calls.append(name)
            if len(calls) >= step:
                raise Killed
            return real(*args, **kwargs)

        return call

    for where, name in ((os, "fsync"), (os, "replace"), (Path, "open"), (Path, "unlink")):
        monkeypatch.setattr(where, name, dies_at_step(name, getattr(where, name)))
    two = {**NEW, "clients": {"weights": np.float32([8])}}
    try:
        write(folder, {"new": 1}, two)
    except Killed:
        pass
    else:
        assert calls == ["open", "fsync", "replace", "fsync"] * 3 + ["unlink"] * 2
    monkeypatch.undo()
    if calls[: step - 1].count("replace") == 3:  # two groups, then the index
        same(open_folder(folder), {"new": 1}, two)
    else:
        same(open_folder(folder))
    write(folder, {"new": 2}, NEW)  # the next write clears up
    same(open_folder(folder), {"new": 2}, NEW)
    assert len(files(folder)) == 2


def test_writers_take_turns(folder):
    with ThreadPoolExecutor(1) as other:
        with locked(folder):
            second = other.submit(write, folder, {"new": 1}, NEW)
            time.sleep(0.2)
            same(open_folder(folder))
            assert len(files(folder)) == 3
        second.result()
    same(open_folder(folder), {"new": 1}, NEW)


def test_a_first_write_that_was_killed_can_be_repeated(tmp_path, monkeypatch):
    def killed(*_):
        raise Killed

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(Killed):
        write(tmp_path, META, ARRAYS)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"holds no model: there is no model.json in it"):
        open_folder(tmp_path)
    write(tmp_path, META, ARRAYS)
    same(open_folder(tmp_path))
    assert len(files(tmp_path)) == 3


def test_a_reader_meets_a_writer(folder, monkeypatch):
    old = open_folder(folder)
    read = index.read_index

    def after_a_write(path):
        found = read(path)
        monkeypatch.setattr(reading, "read_index", read)
        write(path, {"new": 1}, NEW)
        return found

    monkeypatch.setattr(reading, "read_index", after_a_write)
    same(open_folder(folder), {"new": 1}, NEW)
    assert_array_equal(old.group("clients")["weights"], ARRAYS["clients"]["weights"])


# Folders that are no models, and models that are damaged


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"holds thesis.tex and no model: save in a new"):
        write(tmp_path, META, ARRAYS)
    with pytest.raises(ValueError, match=r"thesis.tex is a file: name a folder"):
        write(tmp_path / "thesis.tex", META, ARRAYS)
    (tmp_path / "model.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match=r"not that of a fedres model.*delete it first"):
        write(tmp_path, META, ARRAYS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "thesis.tex"]


@pytest.mark.parametrize(
    ("meta", "arrays", "message"),
    [
        ({"eta": float("nan")}, {}, "must be plain JSON"),
        ({"step": object()}, {}, "must be plain JSON: Object of type object"),
        ({}, {"g": {"names": np.array(["a"])}}, "array 'names' of 'g' must hold numbers, not <U1"),
        ({}, {"../g": {}}, "named by letters, digits and _, not '../g'"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_model(folder, meta, arrays, message):
    with pytest.raises(ValueError, match=message):
        write(folder, meta, arrays)
    same(open_folder(folder))


def flip(path, where):
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["global", "clients"])
def test_a_damaged_file_of_arrays_is_named(folder, name):
    path = group_file(folder, name)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for where in range(0, header, 5):
        flip(path, where)
        with pytest.raises(ValueError, match=f"{path.name} is damaged: its header does not match"):
            open_folder(folder)
        path.write_bytes(whole)
    for content in (b"", whole[:-1], whole[:header], whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{path.name} is damaged: it has \d+ bytes, not"):
            open_folder(folder)
    path.write_bytes(whole)
    flip(path, len(whole) - 1)
    with pytest.raises(ValueError, match=f"{path.name} is damaged: its content does not match"):
        open_folder(folder).verify()
    path.unlink()
    with pytest.raises(ValueError, match=f"{path.name} is missing: the model is damaged"):
        open_folder(folder)


def test_a_flaw_in_one_group_is_not_met_by_readers_of_another(folder):
    flip(group_file(folder, "clients"), -1)
    stored = open_folder(folder)
    assert_array_equal(stored.group("global")["weights"], [1, 2, 3])


def test_a_damaged_index_is_refused(folder):
    path = folder / "model.json"
    whole = path.read_bytes()
    for where in range(0, len(whole), 5):
        flip(path, where)
        with pytest.raises(ValueError, match=r"model.json") as caught:
            open_folder(folder)
        assert "\n" not in str(caught.value)
        path.write_bytes(whole)
    for content in (b"", whole[: len(whole) // 2], b"[]", b"null", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"model.json is"):
            open_folder(folder)


def test_another_version_is_refused(folder):
    path = folder / "model.json"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(
        ValueError, match=r"model.json has version 2 of the format and is by fedres"
    ):
        open_folder(folder)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"g": {"file": "../x-0123456789abcdef.safetensors"}}, "cannot be a file of a model"),
        ({"g": {}}, r"model.json lacks what a model has: KeyError\('file'\)"),
        (None, r"model.json lacks what a model has"),
    ],
)
def test_an_index_that_someone_made(folder, groups, message):
    (folder / "model.json").write_bytes(index.index_text({}, groups))
    with pytest.raises(ValueError, match=message):
        open_folder(folder)


def test_what_is_expected_and_absent(folder):
    stored = open_folder(folder)
    with pytest.raises(ValueError, match="has no arrays 'extra'"):
        stored.group("extra")
    with pytest.raises(ValueError, match=r"global-\w+.safetensors is damaged: it has no array 'x'"):
        stored.slice("global", "x", 0)
    with pytest.raises(ValueError, match="it has no array 'ids_key'"):
        stored.find("global", 3)
    with pytest.raises(ValueError, match=r"holds no model: there is no model.json"):
        open_folder(folder.parent)


def test_weights_that_are_not_finite(tmp_path):
    write(tmp_path, {}, {"g": {"w": np.float32([1, np.nan]), "n": np.array([3])}})
    stored = open_folder(tmp_path)
    assert np.isnan(stored.group("g")["w"][1])
    for read in (
        lambda: stored.group("g", finite=True),
        lambda: stored.slice("g", "w", 1, 2, finite=True),
    ):
        with pytest.raises(ValueError, match="safetensors is damaged: 'w' has values that are not"):
            read()
    assert_array_equal(stored.slice("g", "w", 0, 1, finite=True), [1])


def test_nothing_heavy_is_imported():
    code = "import sys, fedres.tables.storage; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"numba", "pandas"}.isdisjoint(done.stdout.split())
