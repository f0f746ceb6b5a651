"""MARS5: an autoregressive model of level 0, and a non-autoregressive diffusion model of the other levels.

All of it runs in PyTorch; without PyTorch the import fails with the command that installs it.
"""

from marstts.errors import require

require("torch", "torch")
