"""From image files to the activations of a whole network."""
