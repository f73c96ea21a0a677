"""Settings for tests: default values, with changes."""

from fne.core.settings import Runtime
from fne.extraction.settings import Extract, ExtractorSettings


def runtime(**changes) -> Runtime:
    return Runtime(
        **(
            {
                "device": "auto",
                "threads": 0,
                "workers": 0,
                "batch": 0,
                "engine": "local",
                "algorithm": "auto",
                "missing_store": "fetch",
                "scratch": ".fne",
            }
            | changes
        )
    )


def extractor_settings(**changes) -> ExtractorSettings:
    usual = {
        "backbone": "alexnet",
        "activations": "post_relu",
        "resize": "squash",
        "crops": "center",
        "views": "mean",
        "layers": "all",
        "precision": "float32",
    }
    return ExtractorSettings(**(usual | changes))


def extract_settings(**changes) -> Extract:
    usual = extractor_settings().model_dump() | {"weights": "weights", "input": "auto", "shards": 1}
    return Extract(**(usual | changes))
