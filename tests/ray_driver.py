"""The extraction on Ray with workers of a kind: `python -m tests.ray_driver slow STORE`."""

import sys

from fne.activations import crew
from stages.extract import main
from tests.ray_workers import WORKERS

if __name__ == "__main__":
    crew.Worker = WORKERS[sys.argv[1]]
    main(["data/images.jsonl", sys.argv[2]], prog_name="extract")
