"""Names and colours that tables, plots and pages share."""

NAMES = {"independent": "Independent", "central": "Central", "fedres": "FedRes"}
COLOURS = {"independent": "#d97706", "central": "#64748b", "fedres": "#2563eb"}
