"""The layout of `metrics/ranks.h5`: the rank and the best matches of every query."""

from fne.store.arrays import Layout

RANKS = Layout(
    "ranks",
    {
        "caption_best": "i captions top_images",
        "caption_best_scores": "f captions top_images",
        "caption_ids": "O captions",
        "caption_image": "i captions",
        "caption_ranks": "i captions",
        "caption_ties": "i captions",
        "folds": "i images",
        "image_best": "i images top_captions",
        "image_best_scores": "f images top_captions",
        "image_ids": "O images",
        "image_ranks": "i images",
        "image_ties": "i images",
    },
)
