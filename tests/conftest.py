"""What all tests share."""

import hypothesis
import torch

# Tests run side by side, and their tensors are small: more threads would only wait for each other.
torch.set_num_threads(1)

# Nothing is timed in tests: the first call of a kernel compiles, and machines are busy.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
