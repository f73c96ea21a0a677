"""Who ranks first for whom, and how good that is."""
