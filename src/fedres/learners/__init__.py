"""Local models of any kind: the server only ever sees what they predict."""

from fedres.learners.learner_client import LearnerClient
from fedres.learners.linear_learner import LinearLearner
from fedres.learners.local_learner import LocalLearner
from fedres.learners.play import Played, play
from fedres.learners.river_learner import RiverLearner
from fedres.learners.sklearn_learner import SklearnLearner
from fedres.learners.vowpal_learner import VowpalLearner

__all__ = [
    "LearnerClient",
    "LinearLearner",
    "LocalLearner",
    "Played",
    "RiverLearner",
    "SklearnLearner",
    "VowpalLearner",
    "play",
]
