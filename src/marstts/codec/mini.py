"""Inference of the mini codec: ONNX graphs, a harmonic source and an inverse STFT in NumPy, without PyTorch.

Upstream: a folder written by `training.codec`.  Downstream: synthesis, tokenizing.
The network is in `codec.mini_model`; its geometry is SNAC 24 kHz's (2048, 1024 and 512
samples per code), so that every patch of seven tokens lasts 85.3 ms.
Shapes: T patches · F spectral frames · N samples.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat, model_validator

from marstts import audio
from marstts.audio import Waveform, spectral
from marstts.codec import mini_recognizer
from marstts.codec.base import MAX_HOP, SPEAKER_FOLDER, CodecSpec, Codes, check_codes, check_levels
from marstts.codec.harmonics import interpolate_f0, noise_spectra, phase, pulse_train, spectra_of
from marstts.errors import AudioError, CheckpointError, ConfigError
from marstts.io.config import Config, read_config
from marstts.io.reading import printable_name
from marstts.onnx.session import CheckedGraph, Shape
from marstts.speaker.mini import MiniSpeakerEncoder
from marstts.text.phones import LABELS

MAX_LOG_GAIN = 5.0
"""Bound of the filters' log gain; pulses at 120 Hz and full scale have log-magnitude 3.6 before filtering."""

LOWEST_PITCH, MIDDLE_PITCH, HIGHEST_PITCH = 50.0, 140.0, 600.0
"""F0 range in Hz. F0 is predicted in octaves relative to the middle value, and clamped to the others."""

KERNEL = 7
"""Width of each convolution over time, in latents or frames."""

PITCH_AHEAD = 1
"""Future positions of a kernel in the prediction of pitch: the past suffices mostly, and lookahead delays a stream."""

MIN_PITCH_PATCHES = 20
"""Patches from which pitch is predicted at least. ONNX Runtime multiplies matrices of up to 64 columns, here latents,
in another order, so the pitch of small windows would be rounded otherwise, and the phase of the pulses sums up the
difference over a sentence. More patches than needed delay the first chunk of a stream."""

CONTEXT_PATCHES = 8
"""Patches around a training segment that an encoder with a recognizer reads, and nothing decodes."""

CONFIG_FILE, WEIGHTS_FILE = "config.json", "codec.safetensors"
"""Files of a codec's folder."""

PHONES_GRAPH = "phones.onnx"
"""Of the phone recognizer, which a codec may lack."""

MAX_TIMBRE_SECONDS = 15.0
"""Timbre embeddings are of this much from the start of a recording."""

MAX_OVERLAP = 64
"""Frames that may hold the same sample."""

Size = Annotated[int, Field(ge=1, le=4096)]
"""A number of channels, blocks or latents."""


class MiniCodecConfig(Config):
    """Sizes of the mini codec."""

    sample_rate: int = Field(24000, ge=1000, le=192_000)
    fft_size: int = Field(1024, ge=4, le=2**16, multiple_of=2)
    hop: int = Field(256, ge=1, le=2**15)
    """Samples per spectral frame."""
    num_mels: int = Field(100, ge=1, le=1024)
    strides: tuple[Size, ...] = Field((4, 2, 1), min_length=1, max_length=16)
    """Latents per code on each level, coarse to fine; a latent is two frames long."""
    codebook_size: int = Field(1024, ge=16, le=65536)
    codebook_width: Size = 8
    """Size of the space in which codes are chosen by cosine similarity; a small one keeps all entries in use."""
    latent_width: Size = 256
    encoder_width: Size = 256
    encoder_blocks: tuple[Size, Size] = (2, 4)
    """ConvNeXt blocks at 93.75 Hz and at 46.875 Hz."""
    decoder_width: Size = 320
    decoder_blocks: tuple[Size, Size] = (4, 4)
    """ConvNeXt blocks at 46.875 Hz and at 93.75 Hz."""
    pitch_width: Size = 128
    pitch_dilations: tuple[Size, ...] = Field((1, 2, 4, 1, 2, 4), min_length=1, max_length=64)
    """One ConvNeXt block at 46.875 Hz each."""
    timbre_width: int = Field(0, ge=0, le=4096)
    """Length V of the timbre embedding that conditions the decoder; 0 = the codes alone determine the sound."""
    timbre_encoder_width: Size = 192
    timbre_encoder_blocks: int = Field(3, ge=0, le=64)
    """ConvNeXt blocks at 46.875 Hz, between a reference's spectra and its timbre embedding."""
    timbre_mels: int = Field(80, ge=1, le=1024)
    """Lowest mel bands of a reference that are encoded (80 of 100 at 24 kHz: up to 6.4 kHz)."""
    timbre_speaker_size: int = Field(0, ge=0, le=4096)
    """Length S of the embedding, by a published speaker encoder, that timbre embeddings depend on, too; 0 = none."""

    timbre_f0_width: int = Field(0, ge=0, le=1024)
    """Width of the network that tells the median F0 of a reference, which timbre embeddings hold, too; 0 = none."""
    recognizer_layers: int = Field(0, ge=0, le=64)
    """Layers of the frozen recognizer whose features the encoder reads, too; 0 = spectra alone."""
    recognizer_width: int = Field(384, ge=64, le=2048, multiple_of=64)

    @property
    def feature_width(self) -> int:
        """Recognizer features of a latent; 0 without a recognizer."""
        return 2 * self.recognizer_width if self.recognizer_layers else 0

    @property
    def context_patches(self) -> int:
        """Patches of padding on either side that are encoded and dropped: the encoder was trained with such context."""
        return CONTEXT_PATCHES if self.recognizer_layers else 0

    @property
    def hop_lengths(self) -> tuple[int, ...]:
        """Samples per code on each level."""
        return tuple(2 * self.hop * stride for stride in self.strides)

    @property
    def padding(self) -> int:
        """Samples of padding that make N samples exactly N / hop frames."""
        return (self.fft_size - self.hop) // 2

    @property
    def overlap(self) -> int:
        """Frames before and after a sample's that overlap with it."""
        return math.ceil(self.padding / self.hop)

    @property
    def hidden_reach(self) -> int:
        """Latents on either side that influence a hidden state, in the decoder's slow half."""
        return (KERNEL // 2) * (1 + self.decoder_blocks[0])

    @property
    def filters_reach(self) -> int:
        """Latents on either side that influence the filters of a latent, in the decoder's fast half."""
        return math.ceil((KERNEL // 2) * self.decoder_blocks[1] / 2)

    @property
    def decoder_lookahead(self) -> int:
        """Patches on either side that influence the filters of a patch, overlap included."""
        overlap = math.ceil(self.fft_size / self.hop / 4)
        return math.ceil((self.hidden_reach + self.filters_reach + overlap) / self.strides[0])

    @property
    def pitch_reach(self) -> tuple[int, int]:
        """Patches before and after that influence the pitch of a patch's pulses, overlap included."""
        overlap = math.ceil((self.fft_size / self.hop + 1) / 2)
        steps = sum((1, *self.pitch_dilations))
        back, ahead = (KERNEL - 1 - PITCH_AHEAD) * steps + overlap, PITCH_AHEAD * steps + overlap
        return math.ceil(back / self.strides[0]), math.ceil(ahead / self.strides[0])

    @model_validator(mode="after")
    def _strides_nest(self) -> MiniCodecConfig:
        check_levels(self.strides)
        if self.strides[-1] != 1:
            raise ValueError(f"expected strides that end with 1, not {list(self.strides)}")
        if self.hop_lengths[0] > MAX_HOP:
            raise ValueError(f"a patch has {self.hop_lengths[0]} samples, but at most {MAX_HOP} are supported")
        if self.hop > self.fft_size:
            raise ValueError(f"hop {self.hop} is larger than fft_size {self.fft_size}: frames would not overlap")
        if self.hop * MAX_OVERLAP < self.fft_size:
            raise ValueError(f"hop {self.hop} is too small for fft_size {self.fft_size}")
        if self.recognizer_layers and self.recognizer_layers < mini_recognizer.LAYER:
            raise ValueError(f"recognizer_layers: expected 0 or at least {mini_recognizer.LAYER}")
        if self.timbre_width and self.timbre_mels > self.num_mels:
            raise ValueError(f"timbre_mels is {self.timbre_mels}, but there are only {self.num_mels} mel bands")
        if self.timbre_speaker_size and not self.timbre_width:
            raise ValueError("timbre_speaker_size needs a timbre embedding: set timbre_width")
        if self.timbre_f0_width and not self.timbre_width:
            raise ValueError("timbre_f0_width needs a timbre embedding: set timbre_width")
        return self


class MiniCodecFolder(Config):
    """`config.json` of an exported codec."""

    name: str = Field(min_length=1, max_length=200)
    """Name of the codec and its weights, e.g. `mini-codec-v1`."""

    timbre_encoder: str = Field("", max_length=200)
    """Name of the timbre encoder and its weights, which voices store; empty without timbre conditioning."""

    model: MiniCodecConfig

    activation_ranges: dict[str, tuple[FiniteFloat, FiniteFloat]] = Field(default={}, max_length=4096)
    """Not used any more; codecs of earlier versions have it."""

    @model_validator(mode="after")
    def _timbre_encoder_has_a_name(self) -> MiniCodecFolder:
        if bool(self.timbre_encoder) != bool(self.model.timbre_width):
            raise ValueError("timbre_encoder is a name where timbre_width is above 0, and empty where it is 0")
        return self


class MiniCodec:
    """A `codec.base.Codec` over the exported graphs in `folder`."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self.folder, self._threads = folder, threads
        described = read_config(MiniCodecFolder, folder / CONFIG_FILE, CheckpointError)
        self.config = described.model
        self.spec = CodecSpec(
            name=described.name,
            sample_rate=self.config.sample_rate,
            codebook_size=self.config.codebook_size,
            hop_lengths=self.config.hop_lengths,
        )
        self.timbre_encoder = described.timbre_encoder
        self.lookahead_patches = max(self.config.decoder_lookahead, self.config.pitch_reach[1])
        """Later patches that the filters or the pitch of a patch depend on."""
        config, bins = self.config, self.config.fft_size // 2 + 1
        codes = (1, None, sum(self.spec.patch_layout))
        mels, hidden = (1, None, 2 * config.strides[0], config.num_mels), (1, None, config.decoder_width)
        filters = dict.fromkeys(("pulse_gain", "noise_gain", "shift"), (1, bins, None))
        timbre: dict[str, Shape] = {"timbre": (1, config.timbre_width)} if config.timbre_width else {}
        encoded: dict[str, Shape] = {"mels": mels}
        if config.feature_width:
            encoded["features"] = (1, None, config.strides[0], config.feature_width)
        self._encoder = CheckedGraph(folder / "encoder.onnx", encoded, {"codes": codes}, threads)
        self._recognizer = cache(self._open_recognizer)
        """Opened by the first encoding, for speaking does not need it."""
        self._phone_recognizer = cache(self._open_phone_recognizer)
        """Opened by the first take that is checked by it."""
        self._decoder = CheckedGraph(folder / "decoder.onnx", {"codes": codes} | timbre, {"hidden": hidden}, threads)
        self._source_filter = CheckedGraph(folder / "filters.onnx", {"hidden": hidden} | timbre, filters, threads)
        self._pitch = CheckedGraph(folder / "pitch.onnx", {"codes": codes} | timbre, {"pitch": (1, None)}, threads)
        self._timbre_encoder: CheckedGraph | None = None
        if timbre:
            reference: dict[str, Shape] = {"mels": (1, config.timbre_mels, None)}
            if config.timbre_speaker_size:
                reference["speaker"] = (1, config.timbre_speaker_size)
            self._timbre_encoder = CheckedGraph(folder / "timbre.onnx", reference, timbre, threads)
        self._speaker_encoder = cache(self._open_speaker_encoder)
        """Opened by the first timbre embedding, for speaking does not need it."""
        self._timbre = np.zeros(config.timbre_width, np.float32)
        """(V,), the timbre embedding that conditions the decoder; zeros condition nothing."""

    def _open_recognizer(self) -> CheckedGraph:
        mels, features = (1, mini_recognizer.NUM_MELS, None), (1, None, self.config.feature_width)
        return CheckedGraph(self.folder / "recognizer.onnx", {"mels": mels}, {"features": features}, self._threads)

    def _open_phone_recognizer(self) -> CheckedGraph:
        features, labels = (1, None, self.config.feature_width), (1, None, 1 + len(LABELS))
        return CheckedGraph(self.folder / PHONES_GRAPH, {"features": features}, {"log_probs": labels}, self._threads)

    def _open_speaker_encoder(self) -> MiniSpeakerEncoder:
        encoder, wanted = MiniSpeakerEncoder(self.folder / SPEAKER_FOLDER), self.config.timbre_speaker_size
        if encoder.size != wanted:
            raise CheckpointError(
                f"{printable_name(self.folder)}: expected a speaker encoder with embeddings of length {wanted} in "
                f"{SPEAKER_FOLDER}/, but theirs have {encoder.size}; export the codec again"
            )
        return encoder

    @property
    def timbre_width(self) -> int:
        """Length of timbre embeddings; 0 = this codec has none."""
        return self.config.timbre_width

    def timbre_embedding(self, waveform: Waveform) -> NDArray[np.float32]:
        """The timbre embedding of a recording, (V,) float32 of root mean square about 1; resamples if its rate differs.

        What follows the first `MAX_TIMBRE_SECONDS` is not used. ConfigError from a codec without timbre conditioning,
        AudioError without a sample.
        """
        if self._timbre_encoder is None:
            raise ConfigError(f"{self.spec.name} has no timbre embeddings; use a codec trained with timbre_width > 0")
        first = Waveform(waveform.samples[: int(MAX_TIMBRE_SECONDS * waveform.sample_rate)], waveform.sample_rate)
        if not len(first.samples):
            raise AudioError("the recording is empty; a timbre embedding needs a second of speech or more")
        samples = audio.resample(first, self.spec.sample_rate).samples
        mels = self._log_mel(np.pad(samples, (0, -len(samples) % self.config.hop)))
        inputs = {"mels": mels[None, : self.config.timbre_mels]}
        if self.config.timbre_speaker_size:
            inputs["speaker"] = self._speaker_encoder().embed(first)[None]
        (timbre,) = self._timbre_encoder.run(inputs, [(1, self.timbre_width)])
        return np.asarray(timbre[0], dtype=np.float32)

    @property
    def recognizes_phones(self) -> bool:
        """Whether a phone recognizer lies beside the codec; it is trained after it."""
        return bool(self.config.recognizer_layers) and (self.folder / PHONES_GRAPH).is_file()

    def phone_log_probs(self, waveform: Waveform) -> NDArray[np.float32]:
        """(T, 40) log-probabilities at 50 Hz; see `codec.base.PhoneRecognizingCodec`."""
        resampled = mini_recognizer.resample(waveform.samples, waveform.sample_rate)
        features = mini_recognizer.read_features(resampled, self._run_recognizer)
        shape = (1, len(features), 1 + len(LABELS))
        (log_probs,) = self._phone_recognizer().run({"features": features[None]}, [shape])
        if not np.isfinite(log_probs).all():
            raise CheckpointError(f"{printable_name(self.folder / PHONES_GRAPH)}: computed NaN or infinity")
        return np.asarray(log_probs[0], dtype=np.float32)

    def with_timbre(self, embedding: NDArray[np.float32]) -> MiniCodec:
        """This codec with its decoder conditioned on the timbre embedding (V,); both share the same sessions."""
        conditioned = copy.copy(self)
        conditioned._timbre = np.asarray(embedding, dtype=np.float32)
        return conditioned

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        samples = audio.resample(waveform, self.spec.sample_rate).samples
        patches = max(1, -(-len(samples) // self.spec.patch_samples))
        samples = np.pad(samples, (0, patches * self.spec.patch_samples - len(samples)))
        context = self.config.context_patches
        inside, around = slice(context, context + patches), ((0, 0), (context, context), (0, 0), (0, 0))
        mels = self._log_mel(np.pad(samples, context * self.spec.patch_samples))
        grouped = mels.T.reshape(1, patches + 2 * context, -1, self.config.num_mels)
        inputs = {"mels": np.pad(grouped[:, inside], around)}
        if self.config.feature_width:
            inputs["features"] = np.pad(self._recognizer_features(samples, patches), around)
        (codes,) = self._encoder.run(inputs, [(1, patches + 2 * context, sum(self.spec.patch_layout))])
        return self._by_level(check_codes(codes[0, inside], self.spec))

    def _recognizer_features(self, samples: NDArray[np.float32], patches: int) -> NDArray[np.float32]:
        """(N,) -> (1, T, latents per patch, C)."""
        latents = self.config.strides[0]
        resampled = mini_recognizer.resample(samples, self.spec.sample_rate)
        features = mini_recognizer.read_features(resampled, self._run_recognizer)
        latent_seconds = self.spec.hop_lengths[-1] / self.spec.sample_rate
        at_latents = mini_recognizer.at_latents(features, patches * latents, latent_seconds)
        return at_latents.reshape(1, patches, latents, -1)

    def _run_recognizer(self, mels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(80, F) -> (F / 2, C)."""
        shape = (1, (mels.shape[1] + 1) // 2, self.config.feature_width)
        (features,) = self._recognizer().run({"mels": mels[None]}, [shape])
        return np.asarray(features[0])

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole patches: `len(codes[0]) * spec.patch_samples` samples.

        `first` selects the noise; the phase of the pulses starts at 0 at the first given patch.
        """
        return Waveform(MiniDecoding(self, first).decode_until(codes, len(codes[0])), self.spec.sample_rate)

    def decoding(self) -> MiniDecoding:
        """Start decoding a new utterance; see `codec.base.IncrementalCodec`."""
        return MiniDecoding(self)

    def f0(self, codes: Codes) -> NDArray[np.float32]:
        """F0 of the pulses of whole patches in hertz, (F,); see `codec.base.PitchedCodec`."""
        return self.pitch(self.patches(codes))

    def pitch(self, patches: NDArray[np.int64]) -> NDArray[np.float32]:
        """Codes (T, P) -> F0 in hertz (F,), interpolated in unvoiced frames."""
        frames = len(patches) * 2 * self.config.strides[0]
        (hertz,) = self._pitch.run({"codes": patches[None]} | self._condition(), [(1, frames)])
        if not (np.abs(hertz - MIDDLE_PITCH) < HIGHEST_PITCH).all():  # also where it is NaN
            raise CheckpointError(
                f"{printable_name(self._pitch.path)}: expected F0 in hertz, but the graph gives others"
            )
        return np.asarray(hertz[0])

    def hidden_states(self, patches: NDArray[np.int64]) -> NDArray[np.float32]:
        """Codes (T, P) -> hidden states of the decoder's slow half, (L, D)."""
        latents, width = len(patches) * self.config.strides[0], self.config.decoder_width
        (hidden,) = self._decoder.run({"codes": patches[None]} | self._condition(), [(1, latents, width)])
        return np.asarray(hidden[0])

    def source_filter(self, hidden: NDArray[np.float32], frames: slice) -> list[NDArray[np.float32]]:
        """Hidden states (L, D) -> log gain of pulses, log gain of noise, phase shift of pulses at `frames` of them.

        (bins, F) each.
        """
        shape = (1, self.config.fft_size // 2 + 1, 2 * len(hidden))
        filters = self._source_filter.run({"hidden": hidden[None]} | self._condition(), [shape] * 3)
        return [each[0, :, frames] for each in filters]

    def apply_filter(
        self,
        source_filter: Sequence[NDArray[np.float32]],
        pulses: NDArray[np.float32],
        noise: NDArray[np.complex64],
        frames: slice,
    ) -> NDArray[np.float32]:
        """Filtered sum, (F * hop,), of pulses (N,) and noise (bins, N / hop), whose `frames` the filters belong to."""
        config, (pulse_gain, noise_gain, shift) = self.config, source_filter
        spectra = spectra_of(pulses, frames, config.fft_size, config.hop) * (np.cos(shift) + 1j * np.sin(shift))
        spectra *= np.exp(np.minimum(pulse_gain, MAX_LOG_GAIN))
        spectra += noise[:, frames] * np.exp(np.minimum(noise_gain, MAX_LOG_GAIN))
        return spectral.overlap_add(spectra.astype(np.complex64), config.fft_size, config.hop, config.padding)

    def patches(self, codes: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """One array per level -> (T, P), levels side by side; CheckpointError where their lengths do not fit."""
        layout = self.spec.patch_layout
        if len(codes) != len(layout) or any(len(c) != n * len(codes[0]) for c, n in zip(codes, layout, strict=True)):
            raise CheckpointError(
                f"{self.spec.name} decodes levels of T x {layout} codes, not {[len(level) for level in codes]}"
            )
        return check_codes(np.concatenate([level.reshape(len(codes[0]), -1) for level in codes], axis=1), self.spec)

    def _log_mel(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """(N,), N a multiple of the hop -> (M, N / hop)."""
        config = self.config
        return spectral.log_mel(
            samples, config.sample_rate, fft_size=config.fft_size, hop=config.hop, num_mels=config.num_mels,
            padding=config.padding,
        )  # fmt: skip

    def _condition(self) -> dict[str, NDArray[Any]]:
        """The timbre embedding as an input of the decoder's graphs, if they have one."""
        return {"timbre": self._timbre[None]} if self.timbre_width else {}

    def _by_level(self, patches: NDArray[np.int64]) -> Codes:
        """(T, P) -> one array per level."""
        edges = np.cumsum(self.spec.patch_layout)[:-1]
        return tuple(level.reshape(-1) for level in np.split(patches, edges, axis=1))


class MiniDecoding:
    """A `codec.base.Decoding` that keeps the phase of the pulses from one window to the next.

    Hidden states that no later code can change are kept, too. Pitch is predicted again for every window, from the
    patches around it.
    """

    def __init__(self, codec: MiniCodec, first: int = 0) -> None:
        self._codec, self._first = codec, first
        self._decoded_patches = 0
        self._cycles = 0.0
        """Phase at the start of the last decoded patch, which overlaps with the next window."""
        self._hidden = np.zeros((0, codec.config.decoder_width), np.float32)
        self._hidden_from = 0
        """The latent of the first hidden state that is kept."""

    def decode_until(self, codes: Sequence[NDArray[np.int64]], stop: int) -> NDArray[np.float32]:
        """The samples from the end of the last call to patch `stop`."""
        codec, size = self._codec, self._codec.spec.patch_samples
        start, per_patch = self._decoded_patches, 2 * self._codec.config.strides[0]
        if stop == start:
            return np.zeros(0, np.float32)
        patches = codec.patches(codes)
        first, last = max(0, start - 1), min(len(patches), stop + 1)  # whose source overlaps with requested samples
        begin = max(first * per_patch, start * per_patch - codec.config.overlap)
        end = min(last * per_patch, stop * per_patch + codec.config.overlap)
        noise = np.concatenate([self._noise(patch, len(patches)) for patch in range(first, last)], axis=1)
        pulses, frames = (
            self._pulses(patches, first, last, stop),
            slice(begin - first * per_patch, end - first * per_patch),
        )
        samples = codec.apply_filter(self._source_filter(patches, begin, end), pulses, noise, frames)
        self._decoded_patches = stop
        offset = (start * per_patch - begin) * codec.config.hop
        return samples[offset : offset + (stop - start) * size]

    def _noise(self, patch: int, num_patches: int) -> NDArray[np.complex64]:
        """Spectra of the noise of a patch, (bins, frames); there is none before the first patch or after the last."""
        config, size = self._codec.config, self._codec.spec.patch_samples
        around = (patch > 0, patch + 1 < num_patches)
        return noise_spectra(self._first + patch, size, around, config.fft_size, config.hop)

    def _source_filter(self, patches: NDArray[np.int64], begin: int, end: int) -> list[NDArray[np.float32]]:
        """The filters of frames `begin` to `end`, from the hidden states around them."""
        reach = self._codec.config.filters_reach
        first = max(0, begin // 2 - reach)
        last = min(len(patches) * self._codec.config.strides[0], -(-end // 2) + reach)
        return self._codec.source_filter(
            self._hidden_states(patches, first, last), slice(begin - 2 * first, end - 2 * first)
        )

    def _hidden_states(self, patches: NDArray[np.int64], first: int, last: int) -> NDArray[np.float32]:
        """Hidden states of latents `first` to `last`, (L, D); only those are computed that are not kept."""
        per_patch, reach = self._codec.config.strides[0], self._codec.config.hidden_reach
        kept = self._hidden[first - self._hidden_from :]
        known = first + len(kept)
        window = max(0, known - reach) // per_patch, min(len(patches), -(-(last + reach) // per_patch))
        computed = self._codec.hidden_states(patches[slice(*window)])
        hidden = np.concatenate([kept, computed[known - window[0] * per_patch :]])
        final = window[1] * per_patch - reach  # states of later latents depend on later codes
        self._hidden, self._hidden_from = hidden[: max(0, final - first)], first
        return hidden[: last - first]

    def _pitch_window(self, patches: NDArray[np.int64], first: int, last: int) -> NDArray[np.int64]:
        """Patches `first` to `last`, fewer at the end of the utterance; more after them in a small window within it."""
        window = patches[first:last]
        missing = MIN_PITCH_PATCHES - len(window)
        if missing <= 0 or last > len(patches):
            return window
        return np.pad(window, ((0, missing), (0, 0)))  # beyond what the pitch of these patches depends on

    def _pulses(self, patches: NDArray[np.int64], first: int, last: int, stop: int) -> NDArray[np.float32]:
        """The pulses of patches `first` to `last`, in phase with the last call's; the next one starts at `stop` - 1."""
        size, rate, hop = self._codec.spec.patch_samples, self._codec.spec.sample_rate, self._codec.config.hop
        back, ahead = self._codec.config.pitch_reach
        known_from = max(0, first - back)
        pitch = self._codec.pitch(self._pitch_window(patches, known_from, stop + ahead))
        before = min(1, first - known_from)  # one more patch on either side, for the interpolation
        pitch = pitch[(first - known_from - before) * size // hop : (last - known_from + 1) * size // hop]
        hertz = interpolate_f0(pitch, hop)[before * size : (before + last - first) * size]
        cycles = phase(hertz, rate, self._cycles)
        if stop - 1 > first:
            self._cycles = float(cycles[(stop - 1 - first) * size - 1])
        return pulse_train(hertz, cycles, rate)
