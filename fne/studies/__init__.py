"""Studies: factors and levels, run cell by cell, with hypotheses that are recorded before the first run."""
