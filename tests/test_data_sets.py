import bz2
import gzip
import http.server
import lzma
import threading
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file, load_digits
from typer.testing import CliRunner

from fedres.cli import app
from fedres.simulation import data_files as files
from fedres.simulation import dataset
from fedres.simulation import known_sets as sets
from fedres.simulation.dataset import load_data
from fedres.simulation.known_sets import SETS, KnownSet, SetFiles

COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
TEXT = "3 1:0.5 3:-1\n1 2:0.25\n3 1:1 2:2 3:3\n"
X = np.float32([[0.5, 0, -1], [0, 0.25, 0], [1, 2, 3]])
Y = [3, 1, 3]
TINY = KnownSet(
    "tiny",
    (3, 2),
    3,
    2,
    "these tests",
    (SetFiles(("tiny.scale", "tiny.scale.t")), SetFiles(("tiny", "tiny.t"), divide=4)),
    {"tiny.scale": None, "tiny.scale.t.bz2": None},
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, on disk and in memory."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FEDRES_CACHE", str(folder))
    files._read.cache_clear()
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty FEDRES_DATA, and the set `tiny`."""
    folder = tmp_path / "sets"
    folder.mkdir()
    monkeypatch.setenv("FEDRES_DATA", str(folder))
    monkeypatch.setitem(SETS, "tiny", TINY)
    return folder


def write(path, text=TEXT):
    pack = COMPRESS.get(path.suffix, bytes)
    path.write_bytes(pack(text.encode() if isinstance(text, str) else text))
    return path


def entries(cache):
    return list(cache.rglob("*.*"))


def frame(**columns):
    return pd.DataFrame(columns)


def fedres(*arguments):
    return CliRunner().invoke(app, arguments)


# Files by path


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["own.svm", "own.libsvm", "own.svmlight", "own.scale", "own"])
def test_svmlight_by_path(tmp_path, name, suffix):
    found = load_data(str(write(tmp_path / f"{name}{suffix}")))
    assert found.name == "own"
    np.testing.assert_array_equal(found.x, X)
    np.testing.assert_array_equal(found.y, Y)
    assert (found.x.dtype, found.y.dtype) == (np.float32, np.int64)
    assert found.x.flags.c_contiguous
    assert found.x_test is found.y_test is None


def test_svmlight_that_counts_from_zero(tmp_path):
    dump_svmlight_file(X, Y, str(tmp_path / "zero.svm"))
    np.testing.assert_array_equal(load_data(tmp_path / "zero.svm").x, X)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_tables_by_path(tmp_path, kind, suffix):
    table = frame(a=[0.5, 0, 1], b=[1, 2, 3], c=[True, False, True], d=["x", "z", "x"])
    plain = tmp_path / f"plain{kind}"
    table.to_csv(plain, index=False) if kind == ".csv" else table.to_parquet(plain)
    found = load_data(write(tmp_path / f"own{kind}{suffix}", plain.read_bytes()))
    np.testing.assert_array_equal(found.x, np.float32([[0.5, 1, 1], [0, 2, 0], [1, 3, 1]]))
    np.testing.assert_array_equal(found.y, [0, 1, 0])
    assert (found.x.dtype, found.y.dtype) == (np.float32, np.int64)
    assert found.x.flags.c_contiguous


@pytest.mark.parametrize(
    ("columns", "label"),
    [("label,a,b", 0), ("a,Class,b", 1), ("target,a,b", 0), ("y,label,a", 1), ("a,b,c", 2)],
)
def test_which_column_is_the_label(tmp_path, columns, label):
    found = load_data(write(tmp_path / "own.csv", f"{columns}\n10,20,30\n11,21,31\n10,20,30\n"))
    np.testing.assert_array_equal(found.y, [0, 1, 0])
    np.testing.assert_array_equal(found.x[0], np.delete([10, 20, 30], label))


@pytest.mark.parametrize(
    ("labels", "codes"),
    [
        ([30, -1, 2], [2, 0, 1]),
        (["b", "a", "c"], [1, 0, 2]),
        ([0.5, 0.25, 0.5], [1, 0, 1]),
        ([True, False, True], [1, 0, 1]),
    ],
)
def test_labels_of_any_type_are_numbered_in_order(tmp_path, labels, codes):
    frame(a=[1, 2, 3], label=labels).to_parquet(tmp_path / "own.parquet")
    np.testing.assert_array_equal(load_data(tmp_path / "own.parquet").y, codes)


# Files that are not right


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("kind", [".svm", ".csv", ".parquet"])
def test_a_truncated_file_is_named_and_not_cached(tmp_path, cache, kind, suffix):
    rng = np.random.default_rng(0)
    table = frame(a=rng.random(999), b=rng.random(999), label=rng.integers(5, size=999))
    plain = tmp_path / f"plain{kind}"
    if kind == ".svm":
        dump_svmlight_file(table[["a", "b"]], table["label"], str(plain))
    else:
        table.to_csv(plain, index=False) if kind == ".csv" else table.to_parquet(plain)
    path = write(tmp_path / f"own{kind}{suffix}", plain.read_bytes())
    assert len(load_data(path).y) == 999
    for part in (0.9, 0.5, 0.001):
        cut = tmp_path / f"cut{kind}{suffix}"
        cut.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
        with pytest.raises(ValueError, match=rf"cut\{kind}\{suffix} is cut short or damaged: \w"):
            load_data(cut)
    assert len(entries(cache)) == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.svm", "", "is empty: give a file with rows"),
        ("a.svm", "1\n2\n", "cut short or damaged: it holds no rows"),
        ("a.svm", "1 1:0.5\n2 1:", "line 2 is not svmlight text"),
        ("a.svm", "1 1:0.5\n2 1:nan\n", "cut short or damaged: row 2 has a feature that is not"),
        ("a.svm", "1 1:0.5\n2 1:1e39\n", "cut short or damaged: row 2 has a feature that is not"),
        ("a.svm", "1 1:0.5\nnan 1:1\n", "label nan in row 2"),
        ("a.svm", "1 1:0.5\n1.5 1:1\n", "label 1.5 in row 2"),
        ("a.svm", "1 1:1 2000000000:1\n1 1:1\n1 1:1\n", "2000000000 features, too many"),
        ("a.txt", "some words\n", "line 1 is not svmlight text"),
        ("a.svm.gz", None, "it is not compressed so"),
        ("a.csv", "", "is empty: give a file with rows"),
        ("a.csv", "a,label\n", "has column names and no rows"),
        ("a.csv", "label\n1\n2\n", "cut short or damaged: it holds no rows"),
        ("a.csv", "a,b,label\n1,2,3\n1\n", "line 3 has 1 values for 3 columns"),
        ("a.csv", "a,b,label\n1,2,3\n1,2\n", "line 3 has 2 values for 3 columns"),
        ("a.csv", "a,label\n1,2\ninf,3\n", "cut short or damaged: inf in row 2, column 'a'"),
        ("a.csv", "a,label\n1,2,5\n1,3,5\n", "line 2 has 3 values for 2 columns"),
        ("a.csv", "a,label\n1,2\n1,2,3\n", "line 3 has 3 values for 2 columns"),
        ("a.csv", "0.5,1.5,a\n0.5,2.5,b\n", "its first line holds numbers"),
        ("a.csv", "8,3,8,1\n5,2,1,1\n", "its first line holds numbers"),
        ("a.csv", "a,colour,label\n1,red,1\n2,blue,1\n", "column 'colour' is not numeric.*encode"),
        ("a.parquet", "a,b", "first bytes are not such a file's"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, cache, name, text, message):
    path = tmp_path / name
    path.write_bytes(b"no gzip" if text is None else text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        load_data(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not entries(cache)


def test_unknown_names():
    with pytest.raises(
        ValueError, match=r"'lettre': choose one of digits, shops, letter.*the path of"
    ):
        load_data("lettre")


# The cache


def no_parsing(*_):
    raise AssertionError("parsed again")


def test_the_second_load_comes_from_the_cache(tmp_path, cache, monkeypatch):
    first = load_data(write(tmp_path / "own.svm.gz"))
    assert [entry.suffix for entry in entries(cache)] == [".npz"]
    monkeypatch.setattr(files, "_parse", no_parsing)
    files._read.cache_clear()
    second = load_data(tmp_path / "own.svm.gz")
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.y, second.y)
    assert second.x.flags.c_contiguous


def test_in_one_process_not_even_the_cache_is_read(tmp_path, monkeypatch):
    path = write(tmp_path / "own.svm")
    load_data(path).x[:] = 7  # what one caller does is nothing to the next
    monkeypatch.setattr(files, "_parse", no_parsing)
    monkeypatch.setattr(files, "_recall", no_parsing)
    np.testing.assert_array_equal(load_data(path).x, X)


def test_a_changed_file_is_read_again(tmp_path):
    path = write(tmp_path / "own.svm")
    load_data(path)
    write(path, "2 1:7\n3 1:8\n")
    np.testing.assert_array_equal(load_data(path).y, [2, 3])


@pytest.mark.parametrize("damage", ["empty", "half", "flipped", "garbage", "other", "folder"])
def test_a_damaged_entry_is_made_again(tmp_path, cache, damage):
    path = write(tmp_path / "own.svm")
    load_data(path)
    (entry,) = entries(cache)
    whole = bytearray(entry.read_bytes())
    flipped = whole.copy()
    flipped[whole.index(X.tobytes()) + 1] ^= 1
    if damage == "other":
        np.savez(entry, x=np.zeros(3), y=np.zeros(3))
    elif damage == "folder":
        entry.unlink()
        entry.mkdir()
    else:
        entry.write_bytes(
            {"empty": b"", "half": whole[: len(whole) // 2], "flipped": flipped}.get(damage, b"?")
        )
    files._read.cache_clear()
    if damage == "folder":
        with pytest.warns(UserWarning, match="not cached"):
            np.testing.assert_array_equal(load_data(path).x, X)
        return
    np.testing.assert_array_equal(load_data(path).x, X)
    assert entry.read_bytes() == whole
    assert len(entries(cache)) == 1


def test_an_entry_is_written_whole_or_not_at_all(tmp_path, cache, monkeypatch):
    def full(file, **_):
        file.write(b"half an entry")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(UserWarning, match="No space left"):
        found = load_data(write(tmp_path / "own.svm"))
    np.testing.assert_array_equal(found.x, X)
    assert not entries(cache)


# Sets by name


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("names", [source.files for source in TINY.sources])
def test_names_that_a_set_is_found_under(folder, names, suffix):
    write(folder / (names[0] + suffix))
    write(folder / (names[1] + suffix), "1 1:4\n9 2:8\n")
    found = load_data("tiny")
    scale = 4 if names[0] == "tiny" else 1
    np.testing.assert_array_equal(found.x, X / scale)
    np.testing.assert_array_equal(found.y, Y)  # labels keep their values
    np.testing.assert_array_equal(found.x_test, np.float32([[4, 0, 0], [0, 8, 0]]) / scale)
    np.testing.assert_array_equal(found.y_test, [1, 9])
    assert found.x_test.flags.c_contiguous
    assert (found.name, found.note) == ("tiny", "")


def test_both_parts_come_from_one_source(folder):
    write(folder / "tiny")
    write(folder / "tiny.scale.t", "1 1:4\n9 2:8\n")
    with pytest.raises(ValueError, match="tiny is not here"):
        load_data("tiny")


def test_a_set_with_too_few_rows_is_cut_short(folder, cache):
    write(folder / "tiny.scale", TEXT.split("\n", 1)[1])
    write(folder / "tiny.scale.t", "1 1:4\n9 2:8\n")
    with pytest.raises(ValueError, match=r"tiny.scale is cut short or damaged: it has 2 rows"):
        load_data("tiny")
    assert not entries(cache)
    assert len(load_data(folder / "tiny.scale").y) == 2
    files._read.cache_clear()
    with pytest.raises(ValueError, match=r"tiny.scale is cut short or damaged: it has 2 rows"):
        load_data("tiny")


def test_a_set_with_too_many_features_is_damaged(folder):
    write(folder / "tiny.scale", TEXT.replace("3:3", "33:3"))
    write(folder / "tiny.scale.t", "1 1:4\n9 2:8\n")
    with pytest.raises(ValueError, match="3 rows of 33 features, the set has 3 of 3"):
        load_data("tiny")


def test_what_to_do_where_a_set_is_absent(folder, monkeypatch):
    with pytest.raises(ValueError, match=r"`fedres data get letter`, or put letter.scale and") as a:
        load_data("letter")
    assert f"into {folder} (FEDRES_DATA)" in str(a.value)
    monkeypatch.setenv("FEDRES_DATA", "")
    with pytest.raises(ValueError, match="into a folder and set FEDRES_DATA to it"):
        load_data("letter")
    with pytest.raises(ValueError, match=r"texture is not here: put texture.train.libsvm "):
        load_data("texture")


def test_the_sample_of_sensorless_says_so(folder, monkeypatch):
    monkeypatch.setitem(SETS, "big", KnownSet("big", (9,), 3, 2, "these tests", sample="small"))
    monkeypatch.setitem(
        SETS, "small", KnownSet("small", (3,), 3, 2, "these tests", note="a sample")
    )
    write(folder / "small.train.libsvm")
    found = load_data("big")
    assert (found.name, found.note) == ("small", "a sample")
    write(folder / "big.train.libsvm", "1 1:1\n" * 9)
    found = load_data("big")
    assert (found.name, found.note) == ("big", "")


def test_unscaled_features_are_the_last_resort(folder, monkeypatch):
    known = KnownSet(
        "raw",
        (3,),
        3,
        2,
        "these tests",
        (SetFiles(("raw.s",)), SetFiles(("raw",), note="not scaled")),
    )
    monkeypatch.setitem(SETS, "raw", known)
    write(folder / "raw")
    assert load_data("raw").note == "not scaled"
    write(folder / "raw.train.libsvm", TEXT.replace("0.5", "0.75"))
    found = load_data("raw")
    assert found.note == ""
    assert found.x[0, 0] == 0.75


@pytest.mark.needs_data
@pytest.mark.parametrize("name", ["letter", "pendigits", "satimage", "sensorless2200", "texture"])
def test_real_sets_are_as_the_registry_says(name):
    known = SETS[name]
    if not known.downloads and not files.find(known):
        pytest.skip(f"{name} is not in FEDRES_DATA, and cannot be downloaded")
    found = load_data(name)
    assert found.x.shape == (known.rows[0], known.features)
    assert len(np.unique(found.y)) == known.classes
    if len(known.rows) == 1:
        assert found.x_test is None
    else:
        assert found.x_test.shape == (known.rows[1], known.features)
        np.testing.assert_array_equal(np.unique(found.y_test), np.unique(found.y))
    assert np.abs(found.x).max() == 1


@pytest.mark.needs_data
def test_libsvms_own_files_give_the_same_numbers(tmp_path, monkeypatch):
    name = "pendigits"
    ours = load_data(name)
    for part, x, y in (("", ours.x, ours.y), (".t", ours.x_test, ours.y_test)):
        path = tmp_path / f"{name}{part}"
        dump_svmlight_file((x * 100).round(), y, str(path), zero_based=False)
    monkeypatch.setenv("FEDRES_DATA", str(tmp_path))
    theirs = load_data(name)
    np.testing.assert_array_equal(theirs.x, ours.x)
    np.testing.assert_array_equal(theirs.x_test, ours.x_test)
    np.testing.assert_array_equal(theirs.y_test, ours.y_test)


# Commands


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The LIBSVM site, on this machine."""
    root = tmp_path / "site"
    root.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=root))
    monkeypatch.setattr(sets, "LIBSVM", f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield root
    server.shutdown()
    thread.join()
    server.server_close()


def test_get_downloads_once(folder, site, cache):
    write(site / "tiny.scale")
    write(site / "tiny.scale.t.bz2", "1 1:4\n9 2:8\n")
    done = fedres("data", "get", "tiny", "digits")
    assert done.exit_code == 0, done.exception
    assert "tiny: 3 training rows" in done.output
    assert "digits is already here" in done.output
    np.testing.assert_array_equal(load_data("tiny").x, X)
    assert {path.name for path in (cache / "downloads").iterdir()} == set(TINY.downloads)
    assert "tiny is already here" in fedres("data", "get", "tiny").output


def test_get_does_not_keep_what_is_broken(folder, site, cache):
    write(site / "tiny.scale", "1 1:1\n")
    write(site / "tiny.scale.t.bz2", "1 1:4\n9 2:8\n")
    done = fedres("data", "get", "tiny")
    assert "tiny.scale is cut short or damaged" in str(done.exception)
    assert not any((cache / "downloads").iterdir())


def test_get_checks_the_hash(folder, site, cache, monkeypatch):
    downloads = {"tiny.scale": "md5:" + 32 * "0"}
    known = KnownSet("tiny", (3,), 3, 2, "these tests", (SetFiles(("tiny.scale",)),), downloads)
    monkeypatch.setitem(SETS, "tiny", known)
    write(site / "tiny.scale")
    assert "does not match" in str(fedres("data", "get", "tiny").exception)
    assert not any((cache / "downloads").iterdir())


def test_get_says_what_failed_and_what_to_do(folder, site, monkeypatch):
    done = fedres("data", "get", "tiny")
    assert isinstance(done.exception, ValueError)
    said = str(done.exception)
    assert said.startswith(f"cannot download {sets.LIBSVM}tiny.scale (404 File not found): put ")
    assert "tiny.scale and tiny.scale.t, or tiny and tiny.t, or tiny.train.libsvm and" in said
    assert f"into {folder} (FEDRES_DATA)" in said
    monkeypatch.setattr(sets, "LIBSVM", "http://127.0.0.1:9/")
    assert "(ConnectionError)" in str(fedres("data", "get", "tiny").exception)


def test_get_what_cannot_be_had(folder):
    assert "not on the LIBSVM site: put texture" in str(fedres("data", "get", "texture").exception)
    assert "shops is already here" in fedres("data", "get", "shops").output
    assert "choose one of digits" in str(fedres("data", "get", "tiny", "lettre").exception)


def test_list(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    write(folder / "sensorless2200.train.libsvm.xz")
    write(folder / "letter.scale")
    output = fedres("data", "list").output
    here = {words[0]: words[1] for line in output.splitlines() if len(words := line.split()) > 1}
    assert here["digits"] == here["shops"] == here["sensorless2200"] == "yes"
    assert here["sensorless"] == "sample"
    assert here["letter"] == here["mnist"] == "no"  # letter lacks its test rows
    assert "60,000 / 10,000" in output
    assert "…" not in output
    assert "shops: generated customers" in output
    assert "digits: images of handwritten digits" in output
    assert "`fedres data ratings`" in output
    assert f"Looked in {folder} (FEDRES_DATA)." in output
    monkeypatch.delenv("FEDRES_DATA")
    assert "FEDRES_DATA is not set" in fedres("data", "list").output


@pytest.mark.parametrize("moved", [False, True])
def test_digits_are_those_of_scikit_learn_wherever_it_keeps_them(moved, monkeypatch):
    x, y = load_digits(return_X_y=True)
    if moved:
        monkeypatch.setattr(dataset, "find_spec", lambda _: None)
    else:
        monkeypatch.setattr("sklearn.datasets.load_digits", None)
    found = load_data("digits")
    np.testing.assert_array_equal(found.x, (x / 16).astype(np.float32))
    np.testing.assert_array_equal(found.y, y)
    assert (found.x.dtype, found.y.dtype) == (np.float32, np.int64)
