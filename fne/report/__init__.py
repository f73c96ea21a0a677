"""The page that shows a run: what was run, how well it went, and on which examples."""
