"""Speak through a running server with the clients of LiveKit and Pipecat, as the guides of docs/serving.md set them up.

    pip install livekit-plugins-openai 'pipecat-ai[openai]'      # in an environment without marstts
    python recipes/serve/check_clients.py http://127.0.0.1:8000/v1

Prints the seconds of audio that each received; exits with 1 where one received none.
"""

import asyncio
import sys

import aiohttp
from livekit.plugins import openai
from pipecat.frames.frames import TTSAudioRawFrame, TTSSpeakFrame
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.tests.utils import run_test

TEXT = "The rain has stopped. Shall we go out?"


async def livekit_seconds(url: str) -> float:
    """Seconds of audio that LiveKit's plugin for OpenAI receives."""
    async with aiohttp.ClientSession():
        tts = openai.TTS(base_url=url, api_key="none", voice="alloy")
        frames = [event.frame async for event in tts.synthesize(TEXT)]
        await tts.aclose()
    return sum(frame.samples_per_channel / frame.sample_rate for frame in frames)


async def pipecat_seconds(url: str) -> float:
    """Seconds of audio that Pipecat's service for OpenAI receives."""
    service = OpenAITTSService(base_url=url, api_key="none", voice="alloy")
    received, _ = await run_test(service, frames_to_send=[TTSSpeakFrame(TEXT)], expected_down_frames=None)
    frames = [frame for frame in received if isinstance(frame, TTSAudioRawFrame)]
    return sum(len(frame.audio) / 2 / frame.sample_rate for frame in frames)


async def main(url: str) -> bool:
    """Print what each client received -> whether all received audio."""
    seconds = {"LiveKit": await livekit_seconds(url), "Pipecat": await pipecat_seconds(url)}
    for name, received in seconds.items():
        print(f"{name}: {received:.2f} s of audio")
    return min(seconds.values()) > 1.0


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(sys.argv[1])))
