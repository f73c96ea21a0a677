"""Settings for tests: default values, with changes."""

from fne.core.settings import Runtime
from fne.extraction.settings import Extract, ExtractorSettings


def runtime(**changes) -> Runtime:
    return Runtime(**({"workers": 0} | changes))


def extractor_settings(**changes) -> ExtractorSettings:
    return ExtractorSettings(**({"backbone": "alexnet", "crops": "center"} | changes))


def extract_settings(**changes) -> Extract:
    usual = {"backbone": "alexnet", "crops": "center", "weights": "weights", "shards": 1}
    return Extract(**(usual | changes))
