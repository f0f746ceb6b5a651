"""Text and a voice in, speech out: `clone` makes voices, `synthesizer` speaks, `backoff` checks takes."""
