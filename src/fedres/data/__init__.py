"""Data sets, and federations of clients made from them."""

from fedres.data.dataset import Dataset, load
from fedres.data.federation import Federation
from fedres.data.split import federate

__all__ = ["Dataset", "Federation", "federate", "load"]
