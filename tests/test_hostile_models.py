"""Shared models and states from a file that would lead compiled code astray: all are refused."""

import io
import json
import re
from itertools import count
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import skops.io
from scipy import sparse
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.linear_model import Lasso, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from fedres.bandits.saving import generator_from
from fedres.tables import skops_files
from fedres.tables.shared_models import ForeignModel, LightGbmTrees

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(300, 2)).astype(np.float32), RNG.normal(size=300)
PROTOCOL = json.loads(ZipFile(io.BytesIO(skops.io.dumps(1))).read("schema.json"))["protocol"]


class Nodes:
    """Nodes of a skops file, made by hand."""

    def __init__(self):
        self.files, self.ids = {}, count(1)

    def node(self, loader, name, **rest):
        module, _, kind = name.rpartition(".")
        about = {"__class__": kind, "__module__": module, "__loader__": loader}
        return {**about, "__id__": next(self.ids), **rest}

    def json(self, value):
        return self.node("JsonNode", "builtins.str", content=json.dumps(value), is_json=True)

    def list(self, *content):
        return self.node("ListNode", "builtins.list", content=[*content])

    def tuple(self, *content):
        return self.node("TupleNode", "builtins.tuple", content=[*content])

    def dict(self, **content):
        keys = self.list(*(self.node("TypeNode", "builtins.str") for _ in content))
        return self.node("DictNode", "builtins.dict", content=content, key_types=keys)

    def array(self, values):
        name, data = f"{len(self.files)}.npy", io.BytesIO()
        np.save(data, values)
        self.files[name] = data.getvalue()
        return self.node("NdArrayNode", "numpy.ndarray", type="numpy", file=name)

    def objects(self, shape, *content):
        shape = self.tuple(*map(self.json, shape))
        rest = {"type": "json", "content": [*content], "shape": shape}
        return self.node("NdArrayNode", "numpy.ndarray", **rest)

    def bytes(self, root):
        data = io.BytesIO()
        with ZipFile(data, "w") as file:
            for name, content in self.files.items():
                file.writestr(name, content)
            schema = {**root, "protocol": PROTOCOL, "_skops_version": "0"}
            file.writestr("schema.json", json.dumps(schema))
        return data.getvalue()


def edited(model, change):
    """Return a model as skops writes it, its arrays and nodes changed."""
    with ZipFile(io.BytesIO(skops.io.dumps(model))) as file:
        files = {name: file.read(name) for name in file.namelist()}
    nodes, schema = Nodes(), json.loads(files.pop("schema.json"))
    nodes.files = files
    for name, content in files.items():
        if name.endswith(".npy"):
            values, data = np.load(io.BytesIO(content)), io.BytesIO()
            changed = change(values)
            np.save(data, values if changed is None else changed)
            files[name] = data.getvalue()
    return nodes.bytes(schema)


def field(name, at, value):
    """Return a change of one field of one node of all trees."""

    def change(values):
        if values.dtype.names and name in values.dtype.names:
            values = values.copy()
            values[name][at] = value
            return values
        return None

    return change


def test_a_loader_makes_no_class_of_another_loader():
    nodes = Nodes()
    objects = nodes.objects([0])
    args = nodes.tuple(
        nodes.list(nodes.json(8)),
        nodes.node("DTypeNode", "numpy.dtype", content=objects),
        nodes.array(np.full(8, 0x4141414141414141)),  # as pointers to objects of Python
    )
    forged = nodes.node("LossNode", "numpy.ndarray", content=nodes.dict())
    with pytest.raises(skops_files.UntrustedError, match=r"could run code: \['numpy.ndarray'\]"):
        skops_files.load(nodes.bytes({**forged, "__reduce__": {"args": args}}))


FOREST, TREE = RandomForestRegressor(2, max_depth=3), DecisionTreeRegressor(max_depth=3)
BOOSTED = HistGradientBoostingRegressor(max_iter=2, categorical_features=None)


@pytest.mark.parametrize("model", [FOREST, TREE], ids=["forest", "tree"])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        (field("left_child", 0, 2**40), "a child outside"),
        (field("right_child", 0, 0), "a child outside"),  # a loop
        (field("left_child", 0, -1), "a leaf with a child"),
        (field("right_child", 0, -1), "a child outside"),
        (field("left_child", 0, -2), "a child outside"),
        (field("feature", 0, 2), "a feature that is not there"),
        (field("feature", 0, -3), "a feature that is not there"),
    ],
)
def test_trees_stay_inside_their_arrays(model, change, match):
    with pytest.raises(ValueError, match=match):
        skops_files.load(edited(model.fit(X, Y), change))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (field("left", 0, 2**31), "a child outside"),
        (field("right", 0, 0), "a child outside"),
        (field("feature_idx", 0, 2**40), "a feature that is not there"),
        (field("feature_idx", 0, -1), "a feature that is not there"),
        (field("is_categorical", 0, 1), "no set of categories"),
        (lambda a: a[:0] if "is_leaf" in (a.dtype.names or ()) else None, "feature that is not"),
    ],
)
def test_trees_of_histograms_stay_inside_their_arrays(change, match):
    with pytest.raises(ValueError, match=match):
        skops_files.load(edited(BOOSTED.fit(X, Y), change))


def test_features_of_bins_are_those_of_rows():
    model = HistGradientBoostingRegressor(max_iter=2, categorical_features=None).fit(X, Y)
    model._bin_mapper.is_categorical_ = np.zeros(1000, np.uint8)
    with pytest.raises(ValueError, match="not those of its bins"):
        skops_files.load(skops.io.dumps(model))


def test_a_split_by_categories_is_of_categories():
    some = np.c_[RNG.integers(0, 4, 300), X[:, 0]]
    model = HistGradientBoostingRegressor(max_iter=2).fit(some, some[:, 0] % 2)
    predictor = model._predictors[0][0]
    predictor.nodes["is_categorical"][0] = 1
    predictor.raw_left_cat_bitsets = np.zeros((1, 8), np.uint32)
    with pytest.raises(ValueError, match="by categories is of a number"):
        skops_files.load(skops.io.dumps(model))


def test_a_tree_checks_its_rows():
    tree = DecisionTreeRegressor().fit(X, Y)
    several = VotingRegressor([("one", Ridge())]).fit(X, Y)
    several.estimators_ = [tree.tree_]
    with pytest.raises(ValueError, match="not part of an estimator"):
        skops_files.load(skops.io.dumps(several))
    tree.n_features_in_ = 1
    with pytest.raises(ValueError, match="other numbers of features"):
        skops_files.load(skops.io.dumps(tree))


def test_sparse_matrices_stay_inside_their_arrays():
    model = Lasso().fit(X, Y)
    model.more_ = sparse.csr_array(X)
    model.more_.indices[:] = 2**30
    model.more_.data[:] = 1
    content = skops_files._stored(skops.io.dumps(model))
    with pytest.raises(ValueError, match="damaged: "):
        skops_files.load(content)
    with pytest.raises(ValueError, match="it is compressed"):
        skops_files.load(skops.io.dumps(model))


def test_sparse_matrices_are_saved_uncompressed():
    model = Lasso().fit(X, Y)
    model.more_ = sparse.csr_array(np.eye(1000, dtype=np.float32))
    again = skops_files.load(skops_files.dump(model))
    assert (again.more_ != model.more_).nnz == 0


@pytest.mark.parametrize("name", ["one.npz", "one.npy"])
def test_a_small_file_in_the_file_is_small_in_memory(name):
    nodes, inner = Nodes(), io.BytesIO()
    with ZipFile(inner, "w", ZIP_DEFLATED) as file:
        file.writestr("data.npy", bytes(10**7))
    nodes.files[name] = inner.getvalue()
    part = nodes.node("SparseMatrixNode", "scipy.sparse._csr.csr_array", type="scipy", file=name)
    with pytest.raises(ValueError, match="it is compressed"):
        skops_files.load(nodes.bytes(part))


def test_an_entry_is_read_once():
    nodes = Nodes()
    once = nodes.array(np.zeros(1000))
    again = {**once, "__id__": next(nodes.ids)}
    same = skops_files.load(nodes.bytes(nodes.list(once, once)))
    assert same[0] is same[1]
    with pytest.raises(ValueError, match="read more than once"):
        skops_files.load(nodes.bytes(nodes.list(once, again)))


def test_an_id_stands_for_one_content():
    nodes = Nodes()
    one = nodes.list(nodes.json(1))
    for other in ({"__id__": one["__id__"]}, {**one, "content": []}):
        with pytest.raises(ValueError, match="the same id"):
            skops_files.load(nodes.bytes(nodes.list(one, other)))


def test_arrays_of_objects_are_not_unfolded():
    nodes = Nodes()
    inner = nodes.list(*(nodes.array(np.zeros(10)) for _ in range(2)))
    with pytest.raises(ValueError, match="more than one dimension"):
        skops_files.load(nodes.bytes(nodes.objects([1, 2], inner)))


def test_counts_and_attributes_are_what_a_file_can_hold():
    model = DummyRegressor().fit(X, Y)
    model.n_outputs_ = 10**8
    with pytest.raises(ValueError, match=r"DummyRegressor\.n_outputs_ is 100000000"):
        skops_files.load(skops.io.dumps(model))
    model = Ridge().fit(X, Y)
    model.predict = dict
    with pytest.raises(ValueError, match=r"Ridge\.predict is a method"):
        skops_files.load(skops.io.dumps(model))


def test_what_a_model_lacks_is_one_sentence():
    model = RandomForestRegressor(2).fit(X, Y)
    model.estimators_ = None
    content = np.frombuffer(skops_files.dump([[model], 1]), np.uint8)
    with pytest.raises(ValueError, match="the shared model cannot predict: TypeError"):
        ForeignModel.unpack(content, 2).predict(X)


@pytest.mark.parametrize("position", [-5, 10**6])
def test_random_numbers_come_from_inside_their_buffer(position):
    model = Ridge(random_state=np.random.RandomState(0)).fit(X, Y)
    state = model.random_state.get_state(legacy=False)
    state["state"]["pos"] = position
    model.random_state.set_state(state)
    with pytest.raises(ValueError, match=f"MT19937 has position {position}"):
        skops_files.load(skops.io.dumps(model))
    philox = np.random.Philox(0).state | {"buffer_pos": position}
    for unsafe in (state, philox):
        with pytest.raises(ValueError, match=f"has position {position}"):
            generator_from(unsafe)


def test_a_generator_is_one_of_numpy(monkeypatch):
    monkeypatch.setattr(np.random, "test", lambda: pytest.fail("called"), raising=False)
    with pytest.raises(ValueError, match="no generator 'test', only MT19937, PCG64"):
        generator_from({"bit_generator": "test"})
    nodes = Nodes()
    content = {
        "bit_generator": nodes.dict(bit_generator=nodes.json("test")),
        "seed_seq": nodes.dict(pool_size=nodes.json(4)),
    }
    name = "numpy.random._generator.Generator"
    with pytest.raises(ValueError, match="no random number generator 'test'"):
        skops_files.load(nodes.bytes(nodes.node("RandomGeneratorNode", name, content=content)))


def test_folders_to_cache_in_stay_out(tmp_path):
    model = make_pipeline(StandardScaler(), Ridge(), memory=str(tmp_path)).fit(X, Y)
    match = r"Pipeline has a folder to cache in: call set_params\(memory=None\)"
    with pytest.raises(ValueError, match=f"not saved, since .*{match}"):
        skops_files.dump(model)
    with pytest.raises(ValueError, match=match):
        skops_files.load(skops.io.dumps(model))


def test_what_could_not_be_loaded_is_not_saved():
    model = make_pipeline(FunctionTransformer(lambda x: x), Ridge()).fit(X, Y)
    with pytest.raises(ValueError, match=r"call save\(folder, trust=") as refused:
        skops_files.dump(model)
    trust = json.loads(str(refused.value).split("trust=")[1].split(")")[0].replace("'", '"'))
    with pytest.raises(ValueError, match="not saved, since it could not be loaded"):
        skops_files.dump(model, trust)


def test_one_name_is_trusted_as_a_name_and_not_as_a_text():
    nodes = Nodes()
    content = nodes.bytes(nodes.node("FunctionNode", "os.getcwd"))
    with pytest.raises(skops_files.UntrustedError, match=r"'os\.getcwd'"):
        skops_files.load(content, trust="my.os.getcwd.transformer")
    model = make_pipeline(FunctionTransformer(), Ridge()).fit(X, Y)
    name = "sklearn.preprocessing._function_transformer.FunctionTransformer"
    skops_files.load(skops_files.dump(model, trust=name), trust=name)


def test_small_integers_of_numpy_are_saved():
    model = RandomForestRegressor(np.int8(2), max_depth=np.int16(3), min_samples_leaf=np.uint16(1))
    skops_files.load(skops_files.dump(model.fit(X, Y)))


@pytest.fixture(scope="module")
def trees():
    """Return boosted trees and their text."""
    new = LightGbmTrees.prepare(X, 0)()
    new.grow(X, np.arange(300), Y, np.ones(300), np.zeros(300))
    return new, new.pack().tobytes().decode()


def test_text_of_lightgbm_means_the_same_when_it_is_checked(trees):
    new, text = trees
    once = LightGbmTrees.unpack(new.pack(), 2)
    again = LightGbmTrees.unpack(once.pack(), 2)
    np.testing.assert_array_equal(once.predict(X), new.predict(X))
    np.testing.assert_array_equal(again.predict(X), new.predict(X))
    leaf = re.sub("(?s)Tree=0.*?\n\n\n", "Tree=0\n" + SINGLE_LEAF + "\n\n\n", text, count=1)
    assert LightGbmTrees.unpack(as_bytes(leaf), 2).predict(X).shape == (300,)


SINGLE_LEAF = """num_leaves=1
num_cat=0
split_feature=
threshold=
decision_type=
left_child=
right_child=
leaf_value=0
is_linear=0
shrinkage=1"""


def as_bytes(text):
    return np.frombuffer(text.encode(), np.uint8)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("left_child", "1000000000", "a child outside"),
        ("left_child", "-1000000000", "a child outside"),
        ("right_child", "0", "a child outside"),  # a loop
        ("split_feature", "2", "a feature that is not there"),
        ("split_feature", "-1", "a feature that is not there"),
        ("split_feature", "0_0", "values that are not numbers"),
        ("split_feature", "", "not as long"),
        ("decision_type", "1", "not known"),
        ("leaf_value", "nan", "not finite"),
        ("leaf_value", "1 2", "not as long"),
        ("num_leaves", "2000000000", "not as long"),
        ("num_cat", "1", "categories"),
        ("is_linear", "1", "linear"),
        ("is_linear", "0\nnum_cat=0", "lines twice"),
        ("num_class", "2", "not those of one output"),
        ("num_tree_per_iteration", "1000000", "not those of one output"),
        ("max_feature_idx", "2000000000", "where rows have 2"),
    ],
)
def test_text_of_lightgbm_stays_inside_its_arrays(name, value, match, trees):
    def first(found):
        rest = found[1].split(" ", 1)[1:]
        return f"{name}={' '.join([value, *rest]).strip()}"

    text = re.sub(f"(?m)^{name}=(.*)$", first, trees[1], count=1)
    with pytest.raises(ValueError, match=f"LightGBM are damaged: .*{match}"):
        LightGbmTrees.unpack(as_bytes(text), 2)


def test_sizes_of_trees_in_text_of_lightgbm_are_counted(trees):
    new, text = trees
    text = re.sub("(?m)^tree_sizes=.*$", "tree_sizes=100000000", text)
    unpacked = LightGbmTrees.unpack(as_bytes(text), 2)
    np.testing.assert_array_equal(unpacked.predict(X), new.predict(X))
