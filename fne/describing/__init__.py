"""Tags and captions of images: concepts, decoders and beam search, one model and one task for both.

A concept is what the concept head predicts, with a probability. A tag is a concept that a tagger writes, or a
true one of the data set; a label says whether an image has a concept. A word is what a captioner writes.
User tags are noisy tags that users gave.
"""
