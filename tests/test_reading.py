"""One reading layer: every kind of file, the same rows in memory and in shards."""

import gzip
import json
import lzma
import os
from decimal import Decimal
from pathlib import Path
from threading import Thread
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather, orc, parquet

from fedres.cluster.fit_parts import ColumnRoles, prepare_parts
from fedres.cluster.memory import free_memory
from fedres.reading import csv_files, formats, json_files
from fedres.reading.files import find_files, is_several, refuse_absent_table
from fedres.reading.table_files import TableFiles
from fedres.tables.encoder import Encoder
from fedres.tables.read_table import read_table

CATEGORICAL = ["shop", "serial"]


def put(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# The same table in every kind of file


def as_json_lines(frame):
    return frame.to_json(orient="records", lines=True, date_format="iso", date_unit="s")


def write(frame, folder, kind):
    """Write a table; the order of its columns differs from kind to kind."""
    frame = frame[sorted(frame, reverse=kind in ("jsonl", "feather"))]
    text = frame.to_csv(index=False)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    path = folder / f"table.{kind}"
    if kind == "partitioned":
        parquet.write_to_dataset(arrow, path, partition_cols=["part"])
    elif kind == "two files":
        path.mkdir()
        half = len(frame) // 2
        put(path / "a.csv", frame[:half].to_csv(index=False))
        frame[half:].iloc[:, ::-1].astype({"number": np.float32}).to_parquet(path / "b.parquet")
    elif kind == "csv.zst":
        put(path, pa.compress(text.encode(), "zstd", asbytes=True))
    elif kind == "feather":
        feather.write_feather(arrow, path)
    elif kind == "arrow":
        with pa.ipc.new_stream(path, arrow.schema) as stream:
            stream.write_table(arrow)
    elif kind == "parquet":
        frame.to_parquet(path)
    elif kind == "orc":
        orc.write_table(arrow, path)
    else:
        put(
            path,
            {
                "csv": text,
                "csv.gz": gzip.compress(text.encode()),
                "csv.xz": lzma.compress(text.encode()),
                "tsv": frame.to_csv(index=False, sep="\t"),
                "pipes.csv": frame.to_csv(index=False, sep="|"),
                "utf16.csv": text.encode("utf-16"),
                "jsonl": as_json_lines(frame),
                "json": frame.to_json(orient="records", date_format="iso", date_unit="s"),
            }[kind],
        )
    return path


KINDS = [
    *("csv", "csv.gz", "csv.zst", "csv.xz", "tsv", "pipes.csv", "utf16.csv", "jsonl", "json"),
    *("parquet", "feather", "arrow", "orc", "partitioned"),
]


def encoded(name, ids, folder=None):
    """Encode a table in memory, or in shards; rows are known by their ids and sorted by them."""
    if folder is None:
        table = read_table(name, client="user", label="id", categorical=CATEGORICAL)
        encoder = Encoder.fit(table.frame, categorical=CATEGORICAL)
        views, order = encoder.transform(table.frame), np.argsort(table.y)
        clients = table.client[order].astype(str).tolist()
    else:
        parts = TableFiles.find(str(name), [*CATEGORICAL, "user"])
        prepared = prepare_parts(
            parts,
            ColumnRoles("user", "id"),
            folder,
            memory=10**9,
            task="numbers",
            parameters={"categorical_features": CATEGORICAL},
            shards=1,
        )
        (shard,) = prepared.shards
        records = shard.records()
        encoder, labels = shard.layout.encoder, shard.layout.labels
        order = np.argsort(records["y"])
        assert np.allclose(np.sort(records["y"]), labels.targets(np.sort(ids).astype(float))[0])
        views = encoder.views(shard.layout.table(records))
        clients = shard.clients()[shard.keys()[0]][order].astype(str).tolist()
    features = {}
    for names, x in zip((encoder.names_global, encoder.names_local), views, strict=True):
        dense = np.asarray(x.toarray() if hasattr(x, "toarray") else x)[order]
        features |= dict(zip(names, dense.T, strict=True))
    return features, clients


@st.composite
def tables(draw):
    rows = draw(st.integers(4, 12))

    def column(values):
        return draw(st.lists(values, min_size=rows, max_size=rows))

    day = pd.Timestamp("2020-01-01 10:00:00")
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "user": column(st.sampled_from(["ann", "bob", "007", "cyd x"])),
            "shop": column(st.sampled_from([1, 2, 30])),
            "genre": column(st.sampled_from(["Action|Comedy", "Drama", "Köln"])),
            "text": column(st.sampled_from(['say "no"', "two\nlines", "a,b;c", None])),
            "serial": pd.array(column(st.sampled_from([2**60, 2**60 + 1, None])), "Int64"),
            "number": column(st.sampled_from([0.5, -1.25, 3.0, 1e6, None])),
            "whole": column(st.integers(-(2**40), 2**40)),
            "flag": column(st.booleans()),
            "when": pd.Series(
                [day + pd.Timedelta(days=k) for k in column(st.integers(0, 400))]
            ).astype("datetime64[s]"),
            "part": column(st.sampled_from(["x1", "x2"])),
        }
    )


@pytest.fixture(params=[1, 2], ids=["one CPU", "two CPUs"])
def cpus(request):
    usual = pa.cpu_count()
    pa.set_cpu_count(request.param)
    yield
    pa.set_cpu_count(usual)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), st.sampled_from([*KINDS, "two files"]))
def test_every_kind_of_file_gives_the_same_rows_in_memory_and_in_shards(
    tmp_path_factory, cpus, frame, kind
):
    folder = tmp_path_factory.mktemp("kinds")
    expected = encoded(write(frame, folder, "csv"), frame["id"])
    path = folder / "table.csv" if kind == "csv" else write(frame, folder, kind)
    shards = folder / "shards"
    shards.mkdir()
    for features, clients in (encoded(path, frame["id"]), encoded(path, frame["id"], shards)):
        assert clients == expected[1]
        assert features.keys() == expected[0].keys()
        for name, values in features.items():
            np.testing.assert_allclose(values, expected[0][name], rtol=1e-5, atol=1e-5)


# Hive partitions, and files that differ


@pytest.mark.parametrize("pattern", ["", "/*", "/day=*/*.parquet", "/**/*.parquet"])
def test_columns_of_partitions_are_read(tmp_path, pattern):
    frame = pd.DataFrame({"user": [1, 2, 1], "y": [1.0, 2.0, 3.0]})
    for day, null in (("2020-01-01", False), ("2020-01-02", False), ("", True)):
        folder = tmp_path / "events" / f"day={'__HIVE_DEFAULT_PARTITION__' if null else day}"
        folder.mkdir(parents=True)
        frame.to_parquet(folder / "part-0.parquet")
    put(tmp_path / "events" / "_SUCCESS", "")
    table = TableFiles.find(f"{tmp_path}/events{pattern}")
    assert table.names == ["user", "y", "day"]
    days = table.read()["day"]
    assert days.isna().sum() == 3
    assert sorted({str(day.date()) for day in days.dropna()}) == ["2020-01-01", "2020-01-02"]


def test_partitions_named_as_texts_keep_their_zeros(tmp_path):
    for shop in ("007", "7"):
        (tmp_path / f"shop={shop}").mkdir()
        put(tmp_path / f"shop={shop}" / "a.csv", "y\n1\n")
    frame = TableFiles.find(str(tmp_path), ["shop"]).read()
    assert frame["shop"].tolist() == ["007", "7"]


def test_an_absent_column_is_missing_and_noted(tmp_path):
    put(tmp_path / "a.csv", "user,age\n1,30\n")
    put(tmp_path / "b.csv", "user\n2\n")
    with pytest.warns(UserWarning, match="column 'age' is not in 1 of 2 files .* such as .*b.csv"):
        frame = TableFiles.find(str(tmp_path)).read()
    assert frame["age"].fillna(-1).tolist() == [30, -1]


@pytest.fixture
def small_blocks(monkeypatch):
    for module in (csv_files, json_files):
        monkeypatch.setattr(module, "BLOCK", 64)


def test_a_late_value_loosens_the_type_of_a_column(tmp_path, small_blocks):
    text = "a,b,c\n" + "1,,x\n" * 100 + "1.5,2020-01-02,y\n"
    table = TableFiles.find(str(put(tmp_path / "a.csv", text)))
    frame = table.read()
    assert frame["a"].iloc[-1] == 1.5
    assert frame["b"].iloc[-1] == pd.Timestamp("2020-01-02")
    assert frame.index[-1] == 102
    again = TableFiles.find(str(tmp_path / "a.csv"))
    assert sum(len(batch) for _, batch in again.batches(["a"])) == again.count() == 101


def test_json_lines_may_have_new_fields_and_wider_numbers_later(tmp_path, small_blocks):
    lines = [{"a": 1}] * 50 + [{"a": 2.5, "b": "x"}]
    frame = TableFiles.find(
        str(put(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines))))
    ).read()
    assert frame["a"].iloc[[0, -1]].tolist() == [1.0, 2.5]
    assert frame["b"].notna().sum() == 1


# What a column is


def types_table():
    return pa.table(
        {
            "user": ["ann", "bob"],
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(8, 2)),
            "place": pa.array([[0.5, 1.5], None], pa.list_(pa.float32(), 2)),
            "ratings": pa.array([[0.5, 1.5, 2.5], [1.0, 2.0, 3.0]]),
            "tags": [["u", "v"], []],
            "clock": pa.array([3600, 60], pa.time32("s")),
            "uuid": pa.array([UUID(int=7).bytes, UUID(int=8).bytes], pa.binary(16)),
            "kind": pa.array([7, 8]).dictionary_encode(),
            "y": pa.array([Decimal("2.25"), Decimal("3.25")], pa.decimal128(8, 2)),
        }
    )


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_one_decision_per_column(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    {"parquet": parquet.write_table, "feather": feather.write_feather}[kind](types_table(), path)
    frame = TableFiles.find(str(path)).read()
    assert frame["price"].fillna(-1).tolist() == [1.5, -1]
    assert frame[["place[0]", "place[1]"]].iloc[0].tolist() == [0.5, 1.5]
    assert frame["place[0]"].isna().tolist() == [False, True]
    assert frame["ratings[2]"].tolist() == [2.5, 3.0]
    assert frame["clock"].dt.total_seconds().tolist() == [3600, 60]
    assert frame["uuid"].tolist() == [str(UUID(int=7)), str(UUID(int=8))]
    assert frame["kind"].astype(str).tolist() == ["7", "8"]
    encoder = Encoder.fit(frame.drop(columns=["user", "y"]))
    assert {"price", "place[1]", "tags=u"} <= {*encoder.names_global}
    assert read_table(path, client="uuid", label="y").y.tolist() == [2.25, 3.25]


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        ([{"k": 1}, {"k": 2}], "struct<k: int64>"),
        ([b"xx", b"yy"], "binary"),
        (pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())), "map<string, int64"),
        (pa.array([[], []], pa.list_(pa.float64())), "list<element: double>"),
    ],
)
def test_other_types_are_refused_by_name_unless_ignored(tmp_path, column, type_):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"user": [1, 2], "odd": column, "y": [1.0, 2.0]}), path)
    roles = {"client": "user", "label": "y"}
    with pytest.raises(ValueError, match=f"column 'odd' is of the type {type_}"):
        read_table(path, **roles)
    assert read_table(path, **roles, ignore=["odd"]).frame.shape[1] == 0
    assert "odd" in read_table(path, **roles, as_is=True).frame


@pytest.mark.parametrize(("value", "type_"), [({"k": 1}, "struct"), (b"xx", "binary")])
def test_frames_of_users_are_refused_alike(value, type_):
    with pytest.raises(ValueError, match=f"column 'odd' is of the type {type_}"):
        Encoder.fit(pd.DataFrame({"odd": [value, value]}))


def test_vectors_in_frames_and_single_rows_are_columns():
    frame = pd.DataFrame({"place": [np.array([0.0, 1.0]), np.array([2.0, 3.0])]})
    encoder = Encoder.fit(frame, local="place")
    assert encoder.names_local == ["place[0]", "place[1]"]
    (one, _), (every, _) = encoder.transform_one({"place": [2.0, 3.0]}), encoder.transform(frame)
    np.testing.assert_array_equal(one[0], every[1])


def test_vectors_of_different_lengths_are_refused(tmp_path):
    parquet.write_table(pa.table({"v": [[0.5, 1.0], [0.5]]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="lists of 2 numbers and one of 1"):
        TableFiles.find(str(tmp_path / "a.parquet")).read(["v[0]", "v[1]"])


def test_ids_above_two_to_the_63_are_texts_in_shards_as_in_memory(tmp_path):
    ids = pa.array([2**63 + 5, 2**63 + 6, 7, 7], pa.uint64())
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"user": ids, "x": [1.0, 2, 3, 4], "y": [1.0, 2, 3, 4]}), path)
    (tmp_path / "shards").mkdir()
    (shard,) = prepare_parts(
        TableFiles.find(str(path), ["user"]),
        ColumnRoles("user", "y"),
        tmp_path / "shards",
        memory=10**9,
        shards=1,
    ).shards
    in_memory = read_table(path, client="user", label="y").client
    assert sorted(shard.clients().tolist()) == sorted({*in_memory.tolist()})
    assert str(2**63 + 5) in in_memory.tolist()


# Files that change, and memory


def change(path, frame, how):
    if how == "labels":
        frame = frame.assign(y=frame["y"] * 1000)
    elif how == "rows":
        frame = pd.concat([frame, frame])
    frame.to_parquet(path)


@pytest.mark.parametrize("how", ["labels", "rows", "touched"])
def test_a_file_that_changes_between_two_passes_is_noticed(tmp_path, how):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"user": [1, 2], "y": [1.0, 2.0]})
    frame.to_parquet(path)
    table = TableFiles.find(str(path))
    assert len(table.read()) == 2
    change(path, frame, how)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ValueError, match="changed while it was read: run the command again"):
        list(table.batches(["y"]))


def test_rows_that_vanish_under_an_old_time_stamp_are_noticed(tmp_path):
    path = put(tmp_path / "a.csv", "a,b\n1,2\n3,4\n")
    table = TableFiles.find(str(path))
    table.read()
    stat = path.stat()
    put(path, "a,b\n1,2000000\n"[: stat.st_size].ljust(stat.st_size, "0"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(ValueError, match="changed while it was read"):
        list(table.batches(["a"]))


def test_batches_are_counted_in_bytes(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    wide = pa.table({f"x{k}": rng.normal(size=5000) for k in range(50)})
    parquet.write_table(wide, tmp_path / "a.parquet")
    monkeypatch.setattr("fedres.reading.table_files.BATCH_BYTES", 400_000)
    frames = [frame for _, frame in TableFiles.find(str(tmp_path / "a.parquet")).batches()]
    assert {len(frame) for frame in frames} == {1000}
    # Dictionaries that do not fit at once are read by groups of columns.
    monkeypatch.setattr(formats, "DICTIONARIES", 10**5)
    grouped = [frame for _, frame in TableFiles.find(str(tmp_path / "a.parquet")).batches()]
    pd.testing.assert_frame_equal(pd.concat(grouped), pd.concat(frames))


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8_192_000),
        ({"memory.max": "max", "memory.current": "5"}, 8_192_000),
        ({"memory.max": "3000000", "memory.current": "1000000"}, 2_000_000),
        ({"memory/memory.limit_in_bytes": "9", "memory/memory.usage_in_bytes": "4"}, 5),
    ],
)
def test_the_limit_of_a_container_is_kept(tmp_path, files, free):
    (tmp_path / "proc").mkdir()
    put(tmp_path / "proc" / "meminfo", "MemTotal: 9 kB\nMemAvailable:  8000 kB\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, text + "\n")
    assert free_memory(tmp_path) == free


# Names and mistakes


def test_urls_of_files(tmp_path):
    put(tmp_path / "a.csv", "a,b\n1,2\n")
    url = tmp_path.as_uri()
    assert is_several(url)
    assert TableFiles.find(f"{url}/a.csv").read()["b"].tolist() == [2]
    assert [file.name for file in find_files(url)] == [f"file://{tmp_path}/a.csv"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", "is empty: give a file with rows"),
        ("a.xlsx", b"PK\x03\x04" + b"secret" * 99, "an Excel workbook or a zip archive: save"),
        ("a.db", b"SQLite format 3\x00" + b"secret" * 99, "an SQLite database: export a table"),
        ("a.bin", b"\x89PNG\x00" + b"secret" * 99, "a binary file of a kind that is not read"),
        ("a.feather", b"FEA1" + b"secret" * 99, "of the old version 1"),
        ("a.parquet", "secret" * 99, "its first bytes are not such a file's"),
        ("a.csv.gz", "secret" * 99, "is not compressed so"),
        ("a.csv", "a,b\n" + "secret" * 999 + "\n", "line 2 has 1 values for 2 columns"),
        ("a.json", '[{"a": 1}, {"a": ["' + "secret" * 99 + '"]}]', "lists or objects in some rows"),
        ("a.jsonl", '{"a": 1}\n{"a": ' + "secret" * 99, "line 2 is no JSON"),
        ("a.csv", "a,a\n1,2\n", "has two columns 'a': rename one"),
    ],
)
def test_what_cannot_be_read_is_said_with_little_of_its_content(tmp_path, name, content, words):
    path = put(tmp_path / name, content)
    with pytest.raises(ValueError, match=r".") as error:
        TableFiles.find(str(path)).read()
    assert words in str(error.value)
    assert str(error.value).startswith(str(path))
    assert str(error.value).count("secret") <= 10
    assert "\n" not in str(error.value)


def test_texts_with_lines_of_their_own_may_be_in_any_block(tmp_path, monkeypatch):
    for name in ("BLOCK", "LARGEST_BLOCK"):
        monkeypatch.setattr(csv_files, name, 2**10)
    frame = pd.DataFrame(
        {"note": [f'{k}\nof\n\n{k % 7}, "all"' for k in range(900)], "k": range(900)}
    )
    frame.to_csv(tmp_path / "notes.csv", index=False)
    pd.testing.assert_frame_equal(
        TableFiles.find(str(tmp_path / "notes.csv")).read().reset_index(drop=True),
        frame,
        check_dtype=False,
    )


def test_other_files_of_a_folder_are_left_out_with_a_word(tmp_path):
    put(tmp_path / "a.csv", "a\n1\n")
    put(tmp_path / "README.md", "words")
    with pytest.warns(UserWarning, match=r"1 file in .* such as README.md, is left out"):
        assert [Path(file.path).name for file in find_files(str(tmp_path))] == ["a.csv"]


# Values that look otherwise from file to file, or from block to block


def read(path, as_texts=(), columns=None):
    """Read a table at once and in batches, which must agree."""
    whole = TableFiles.find(str(path), as_texts).read(columns)
    batches = [b for _, b in TableFiles.find(str(path), as_texts).batches(columns, rows=7)]
    parts = pd.concat(batches).set_axis(whole.index)
    pd.testing.assert_frame_equal(whole.astype(object), parts.astype(object), check_dtype=False)
    return whole


def files(folder, **tables):
    for name, table in tables.items():
        if isinstance(table, str):
            put(folder / name.replace("_", "."), table)
        else:
            parquet.write_table(pa.table(table), folder / name.replace("_", "."))
    return folder


BIG = 2**60


def test_whole_numbers_stay_whole_if_some_are_missing(tmp_path):
    ids = [BIG + 1, BIG + 2, None, BIG + 2]
    path = files(tmp_path, a_parquet={"user": ids, "y": [1.0, 2, 3, 4]}) / "a.parquet"
    assert read(path)["user"].tolist()[:2] == ids[:2]
    known = np.array([str(BIG + 1), str(BIG + 2)], object)
    table = read_table(path, client="user", label="y", optional=["client"], known_clients=known)
    assert table.client.tolist() == [None if id_ is None else str(id_) for id_ in ids]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (pa.array([2**64 - 1, 7], pa.uint64()), [7], [str(2**64 - 1), "7", "7"]),
        ([BIG + 1, BIG], [7.0, 1.5], [str(BIG + 1), str(BIG), "7", "1.5"]),
        ([1, 2], ["x"], ["1", "2", "x"]),
        ([True, False], pa.array([7], pa.int8()), [1, 0, 7]),
    ],
)
def test_ids_of_different_types_are_told_apart(tmp_path, first, second, expected):
    files(tmp_path, a_parquet={"user": first}, b_parquet={"user": second})
    assert read(tmp_path, ["user"])["user"].tolist() == expected


DAY = pd.Timestamp("2020-01-02")


@pytest.mark.parametrize(
    "other",
    [
        pa.array([DAY], pa.timestamp("us")),
        pa.array([DAY], pa.timestamp("ns", "Europe/Berlin")),
        pa.array([DAY.date()], pa.date64()),
        "2020-01-02 00:00:00\n",
        "2020-01-02T00:00:00Z\n",
    ],
)
def test_dates_and_times_are_one_kind(tmp_path, other):
    other = f"day\n{other}" if isinstance(other, str) else {"day": other}
    name = "b_csv" if isinstance(other, str) else "b_parquet"
    files(tmp_path, a_csv="day\n2020-01-02\n", **{name: other})
    days = pd.to_datetime(read(tmp_path)["day"], utc=True)
    assert days.tolist() == [DAY.tz_localize("UTC")] * 2


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (["x"], pa.array(["y"], pa.string_view()), "str"),
        (["x"], pa.array(["y"]).dictionary_encode(), "str"),
        (pa.array([UUID(int=7).bytes], pa.binary(16)), pa.array([UUID(int=7)], pa.uuid()), "str"),
        (pa.array([3], pa.time32("s")), pa.array([3], pa.duration("ns")), "timedelta64[us]"),
        (pa.array([[1]]), pa.array([[0.5]]), "float64"),
        (pa.array([["x"]]), pa.array([["y"]], pa.list_(pa.string_view())), "object"),
    ],
)
def test_types_of_one_kind_are_joined(tmp_path, first, second, kind):
    try:
        files(tmp_path, a_parquet={"v": first}, b_parquet={"v": second})
    except pa.ArrowNotImplementedError:
        pytest.skip("Arrow does not write this type as Parquet")
    assert {str(dtype) for dtype in read(tmp_path).dtypes} == {kind}


def test_types_that_differ_in_kind_are_refused_with_both_files(tmp_path):
    files(tmp_path, a_parquet={"v": [1]}, b_parquet={"v": ["x"]})
    with pytest.raises(ValueError, match=r"int64 in .*a.parquet and string in .*b.parquet: write"):
        TableFiles.find(str(tmp_path))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["x"], None]),
        pa.array([[0.5, 1], None], pa.list_(pa.float32(), 2)),
        pa.array([5, None], pa.time32("s")),
        pa.array([5, None], pa.duration("s")),
        pa.nulls(2),
        pa.array([1, None], pa.uint8()).dictionary_encode(),
        pa.array(["x", None]),
    ],
)
def test_any_column_may_be_absent_in_a_file(tmp_path, column):
    files(tmp_path, a_parquet={"user": [1, 2], "v": column}, b_parquet={"user": [3]})
    with pytest.warns(UserWarning, match="column 'v' is not in 1 of 2 files"):
        frame = read(tmp_path)
    assert frame.drop(columns="user").isna().to_numpy()[1:].all()


def test_dictionaries_are_what_their_values_are(tmp_path):
    path = tmp_path / "a.arrow"
    table = pa.table(
        {
            "day": pa.array([DAY.date()] * 2).dictionary_encode(),
            "size": pa.array([7, 8]).dictionary_encode(),
            "odd": pa.array([b"xx", b"yy"]).dictionary_encode(),
            "name": pa.DictionaryArray.from_arrays([0, 1], ["x", None]),
        }
    )
    feather.write_feather(table, path)
    frame = read(path, columns=["day", "size", "name"])
    assert frame["day"].dtype.kind == "M"
    assert frame["size"].sum() == 15
    with pytest.raises(ValueError, match="column 'odd' is of the type binary"):
        TableFiles.find(str(path)).read(["odd"])
    list(TableFiles.find(str(path)).batches(categories=True))


def test_a_vector_and_a_column_of_its_name_are_refused(tmp_path):
    files(tmp_path, a_parquet={"e": [[0.5, 1.0]], "e[0]": [1]})
    with pytest.raises(ValueError, match=r"a.parquet has a column 'e\[0\]' beside a vector"):
        TableFiles.find(str(tmp_path / "a.parquet"))


def test_tensors_are_vectors(tmp_path):
    kind = pa.fixed_shape_tensor(pa.float32(), [2])
    storage = pa.array([[0.5, 1.0]], pa.list_(pa.float32(), 2))
    table = pa.table({"v": pa.ExtensionArray.from_storage(kind, storage)})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    assert read(tmp_path / "a.arrow")["v[1]"].tolist() == [1.0]


def test_dates_far_away_are_read(tmp_path):
    put(tmp_path / "a.csv", "day,when\n9999-12-31,9999-12-31 23:59:59.5\n2020-01-02,2020-01-02\n")
    frame = read(tmp_path / "a.csv")
    seconds = Encoder.fit(frame).transform(frame)[0]
    assert np.isfinite(seconds).all()
    assert frame["day"].dt.year.tolist() == [9999, 2020]


# CSV: quotes, lines, encodings, and values that come late


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [
        ("1", "x", "str"),
        ("1", "2.5", "float64"),
        ("", "2020-01-02", "datetime64[ms]"),
        ("1", "2020-01-02", "str"),
        ("2020-01-02", "2020-01-02 10:00", "datetime64[s]"),
        ("2020-01-02 10:00", "2020-01-02 10:00:00.25", "datetime64[us]"),
        ("2020-01-02T10:00:00Z", "2020-01-02", "datetime64[us, UTC]"),
        ("2020-01-02", "2020-01-02T10:00:00+02:00", "datetime64[us, UTC]"),
        ("12:30", "soon", "str"),
        ("12:30", "12:30:00.5", "timedelta64[us]"),
        ("true", "0", "bool"),
    ],
)
def test_a_column_is_what_all_of_its_values_are(tmp_path, small_blocks, cpus, early, late, kind):
    path = put(tmp_path / "a.csv", "v,w\n" + f"{early},1\n" * 99 + f"{late},2\n")
    frame = read(path)
    assert str(frame["v"].dtype) == kind
    assert frame["w"].sum() == 101
    assert read_table(path, client=None, label="w").frame.index[-1] == 101


def test_commas_of_decimals_may_come_late(tmp_path, small_blocks):
    path = put(tmp_path / "a.csv", "v;w\n" + "1;1\n" * 99 + "2,5;2\n")
    assert read(path)["v"].sum() == 101.5


TEXTS = ['say "no"', "two\nlines", "a,b;c|d\te", "x" * 999, "Köln", " b "]


def test_quoted_texts_may_hold_anything(tmp_path, small_blocks, cpus):
    frame = pd.DataFrame({"v": TEXTS * 30, "w": range(180)})
    assert read(put(tmp_path / "a.csv", frame.to_csv(index=False))).equals(
        frame.set_axis(range(1, 181))
    )


@pytest.mark.parametrize("before_the_end", [0, 1, 100])
@pytest.mark.parametrize("names", ["a,b", "a"])
def test_a_quote_that_is_not_closed_is_an_error(tmp_path, cpus, before_the_end, names):
    row = ",".join("1" * len(names.split(",")))
    lines = [names, *[row] * 300, row[:-1] + '"b', *[row] * before_the_end]
    path = put(tmp_path / "a.csv", "\n".join(lines))
    with pytest.raises(ValueError, match=r"a[.]csv has a quote that is not closed, in row 301"):
        TableFiles.find(str(path)).read()


def test_what_is_no_utf_8_is_read_alike_wherever_it_stands(tmp_path, small_blocks):
    for name, rows in (("early", ["ö", *["x"] * 99]), ("late", [*["x"] * 99, "ö"])):
        path = put(tmp_path / f"{name}.csv", "\n".join(["v", *rows]).encode("latin-1"))
        with pytest.warns(UserWarning, match="was read as Latin-1"):
            assert "ö" in TableFiles.find(str(path)).read()["v"].tolist()
        path = put(tmp_path / f"{name}.csv", "\n".join(["v", *rows]).replace("ö", "\0"))
        with pytest.raises(ValueError, match="a binary file of a kind that is not read"):
            TableFiles.find(str(path)).read()


def test_lines_are_rows_if_texts_have_lines_of_their_own(tmp_path):
    assert read(put(tmp_path / "a.csv", "v\n1\n2\n")).index.name == "line"
    assert read(put(tmp_path / "a.csv", 'v\n"1\n"\n2\n')).index.name == "row"


# JSON


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [
        (1, "x", "str"),
        (1, 2.5, "float64"),
        (1, None, "Int64"),
        ("2020-01-02", "2020-01-02T10:00:00.250Z", "datetime64[us, UTC]"),
        ("2020-01-02 10:00:00", "soon", "str"),
        (1, "2020-01-02", "str"),
        ("7", "8", "str"),
        ([1], [0.5], "float64"),
        (True, "x", "str"),
    ],
)
def test_columns_of_json_are_what_all_of_their_values_are(
    tmp_path, small_blocks, early, late, kind
):
    records = [{"v": early}] * 30 + [{"v": late, "w": 1}]
    lines = put(tmp_path / "a.jsonl", "\n".join(map(json.dumps, records)))
    whole = put(tmp_path / "a.json", json.dumps(records))
    for path in (lines, whole):
        frame = read(path)
        assert str(frame.iloc[:, 0].dtype) == kind
        assert frame["w"].isna().sum() == 30


def test_ids_may_be_numbers_in_csv_and_texts_in_json(tmp_path):
    files(tmp_path, a_csv="user,y\n7,1\n8,2\n", b_jsonl='{"user": "7", "y": 3}\n')
    assert read_table(tmp_path, client="user", label="y").client.tolist() == [7, 8, 7]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", '{"a": 1}\n' * 99 + "{nothing}\n", "line 100 is no JSON"),
        ("a.json", '{"a": {"0": 1, "1": 2}}', "is one JSON object: write one record per line"),
        ("a.json", '{\n "a": 1}', "line 1 is no JSON .*: write one record per line"),
        ("a.json", "[]", "has no rows"),
        ("a.json", '[{"a": 1}, 3]', "row 2 is no record"),
        ("a.jsonl", "[1, 2]\n[3, 4]\n", "line 1 is no record"),
        ("a.jsonl", '{"a": 1}\n'.encode("utf-16"), "is text in UTF-16: save it as UTF-8"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16-le"), "is text in UTF-16: save it as UTF-8"),
        ("a.csv", "a,b", "has column names and no rows"),
        ("a.csv", "\n\n", "is empty: give a file with rows"),
        ("a.csv", 'a,"b\n1,2\n', "a quote that is not closed in its first line"),
        ("a.csv", "# of 2020\na,b\n1,2\n", "begins with a line that is not the names of columns"),
        ("a.csv", "sep=;\na;b\n1;2\n", "begins with a line that is not the names of columns"),
    ],
)
def test_mistakes_in_texts_are_one_sentence(tmp_path, name, content, words):
    path = put(tmp_path / name, content)
    with pytest.raises(ValueError, match=f"{path}.*{words}") as error:
        TableFiles.find(str(path)).read()
    assert "cut short or damaged" not in str(error.value)


def test_a_column_without_a_name_is_left_out_with_a_note(tmp_path):
    put(tmp_path / "a.csv", pd.DataFrame({"v": [1, 2]}).to_csv())
    with pytest.warns(UserWarning, match="a column without a name, such as the index of pandas"):
        assert TableFiles.find(str(tmp_path / "a.csv")).names == ["v"]


# Partitions


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("inside", ["", "/user=7", "/user=7/a.*"])
def test_ids_in_paths_are_numbers_whichever_part_is_opened(tmp_path, suffix, inside):
    for user in (7, 8):
        (tmp_path / f"user={user}").mkdir()
        files(
            tmp_path / f"user={user}",
            **{f"a_{suffix}": "y\n1.5\n" if suffix == "csv" else {"y": [1.5]}},
        )
    name = f"{tmp_path}{inside}"
    assert {*read_table(name, client="user", label="y").client.tolist()} == (
        {7} if inside else {7, 8}
    )


def test_values_in_paths_may_hold_anything(tmp_path):
    for name in ("a,b", '"c"', "2020"):
        (tmp_path / f"k={name}").mkdir()
        put(tmp_path / f"k={name}" / "a.csv", "y\n1\n")
    assert {*read(tmp_path)["k"]} == {"a,b", '"c"', "2020"}


def test_a_column_in_files_and_in_paths_must_agree(tmp_path):
    (tmp_path / "k=7").mkdir()
    put(tmp_path / "k=7" / "a.csv", "y,k\n1,7\n")
    assert read(tmp_path)["k"].tolist() == [7]
    put(tmp_path / "k=7" / "a.csv", "y,k\n1,8\n")
    with pytest.raises(ValueError, match=r"a[.]csv has a column 'k' whose values differ"):
        TableFiles.find(str(tmp_path)).read()


# Names that are no files


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("https://ann:secret@host/a.csv", r"^https://...@host/a.csv is not read .* download it"),
        ("postgresql://ann:secret@host/db", r"^postgresql://...@host.* export the table"),
        ("file:///none.csv", "^there is no file file:///none.csv"),
        ("none-*.csv", "^there is no file none-"),
        ("/dev/null", "^/dev/null is a device"),
    ],
)
def test_names_of_no_files_are_refused_before_arrow_is_loaded(name, words):
    with pytest.raises(ValueError, match=words):
        refuse_absent_table(name)


def test_links_to_nothing_and_folders_of_documents_are_refused(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"a[.]csv is a link to a file that does not exist"):
        find_files(str(tmp_path / "a.csv"))
    (tmp_path / "docs").mkdir()
    put(tmp_path / "docs" / "README.md", "words")
    with pytest.raises(ValueError, match="docs holds no files to read"):
        find_files(str(tmp_path / "docs"))


def test_named_pipes_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=put, args=(tmp_path / "pipe", "a,b\n1,2\n"))
    writer.start()
    assert TableFiles.find(str(tmp_path / "pipe")).read()["b"].tolist() == [2]
    writer.join()


def test_blanks_in_urls_of_files_may_be_escaped(tmp_path):
    put(tmp_path / "a b#[1].csv", "a,b\n1,2\n")
    for name in ("a b#[1].csv", "a%20b%23%5B1%5D.csv"):
        assert TableFiles.find(f"file://{tmp_path}/{name}").read()["b"].tolist() == [2]
