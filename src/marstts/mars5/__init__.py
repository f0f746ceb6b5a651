"""MARS5: an autoregressive model of level 0, and a non-autoregressive diffusion model of the other levels.

PyTorch computes both; without it, an import of this package says in one sentence what to install.
"""

from marstts.errors import require

require("torch", "torch")
