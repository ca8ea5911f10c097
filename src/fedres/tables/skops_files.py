"""Models of scikit-learn as bytes in the skops format, limited to a list of known classes.

A skops file is a zip with a tree of nodes in ``schema.json``. A node names a loader of skops and a
class, and skops imports what it names. Trusting whole modules is not safe: ``sklearn`` holds
functions such as ``sklearn.utils._testing.check_output``, which runs a command. So only the loaders
and the classes below are accepted, none of which is a function, a method or a callable with code
of its own, and whatever else a caller trusts by name.
"""

import json
from collections.abc import Collection, Iterator
from io import BytesIO
from typing import Any
from zipfile import ZIP_STORED, ZipFile

LOADERS = frozenset(
    [
        "CachedNode",
        "DTypeNode",
        "DictNode",
        "JsonNode",
        "ListNode",
        "LossNode",
        "NdArrayNode",
        "ObjectNode",
        "RandomGeneratorNode",
        "RandomStateNode",
        "SetNode",
        "SliceNode",
        "SparseMatrixNode",
        "TreeNode",
        "TupleNode",
        "TypeNode",
    ]
)
TYPES = frozenset(
    [
        "builtins.bool",
        "builtins.dict",
        "builtins.float",
        "builtins.int",
        "builtins.list",
        "builtins.set",
        "builtins.slice",
        "builtins.str",
        "builtins.tuple",
        "numpy.bool",
        "numpy.bool_",
        "numpy.dtype",
        "numpy.float32",
        "numpy.float64",
        "numpy.int32",
        "numpy.int64",
        "numpy.ndarray",
        "numpy.random._generator.Generator",
        "numpy.random.mtrand.RandomState",
        "numpy.str_",
        "numpy.uint32",
        "numpy.uint64",
        "numpy.uint8",
        "scipy.sparse._csc.csc_array",
        "scipy.sparse._csc.csc_matrix",
        "scipy.sparse._csr.csr_array",
        "scipy.sparse._csr.csr_matrix",
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
        "sklearn.ensemble._gb.GradientBoostingClassifier",
        "sklearn.ensemble._gb.GradientBoostingRegressor",
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
        "sklearn.metrics._dist_metrics.EuclideanDistance64",
        "sklearn.metrics._dist_metrics.ManhattanDistance64",
        "sklearn.metrics._dist_metrics.MinkowskiDistance64",
        "sklearn.naive_bayes.BernoulliNB",
        "sklearn.naive_bayes.GaussianNB",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._classification.KNeighborsClassifier",
        "sklearn.neighbors._classification.RadiusNeighborsClassifier",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neighbors._regression.KNeighborsRegressor",
        "sklearn.neighbors._regression.RadiusNeighborsRegressor",
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
        "sklearn.preprocessing._encoders.OneHotEncoder",
        "sklearn.preprocessing._encoders.OrdinalEncoder",
        "sklearn.preprocessing._label.LabelBinarizer",
        "sklearn.preprocessing._label.LabelEncoder",
        "sklearn.preprocessing._polynomial.PolynomialFeatures",
        "sklearn.svm._classes.LinearSVC",
        "sklearn.svm._classes.LinearSVR",
        "sklearn.svm._classes.NuSVC",
        "sklearn.svm._classes.NuSVR",
        "sklearn.svm._classes.SVC",
        "sklearn.svm._classes.SVR",
        "sklearn.tree._classes.DecisionTreeClassifier",
        "sklearn.tree._classes.DecisionTreeRegressor",
        "sklearn.tree._classes.ExtraTreeClassifier",
        "sklearn.tree._classes.ExtraTreeRegressor",
        "sklearn.tree._tree.Tree",
        "sklearn.utils._bunch.Bunch",
    ]
)


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

    try:
        content: bytes = skops.io.dumps(model)
    except Exception as error:  # what __reduce__ or __getstate__ of an unknown class raises
        raise ValueError(f"the shared model cannot be saved by skops: {error}") from None
    _refuse_unknown(
        content,
        trust,
        "the shared model is not saved, since it has parts outside the list of what is safe to "
        "load: {names}; to save it anyway, call save(folder, trust={names!r}), and "
        "load_model(folder, trust={names!r}) to load it",
    )
    return content


def load(content: bytes, trust: Collection[str] = ()) -> Any:
    """Return the model that `dump` made bytes of; other bytes are refused before any import."""
    import skops.io

    try:
        _refuse_unknown(
            content,
            trust,
            "the shared model is not loaded, since it has parts that could run code: {names}; if "
            "whoever saved it is to be trusted, call load_model(folder, trust={names!r})",
        )
        return skops.io.loads(content, trusted=sorted(TYPES.union(trust)))
    except UntrustedError:
        raise
    except Exception as error:  # skops and the classes themselves raise anything on bad content
        raise ValueError(f"the shared model is damaged: {error}") from None


class UntrustedError(ValueError):
    """A model has parts that are not accepted."""


def _refuse_unknown(content: bytes, trust: Collection[str], sentence: str) -> None:
    """Raise unless all nodes are of known loaders and classes, or trusted by name."""
    with ZipFile(BytesIO(content)) as file:
        if any(info.compress_type != ZIP_STORED for info in file.infolist()):
            raise ValueError("it is compressed, which skops files of fedres are not")
        schema = json.loads(file.read("schema.json"))
    unknown = {
        name
        for loader, name in _nodes(schema)
        if name not in trust and (loader not in LOADERS or name not in TYPES)
    }
    if unknown:
        raise UntrustedError(sentence.format(names=sorted(unknown)))


def _nodes(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield the loader and the full name of all nodes."""
    if isinstance(schema, dict):
        if isinstance(loader := schema.get("__loader__"), str):
            name = f"{schema['__module__']}.{schema['__class__']}"
            yield loader, name
            if loader == "MethodNode":  # skops asks for the class and for the method
                yield loader, f"{name}.{schema['content']['func']}"
        for value in schema.values():
            yield from _nodes(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _nodes(value)
