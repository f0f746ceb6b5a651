"""Metrics of the server in Prometheus's text format.

Upstream: the endpoints.  Downstream: `GET /metrics`. Each application has its own registry.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from marstts.server.admission import Admission
from marstts.server.speech_job import FilePiece

SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class RequestOutcome(str, Enum):
    """Outcome of a request for speech."""

    OK = "ok"
    REFUSED = "refused"
    LEFT = "left"
    DEADLINE = "deadline"
    ERROR = "error"


class ServerMetrics:
    """Counters, histograms and gauges of one application."""

    def __init__(self, admission: Admission, counts: Callable[[], dict[str, int]]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "marstts_requests",
            "Requests for speech by format and outcome",
            ["format", "outcome"],
            registry=self.registry,
        )
        self.first_audio = self._histogram("marstts_first_audio_seconds", "From a request to its first bytes")
        self.wait = self._histogram("marstts_wait_seconds", "Wait of a request for a place")
        self.audio = Counter("marstts_audio_seconds", "Seconds of audio that were made", registry=self.registry)
        self.patches = Counter("marstts_patches", "Patches of all sentences that were sent", registry=self.registry)
        self.retries = Counter("marstts_retries", "Takes that were refused", registry=self.registry)
        self.underrun = Counter(
            "marstts_underrun_seconds", "Time for which listeners had nothing left to play", registry=self.registry
        )
        self.voices = self._gauge("marstts_voices", "Uploaded voices")
        self._gauge("marstts_active_requests", "Requests at work").set_function(lambda: admission.num_active)
        self._gauge("marstts_waiting_requests", "Requests that wait").set_function(lambda: admission.num_waiting)
        self._gauge("marstts_places", "Requests that may be at work").set_function(lambda: admission.places)
        self._gauge("marstts_owed_audio_seconds", "Audio that is expected").set_function(lambda: admission.owed_seconds)
        self._gauge("marstts_realtime_factor", "Seconds of audio made per busy second").set_function(
            lambda: admission.throughput.factor
        )

        rows = Gauge("marstts_rows", "Rows of the model by state", ["state"], registry=self.registry)
        for state in counts():
            rows.labels(state).set_function(lambda state=state: counts()[state])  # type: ignore[misc]

    def count(self, audio_format: str, outcome: RequestOutcome) -> None:
        """Count one request."""
        self.requests.labels(audio_format, outcome.value).inc()

    def count_piece(self, piece: FilePiece, patch_size: int) -> None:
        """Count what a piece holds; a patch has `patch_size` tokens."""
        self.audio.inc(piece.audio_seconds)
        self.patches.inc(piece.num_tokens / patch_size)
        self.retries.inc(piece.num_retries)
        self.underrun.inc(piece.dry_seconds)

    def text(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self.registry)

    def _histogram(self, name: str, description: str) -> Histogram:
        return Histogram(name, description, buckets=SECONDS, registry=self.registry)

    def _gauge(self, name: str, description: str) -> Gauge:
        return Gauge(name, description, registry=self.registry)
