"""The matching task: images and captions in one joint space."""
