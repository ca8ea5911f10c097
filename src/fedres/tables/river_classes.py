"""river's metrics and evaluations take river's own classes only, and those registered with them."""

from fedres.core.extras import require


def register_with_river() -> None:
    """Let river's metrics, evaluations and pipelines take our estimators for regressors and such.

    Nothing registers by itself: call it once where you use both.

    Examples
    --------
    >>> from river import evaluate, metrics
    >>> from fedres import FedResRegressor
    >>> register_with_river()
    >>> events = [({"user": "ann", "size": 1.0}, 3.0), ({"user": "bob", "size": 2.0}, 3.0)]
    >>> evaluate.progressive_val_score(events, FedResRegressor(client="user"), metrics.MAE())
    MAE: 1.5
    """
    require("river", "register_with_river")
    from river import base

    from fedres.tables.classifier import FedResClassifier
    from fedres.tables.regressor import FedResRegressor

    base.Regressor.register(FedResRegressor)
    base.Classifier.register(FedResClassifier)
