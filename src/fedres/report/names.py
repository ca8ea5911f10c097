"""Names and colours that tables, plots and pages share."""

NAMES = {
    "independent": "Independent",
    "central": "Central",
    "fedres": "FedRes",
    "mixture": "Mixture",
}
COLOURS = {
    "independent": "#d97706",
    "central": "#64748b",
    "fedres": "#2563eb",
    "mixture": "#7c3aed",
}
