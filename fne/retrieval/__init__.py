"""How well sentences find images and images find sentences."""
