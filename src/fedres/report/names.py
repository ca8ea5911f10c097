"""Names and colours that tables, plots and pages share."""

from fedres.simulation.settings import NAMES

__all__ = ["COLOURS", "NAMES"]

COLOURS = {
    "independent": "#d97706",
    "central": "#64748b",
    "fedres": "#2563eb",
    "mixture": "#7c3aed",
}
