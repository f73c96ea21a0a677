"""The report page of a run: its settings, its results and examples."""
