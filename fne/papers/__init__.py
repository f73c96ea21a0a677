"""The tables and presets of the paper, and the results of this project's runs beside them."""
