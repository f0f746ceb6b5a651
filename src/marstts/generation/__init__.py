"""Autoregressive generation of codec tokens, without knowledge of any model.

Upstream: a model's package (`mars6`), which implements `Engine` and `SpeechModel`.  Downstream: `synthesis`.
"""
