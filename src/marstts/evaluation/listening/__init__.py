"""Listening tests that people take: naturalness, similarity, and preference between two checkpoints.

Upstream: folders of takes, one per system, as `marstts evaluate` leaves them.  Downstream: `marstts listen`.

`config` says what is asked, `stimuli` what is heard, `design` in which order, `store` keeps the answers, `host` and
`web` serve the page, `turk` writes the same test for a crowd, `analysis` decides whose answers count and what they say.
"""
