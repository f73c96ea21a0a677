"""What all tests share."""

import torch

# Tests run side by side, and their tensors are small: more threads would only wait for each other.
torch.set_num_threads(1)
