"""How well a model ranks the images and captions of a split."""

from dataclasses import dataclass

import numpy as np
import torch

from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.matching.encoding import encode_captions, encode_images
from fne.matching.model import Matcher
from fne.matching.pairs import Pairs
from fne.ranking.metrics import Metrics, sum_of_recalls, summarize
from fne.ranking.ranks import rank


@dataclass(frozen=True)
class Validation:
    """Recalls and ranks in both directions, and the sum of the six recalls."""

    image_to_text: Metrics
    text_to_image: Metrics
    rsum: float


def validate(matcher: Matcher, pairs: Pairs, processes: Processes = ALONE) -> Validation:
    """Rank all captions and images of `pairs` against each other."""
    image_ids = [record.id for record in pairs.captioned]
    caption_ids = [caption_id for record in pairs.captioned for caption_id in record.caption_ids]
    images = torch.cat(list(encode_images(matcher, pairs, image_ids, processes)))
    captions = torch.cat(list(encode_captions(matcher, pairs, caption_ids, processes)))
    caption_image = torch.from_numpy(np.repeat(np.arange(len(image_ids)), pairs.caption_counts))
    try:
        ranking = rank(images, captions, caption_image, matcher.similarity, 0, processes)
    except ValueError as error:
        raise InputError(f"training stopped: in validation, {error}; lower train.learning_rate") from None
    image_to_text = summarize(ranking.image_ranks.numpy())
    text_to_image = summarize(ranking.caption_ranks.numpy())
    return Validation(image_to_text, text_to_image, sum_of_recalls(image_to_text, text_to_image))
