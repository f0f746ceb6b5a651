"""Waveforms: read within bounds, worked on, written whole.

Upstream: files and byte streams from users.  Downstream: codecs, speaker encoders, synthesis.
`reader` is the bounded entry, with `decoders` and `completeness`; `waveform` works on samples; `writer` writes files,
`writer` whole ones for pipes.
"""

from marstts.audio.decoders import MAX_BYTES, MAX_SAMPLE_RATE, MIN_SAMPLE_RATE, Source
from marstts.audio.reader import MAX_AMPLITUDE, MAX_SECONDS, SPAN_TOLERANCE_SECONDS, read, read_blocks, read_span
from marstts.audio.waveform import (
    FADE_SECONDS,
    TAIL_BELOW_PEAK_DB,
    TRIM_FRAME,
    TRIM_HOP,
    Waveform,
    audible_span,
    join,
    loudness_lufs,
    normalize_loudness,
    resample,
    shorten_pauses,
    trim_silence,
)
from marstts.audio.writer import SUFFIXES, Tags, encode, open_held_stream, open_writer, write

__all__ = [
    "FADE_SECONDS",
    "MAX_AMPLITUDE",
    "MAX_BYTES",
    "MAX_SAMPLE_RATE",
    "MAX_SECONDS",
    "MIN_SAMPLE_RATE",
    "SPAN_TOLERANCE_SECONDS",
    "SUFFIXES",
    "TAIL_BELOW_PEAK_DB",
    "TRIM_FRAME",
    "TRIM_HOP",
    "Source",
    "Tags",
    "Waveform",
    "audible_span",
    "encode",
    "join",
    "loudness_lufs",
    "normalize_loudness",
    "open_held_stream",
    "open_writer",
    "read",
    "read_blocks",
    "read_span",
    "resample",
    "shorten_pauses",
    "trim_silence",
    "write",
]
