"""One thin command per stage of `dvc.yaml`; stage, file and section of `params.yaml` share a name."""

from fne.core.garbage import collect_rarely

collect_rarely()
