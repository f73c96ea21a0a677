"""The vectors of one batch, with gradients, each pair computed by one of the processes."""

import torch
from torch import Tensor

from fne.core.processes import Processes
from fne.matching.model import Matcher
from fne.matching.pairs import Batch, Pairs


def embed_batch(
    matcher: Matcher, pairs: Pairs, batch: Batch, precision: torch.dtype, processes: Processes
) -> tuple[Tensor, Tensor]:
    """Return the vectors of a batch's images and of its captions (pairs, embed_dim), in float32 or better.

    Every process computes its share and receives the others'. So all of them see every
    contrast of the batch, whatever their number, and a batch is as large as it says.
    """
    own, device = batch.part(processes.share(len(batch.image_ids))), matcher.device
    if own.image_ids:
        words, lengths = pairs.captions(own.caption_ids)
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            images = matcher.embed_images(on_device(pairs.images(own.image_ids), device))
            captions = matcher.embed_captions(on_device(words, device), lengths)
    else:  # a batch of fewer pairs than there are processes
        nothing = next(matcher.parameters()).new_zeros((0, matcher.shape.embed_dim))
        images, captions = (nothing.clone().requires_grad_() for _ in range(2))
    return processes.gather(_exact(images)), processes.gather(_exact(captions))


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Send a tensor to a device, without waiting where that is a GPU."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def _exact(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))
