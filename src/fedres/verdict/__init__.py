"""Does personal + shared pay on a table of rows? Measured on rows held out."""

from fedres.verdict.judging import estimator_for, judge
from fedres.verdict.result import Verdict

__all__ = ["Verdict", "estimator_for", "judge"]
