"""The speech server on a Ray cluster: replicas, each with a running batch, that come and go with the load.

    pip install 'marstts[serve]' 'ray[serve]>=2.60'
    serve run ray_serve:app

Each replica is one process with one model. Ray's queue stays short, so that the server decides who waits and who gets
429. What Ray refuses by itself gets 429, too, which clients try again.
"""

from ray import serve

from marstts.server.app import create_app

LISTENERS = 16
"""Streams of a replica: 0.55 of the seconds of audio that its machine makes in a second (`marstts serve` logs it)."""


@serve.deployment(
    ray_actor_options={"num_cpus": 2},
    max_ongoing_requests=LISTENERS,
    max_queued_requests=LISTENERS,
    backpressure_config={"status_code": 429, "retry_after_s": 5},
    autoscaling_config={"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": LISTENERS * 0.75},
    graceful_shutdown_timeout_s=60,
    health_check_period_s=10,
)
@serve.ingress(create_app)
class SpeechServer:
    """One replica: the application of `create_app`, made when the replica starts."""


app = SpeechServer.bind()  # type: ignore[attr-defined]  # the decorator adds it
