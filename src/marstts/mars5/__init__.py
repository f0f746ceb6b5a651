"""MARS5: an autoregressive model of level 0, and a non-autoregressive diffusion model of the other levels.

Bundles with graphs speak on ONNX Runtime; training, the published files and everything else need PyTorch.
"""
