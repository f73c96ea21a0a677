"""The extraction on Ray with one of the workers for tests: `python -m tests.faults.ray_driver slow STORE`."""

import sys

from fne.extraction.ray import driver
from stages.extract import main
from tests.faults.ray_workers import WORKERS

if __name__ == "__main__":
    driver.Worker = WORKERS[sys.argv[1]]
    main(["data/images.jsonl", sys.argv[2]], prog_name="extract")
