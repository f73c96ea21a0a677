"""The section `layers` of the pipeline that compares layers."""

from typing import Annotated

from pydantic import Field

from fne.core.settings import Section

Positive = Annotated[float, Field(gt=0)]


class Layers(Section):
    """What is measured of every layer, and with how many images."""

    seed: int = Field(0, ge=0, description="random seed of the images that are drawn")
    validation: int = Field(1000, ge=2, description="validation images at most that layers are judged by")
    holdout: int = Field(
        1000, ge=1, description="training images, at most a fifth, that choose the regularization"
    )
    regularization: Annotated[list[Positive], Field(min_length=1)] = Field(
        [0.1, 0.5, 2.0], description="regularizations to try, in units of the mean variance of the features"
    )
    text_dim: int = Field(600, ge=1, description="dimensions of latent semantic analysis of the captions")
    min_count: int = Field(3, ge=1, description="training captions that a word must be in")
    dim: int = Field(256, ge=1, description="dimensions of the joint space")
    neighbors: int = Field(10, ge=1, description="nearest neighbors that are compared, and that vote")
    labels: int = Field(100, ge=1, description="tags or folders at most to probe, the most frequent ones")
