"""The paper's experiments: protocol, tuning, claims; what `fedres reproduce` runs."""
