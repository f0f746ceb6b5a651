"""Listening tests with human listeners: naturalness, similarity, and preference between two checkpoints.

Upstream: folders of takes, one per system, as `marstts evaluate` writes them.  Downstream: `marstts-listening-test`.

`config` describes a test, `config` takes its recordings from an evaluation, `stimuli` checks and encodes
them. `design` assigns trials to listeners, `rating` and `preference` are the two kinds of test, `store` keeps the
answers. `service` and `web` serve the page. `analysis` excludes listeners
by rules and averages the others' answers.
"""
