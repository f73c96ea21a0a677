"""The metrics that a validation needs: ranks, recalls, scores of tags and captions."""
