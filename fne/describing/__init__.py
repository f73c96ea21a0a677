"""Tags and captions of images: concepts, decoders, beam search, and their training."""
