"""Any folder of recordings with transcripts, as a test set: each text in the voice of another recording beside it.

Upstream: `FOLDER/*.wav` or `FOLDER/SPEAKER/*.wav` (or .flac), each folder with a metadata.csv or transcripts.tsv (see
`reconstruction.read_transcripts`), or with a .txt file of the same name beside each recording.
Downstream: `testset.Trial`. A folder is a speaker.
"""

from __future__ import annotations

from pathlib import Path

import soundfile

from marstts.data.manifest import Utterance
from marstts.errors import DataError
from marstts.evaluation.reconstruction import AUDIO_SUFFIXES, read_transcripts
from marstts.evaluation.testset import Trial, make_trials


def read_folder(folder: Path) -> list[Trial]:
    """All recordings that have a transcript and a partner; DataError where there are none."""
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    utterances = [utterance for place in places for utterance in read_speaker(place, folder)]
    if not utterances:
        raise DataError(
            f"{folder}: expected recordings ({' or '.join(AUDIO_SUFFIXES)}) with their words in metadata.csv, "
            "transcripts.tsv, or a .txt file beside each"
        )
    return make_trials(utterances, folder, folder)


def read_speaker(place: Path, root: Path) -> list[Utterance]:
    """The recordings of one folder whose words are known, sorted."""
    listed = read_transcripts(place)
    found = []
    for path in sorted(path for path in place.iterdir() if path.suffix in AUDIO_SUFFIXES):
        text = listed.get(path.name) or listed.get(path.stem) or words_beside(path)
        if not text:
            continue
        try:
            info = soundfile.info(path)
        except soundfile.SoundFileError as error:
            raise DataError(f"{path}: expected a recording, but it cannot be read as one") from error
        name = path.relative_to(root).with_suffix("").as_posix()
        found.append(
            Utterance(
                id=name, audio=path.relative_to(root).as_posix(), text=text, speaker=place.name, style="regular",
                seconds=info.duration, source_rate=info.samplerate, split="test", licence="unknown",
            )
        )  # fmt: skip
    return found


def words_beside(recording: Path) -> str:
    path = recording.with_suffix(".txt")
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
