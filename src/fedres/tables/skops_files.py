"""Models of scikit-learn as bytes in the skops format, limited to a list of known classes.

A skops file is a zip with a tree of nodes in ``schema.json``. A node names a loader of skops and a
class, and skops imports what it names. Trusting whole modules is not safe: ``sklearn`` holds
functions such as ``sklearn.utils._testing.check_output``, which runs a command. So only the pairs
of a loader and a class below are accepted, where no class is a function, a method or a callable
with code of its own, and whatever else a caller trusts by name. What is loaded then must not lead
compiled code astray (`fedres.tables.fitted_checks`).
"""

import json
from collections.abc import Collection, Iterator
from functools import partial
from io import BytesIO
from typing import Any
from zipfile import ZIP_STORED, ZipFile

from numpy.random import SeedSequence

from fedres.core.random_state import BIT_GENERATORS
from fedres.tables.fitted_checks import refuse_unsafe

SPARSE = ".npz"  # how the name of an entry with a sparse matrix ends
ZIP = b"PK"  # how a zip begins
NUMBERS = frozenset(
    f"numpy.{name}"
    for name in (
        *("bool", "bool_", "float32", "float64", "str_"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)
BUILTINS = ("bool", "dict", "float", "int", "list", "set", "slice", "str", "tuple")
ESTIMATORS = frozenset(
    [
        "sklearn._loss.link.HalfLogitLink",
        "sklearn._loss.link.IdentityLink",
        "sklearn._loss.link.Interval",
        "sklearn._loss.link.LogLink",
        "sklearn._loss.link.LogitLink",
        "sklearn._loss.link.MultinomialLogit",
        "sklearn._loss.loss.AbsoluteError",
        "sklearn._loss.loss.ExponentialLoss",
        "sklearn._loss.loss.HalfBinomialLoss",
        "sklearn._loss.loss.HalfGammaLoss",
        "sklearn._loss.loss.HalfMultinomialLoss",
        "sklearn._loss.loss.HalfPoissonLoss",
        "sklearn._loss.loss.HalfSquaredError",
        "sklearn._loss.loss.HalfTweedieLoss",
        "sklearn._loss.loss.HalfTweedieLossIdentity",
        "sklearn._loss.loss.HuberLoss",
        "sklearn._loss.loss.PinballLoss",
        "sklearn.calibration.CalibratedClassifierCV",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.compose._column_transformer.ColumnTransformer",
        "sklearn.compose._target.TransformedTargetRegressor",
        "sklearn.cross_decomposition._pls.PLSRegression",
        "sklearn.decomposition._incremental_pca.IncrementalPCA",
        "sklearn.decomposition._pca.PCA",
        "sklearn.decomposition._truncated_svd.TruncatedSVD",
        "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
        "sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis",
        "sklearn.dummy.DummyClassifier",
        "sklearn.dummy.DummyRegressor",
        "sklearn.ensemble._bagging.BaggingClassifier",
        "sklearn.ensemble._bagging.BaggingRegressor",
        "sklearn.ensemble._forest.ExtraTreesClassifier",
        "sklearn.ensemble._forest.ExtraTreesRegressor",
        "sklearn.ensemble._forest.RandomForestClassifier",
        "sklearn.ensemble._forest.RandomForestRegressor",
        "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingClassifier",
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingRegressor",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.ensemble._stacking.StackingClassifier",
        "sklearn.ensemble._stacking.StackingRegressor",
        "sklearn.ensemble._voting.VotingClassifier",
        "sklearn.ensemble._voting.VotingRegressor",
        "sklearn.ensemble._weight_boosting.AdaBoostClassifier",
        "sklearn.ensemble._weight_boosting.AdaBoostRegressor",
        "sklearn.feature_selection._variance_threshold.VarianceThreshold",
        "sklearn.gaussian_process._gpc.GaussianProcessClassifier",
        "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
        "sklearn.gaussian_process._gpr.GaussianProcessRegressor",
        "sklearn.gaussian_process.kernels.ConstantKernel",
        "sklearn.gaussian_process.kernels.DotProduct",
        "sklearn.gaussian_process.kernels.ExpSineSquared",
        "sklearn.gaussian_process.kernels.Matern",
        "sklearn.gaussian_process.kernels.Product",
        "sklearn.gaussian_process.kernels.RBF",
        "sklearn.gaussian_process.kernels.RationalQuadratic",
        "sklearn.gaussian_process.kernels.Sum",
        "sklearn.gaussian_process.kernels.WhiteKernel",
        "sklearn.impute._base.MissingIndicator",
        "sklearn.impute._base.SimpleImputer",
        "sklearn.impute._knn.KNNImputer",
        "sklearn.kernel_approximation.Nystroem",
        "sklearn.kernel_approximation.PolynomialCountSketch",
        "sklearn.kernel_approximation.RBFSampler",
        "sklearn.kernel_ridge.KernelRidge",
        "sklearn.linear_model._base.LinearRegression",
        "sklearn.linear_model._bayes.ARDRegression",
        "sklearn.linear_model._bayes.BayesianRidge",
        "sklearn.linear_model._coordinate_descent.ElasticNet",
        "sklearn.linear_model._coordinate_descent.ElasticNetCV",
        "sklearn.linear_model._coordinate_descent.Lasso",
        "sklearn.linear_model._coordinate_descent.LassoCV",
        "sklearn.linear_model._glm.glm.GammaRegressor",
        "sklearn.linear_model._glm.glm.PoissonRegressor",
        "sklearn.linear_model._glm.glm.TweedieRegressor",
        "sklearn.linear_model._huber.HuberRegressor",
        "sklearn.linear_model._least_angle.Lars",
        "sklearn.linear_model._least_angle.LarsCV",
        "sklearn.linear_model._least_angle.LassoLars",
        "sklearn.linear_model._least_angle.LassoLarsCV",
        "sklearn.linear_model._least_angle.LassoLarsIC",
        "sklearn.linear_model._logistic.LogisticRegression",
        "sklearn.linear_model._logistic.LogisticRegressionCV",
        "sklearn.linear_model._omp.OrthogonalMatchingPursuit",
        "sklearn.linear_model._omp.OrthogonalMatchingPursuitCV",
        "sklearn.linear_model._quantile.QuantileRegressor",
        "sklearn.linear_model._ransac.RANSACRegressor",
        "sklearn.linear_model._ridge.Ridge",
        "sklearn.linear_model._ridge.RidgeCV",
        "sklearn.linear_model._stochastic_gradient.SGDClassifier",
        "sklearn.linear_model._stochastic_gradient.SGDRegressor",
        "sklearn.linear_model._theil_sen.TheilSenRegressor",
        "sklearn.naive_bayes.BernoulliNB",
        "sklearn.naive_bayes.GaussianNB",
        "sklearn.neural_network._multilayer_perceptron.MLPClassifier",
        "sklearn.neural_network._multilayer_perceptron.MLPRegressor",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.pipeline.FeatureUnion",
        "sklearn.pipeline.Pipeline",
        "sklearn.preprocessing._data.Binarizer",
        "sklearn.preprocessing._data.MaxAbsScaler",
        "sklearn.preprocessing._data.MinMaxScaler",
        "sklearn.preprocessing._data.Normalizer",
        "sklearn.preprocessing._data.PowerTransformer",
        "sklearn.preprocessing._data.QuantileTransformer",
        "sklearn.preprocessing._data.RobustScaler",
        "sklearn.preprocessing._data.StandardScaler",
        "sklearn.preprocessing._discretization.KBinsDiscretizer",
        "sklearn.preprocessing._encoders.OrdinalEncoder",
        "sklearn.preprocessing._label.LabelBinarizer",
        "sklearn.preprocessing._label.LabelEncoder",
        "sklearn.preprocessing._polynomial.PolynomialFeatures",
        "sklearn.svm._classes.LinearSVC",
        "sklearn.svm._classes.LinearSVR",
        "sklearn.tree._classes.DecisionTreeClassifier",
        "sklearn.tree._classes.DecisionTreeRegressor",
        "sklearn.tree._classes.ExtraTreeClassifier",
        "sklearn.tree._classes.ExtraTreeRegressor",
    ]
)
# What each loader may make: one that calls a class must not be given another loader's.
TYPES: dict[str, frozenset[str]] = {
    "DTypeNode": frozenset(["numpy.dtype"]),
    "DictNode": frozenset(["builtins.dict", "sklearn.utils._bunch.Bunch"]),
    "JsonNode": frozenset(["builtins.str"]),
    "ListNode": frozenset(["builtins.list"]),
    "LossNode": frozenset(
        [
            "sklearn._loss._loss.CyAbsoluteError",
            "sklearn._loss._loss.CyExponentialLoss",
            "sklearn._loss._loss.CyHalfBinomialLoss",
            "sklearn._loss._loss.CyHalfGammaLoss",
            "sklearn._loss._loss.CyHalfMultinomialLoss",
            "sklearn._loss._loss.CyHalfPoissonLoss",
            "sklearn._loss._loss.CyHalfSquaredError",
            "sklearn._loss._loss.CyHalfTweedieLoss",
            "sklearn._loss._loss.CyHalfTweedieLossIdentity",
            "sklearn._loss._loss.CyHuberLoss",
            "sklearn._loss._loss.CyPinballLoss",
        ]
    ),
    "NdArrayNode": NUMBERS | {"numpy.ndarray"},
    "ObjectNode": ESTIMATORS,
    "RandomGeneratorNode": frozenset(["numpy.random._generator.Generator"]),
    "RandomStateNode": frozenset(["numpy.random.mtrand.RandomState"]),
    "SetNode": frozenset(["builtins.set"]),
    "SliceNode": frozenset(["builtins.slice"]),
    "SparseMatrixNode": frozenset(
        [
            "scipy.sparse._csc.csc_array",
            "scipy.sparse._csc.csc_matrix",
            "scipy.sparse._csr.csr_array",
            "scipy.sparse._csr.csr_matrix",
        ]
    ),
    "TreeNode": frozenset(["sklearn.tree._tree.Tree"]),
    "TupleNode": frozenset(["builtins.tuple"]),
    "TypeNode": NUMBERS | {f"builtins.{name}" for name in BUILTINS},
}
KNOWN = frozenset().union(*TYPES.values())


def dump(model: Any, trust: Collection[str] = ()) -> bytes:
    """Return a model as bytes.

    Parameters
    ----------
    model
        An estimator of scikit-learn's kind, or lists and numbers around it.
    trust
        Full names of classes and functions to accept beside those of this module.
    """
    import skops.io

    trust = _names(trust)
    try:
        content: bytes = skops.io.dumps(model)
        if any(name.endswith(SPARSE) for name in ZipFile(BytesIO(content)).namelist()):
            content = _stored(content)
    except Exception as error:  # what __reduce__ or __getstate__ of an unknown class raises
        raise ValueError(f"the shared model cannot be saved by skops: {error}") from None
    _refuse_unknown(
        content,
        trust,
        "the shared model is not saved, since it has parts outside the list of what is safe to "
        "load: {names}; to save it anyway, call save(folder, trust={names!r}), and "
        "load_model(folder, trust={names!r}) to load it",
    )
    try:
        refuse_unsafe(model, len(content), bool(trust))
        if trust:  # skops also writes what it cannot read, such as a lambda
            load(content, trust)
    except ValueError as error:
        raise ValueError(
            f"the shared model is not saved, since it could not be loaded: {error}"
        ) from None
    return content


def load(content: bytes, trust: Collection[str] = ()) -> Any:
    """Return the model that `dump` made bytes of; other bytes are refused before any import."""
    import skops.io

    trust = _names(trust)
    try:
        _refuse_unknown(
            content,
            trust,
            "the shared model is not loaded, since it has parts outside the list of what is safe "
            "to load, which could run code: {names}; if whoever saved it is to be trusted, call "
            "load_model(folder, trust={names!r})",
        )
        model = skops.io.loads(content, trusted=sorted(KNOWN.union(trust)))
        refuse_unsafe(model, len(content), bool(trust))
    except UntrustedError:
        raise
    except Exception as error:  # skops and the classes themselves raise anything on bad content
        raise ValueError(f"the shared model is damaged: {error}") from None
    return model


def doubt(model: Any) -> str | None:
    """Return why a model could not be saved once it is fitted, or None if it may well be.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> doubt(Ridge())
    """
    from sklearn.base import clone

    try:
        dump(clone(model))
    except ValueError as error:
        return f"shared={type(model).__name__} can be trained, but {error}"
    return None


class UntrustedError(ValueError):
    """A model has parts that are not accepted."""


class SaveWarning(UserWarning):
    """A shared model can be trained, and not be saved without trust."""


def _names(trust: Collection[str]) -> Collection[str]:
    """Return names, also if only one is given."""
    return [trust] if isinstance(trust, str) else trust


def _stored(content: bytes) -> bytes:
    """Return a zip without compression, so that nothing in it takes more memory than disk."""
    out = BytesIO()
    with ZipFile(BytesIO(content)) as file, ZipFile(out, "w", ZIP_STORED) as new:
        for name in file.namelist():
            part = file.read(name)
            new.writestr(name, _stored(part) if name.endswith(SPARSE) else part)
    return out.getvalue()


def _refuse_compressed(content: bytes) -> None:
    """Raise unless no entry of a zip, nor of a zip in it, takes more memory than its bytes."""
    with ZipFile(BytesIO(content)) as file:
        entries = file.infolist()
        if any(one.compress_type != ZIP_STORED for one in entries) or (
            sum(one.file_size for one in entries) > len(content)
        ):
            raise ValueError("it is compressed, which skops files of fedres are not")
        for one in entries:
            with file.open(one) as part:
                is_zip = part.read(len(ZIP)) == ZIP
            if is_zip:
                _refuse_compressed(file.read(one))


def _refuse_unknown(content: bytes, trust: Collection[str], sentence: str) -> None:
    """Raise unless all nodes are of known loaders and classes, or trusted by name."""
    _refuse_compressed(content)
    with ZipFile(BytesIO(content)) as file:
        schema = json.loads(file.read("schema.json"))
    nodes = list(_nodes(schema))
    unknown = {
        name
        for node in nodes
        for name in _names_of(node)
        if name not in trust and name not in TYPES.get(node["__loader__"], ())
    }
    if unknown:
        raise UntrustedError(sentence.format(names=sorted(unknown)))
    _refuse_aliases(schema, {})
    reader: dict[str, Any] = {}
    for node in nodes:
        id_ = node.get("__id__")
        if "file" in node and (id_ is None or reader.setdefault(node["file"], id_) != id_):
            raise ValueError(f"its entry {node['file']} is read more than once")
        # An array of lists and arrays has the numbers of all of them, however few nodes they are.
        if node.get("type") == "json" and not trust and len(node["shape"]["content"]) != 1:
            raise ValueError("it has objects in an array of more than one dimension")
        if node["__loader__"] == "RandomGeneratorNode":
            _refuse_generator(node["content"])


def _refuse_generator(parts: Any) -> None:
    """Raise unless a random number generator is one of NumPy's: skops calls what is named."""
    name = json.loads(parts["bit_generator"]["content"]["bit_generator"]["content"])
    pool = json.loads(parts["seed_seq"]["content"]["pool_size"]["content"])
    if name not in BIT_GENERATORS or pool != SeedSequence().pool_size:
        raise ValueError(f"there is no random number generator {name!r} with a pool of {pool}")


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all nodes."""
    if isinstance(schema, dict):
        if isinstance(schema.get("__loader__"), str):
            yield schema
        for value in schema.values():
            yield from _nodes(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _nodes(value)


def _names_of(node: dict[str, Any]) -> Iterator[str]:
    """Yield the full names that a node asks for."""
    name = f"{node['__module__']}.{node['__class__']}"
    yield name
    if node["__loader__"] == "MethodNode":  # skops asks for the class and for the method
        yield f"{name}.{node['content']['func']}"


def _refuse_aliases(value: Any, numbers: dict[Any, int]) -> int:
    """Return a number for the content of a node; raise if an id stands for two contents.

    Of several nodes with one id, skops makes the first and takes it for the others. If they
    differ, a few bytes could stand for a large one, or a checked node for another.
    """
    if isinstance(value, dict):
        content: Any = tuple(
            (name, 0 if name == "file" else _refuse_aliases(one, numbers))
            for name, one in value.items()
            if name != "__id__"
        )
    elif isinstance(value, list):
        content = [*map(partial(_refuse_aliases, numbers=numbers), value)]
    else:
        content = value
    found = numbers.setdefault((type(value).__name__, repr(content)), len(numbers))
    is_named = isinstance(value, dict) and "__id__" in value
    if is_named and numbers.setdefault(("id", value["__id__"]), found) != found:
        raise ValueError("two of its nodes have the same id")
    return found
