"""`marstts speak` as users and programs call it, with a scripted model in place of the real one."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner, Result

from marstts import audio
from marstts.cli.cast import add_dialogue, open_cast
from marstts.cli.main import app
from marstts.cli.streaming import open_loudspeaker
from marstts.errors import MissingExtraError
from marstts.io.files import partial_path
from marstts.synthesis.loading import EngineKind
from marstts.voice import Voice
from scripted import ScriptedTake, good, scripted_synthesizer

pytestmark = pytest.mark.slow

RUN = CliRunner()


@pytest.fixture(autouse=True)
def scripted_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    monkeypatch.setattr("marstts.cli.voice.load", lambda model: scripted_synthesizer(good))
    monkeypatch.chdir(tmp_path)


def speak(*arguments: str | Path) -> Result:
    return RUN.invoke(app, ["speak", *map(str, arguments)])


def assert_refused(result: Result, complaint: str) -> None:
    """One sentence on standard error, exit code 2, nothing written."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert complaint in result.stderr and result.stderr.startswith("marstts: ")
    assert result.stderr.count("\n") == 1 and "Traceback" not in result.stderr
    assert not Path("speech.wav").exists()


def test_a_sentence_is_written_and_reported(reference_file: Path):
    result = speak("The cat sat on the mat.", "--reference", reference_file)
    assert result.exit_code == 0, result.stderr
    info = soundfile.info("speech.wav")
    assert info.duration == pytest.approx(1.7, abs=0.1)
    assert result.stdout == f"Wrote speech.wav ({info.duration:.1f} s)\n" and result.stderr == ""


def test_verbose_tells_how_each_sentence_was_made(reference_file: Path):
    result = speak("The cat sat. She sells.", "-o", "a.wav", "-v", "--reference", reference_file)
    first, *details = result.stdout.splitlines()
    assert first.startswith("Wrote a.wav (") and len(details) == 3
    assert "s of compute" in details[0] and "end of speech, top-p" in details[1] and "She sells." in details[2]


def test_json_holds_one_object_and_nothing_else(reference_file: Path):
    result = speak("The cat sat. She sells.", "--reference", reference_file, "--seed", 5, "--top-p", 0.4, "--json")
    report = json.loads(result.stdout)
    assert (report["model"], report["seed"]) == ("scripted", 5)
    assert {"audio_seconds", "compute_seconds", "first_audio_seconds"} <= set(report)
    assert [take["text"] for take in report["takes"]] == ["The cat sat.", "She sells."]
    assert report["takes"][0]["top_p"] == 0.4 and report["takes"][0]["attempts"] == 1
    assert result.stderr == ""


def test_as_in_the_paper_a_take_that_is_long_for_its_words_is_kept(reference_file: Path):
    attempts = []
    for options in ((), ("--paper",)):
        report = json.loads(speak("Yes.", "--reference", reference_file, "--json", *options).stdout)
        attempts.append(report["takes"][0]["attempts"])
    assert attempts[0] > 1 == attempts[1]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_wav_can_be_piped(reference_file: Path, flags: tuple[str, ...]):
    result = speak("The cat sat.", "--reference", reference_file, "--output", "-", *flags)
    samples, rate = soundfile.read(io.BytesIO(result.stdout_bytes))
    assert rate == 24_000 and len(samples) > rate
    assert ("audio_seconds" if flags else "Wrote standard output (") in result.stderr and not Path(
        "speech.wav"
    ).exists()


def test_a_file_is_read_aloud(reference_file: Path):
    Path("book.txt").write_bytes("\ufeffThe cat sat on the mat. It rained.".encode())
    result = speak("--file", "book.txt", "--reference", reference_file, "--output", "book.flac", "--json")
    assert [take["text"] for take in json.loads(result.stdout)["takes"]] == ["The cat sat on the mat.", "It rained."]
    assert soundfile.info("book.flac").format == "FLAC"


def test_warnings_are_printed_and_the_speech_is_written(reference_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(lambda n, prompt: ScriptedTake(1)))
    result = speak("The cat sat on the mat 🙂.", "--reference", reference_file)
    assert result.exit_code == 0 and Path("speech.wav").exists()
    first, second = result.stderr.splitlines()
    assert first == "warning: left out what cannot be spoken: emoji and signs (🙂 slightly smiling face)"
    assert second.startswith("warning: “The cat sat on the mat") and "5 attempts" in second


def test_a_clipped_reference_is_warned_of_in_a_sentence(reference_file: Path):
    samples, rate = soundfile.read(reference_file)
    soundfile.write("clipped.wav", (9 * samples).clip(-1, 1), rate)
    result = speak("The cat sat.", "--reference", "clipped.wav")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: clipped.wav: the recording is clipped") and ".py" not in result.stderr


def test_the_model_asked_for_is_loaded_on_the_engine_asked_for(reference_file: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: asked.append(how[:2]) or scripted_synthesizer(good))
    speak("The cat sat.", "--reference", reference_file)
    speak("The cat sat.", "--reference", reference_file, "--model", "my/folder", "--engine", "torch")
    assert asked == [("mini", EngineKind.AUTO), ("my/folder", EngineKind.TORCH)]


def test_a_voice_is_made_shown_and_spoken_with(reference_file: Path):
    create = ["voice", "create", str(reference_file), "--name", "Anna", "--output", "anna.voice"]
    made = RUN.invoke(app, [*create, "--transcript", "Her words.", "--consent", "she agreed"])
    assert made.exit_code == 0, made.stderr
    assert "the voice continues from" in made.stderr and "of the recording: 'Her words.'" in made.stderr
    shown = RUN.invoke(app, ["voice", "show", "anna.voice"])
    for held in ("Anna", "deep voice", "Her words.", "toy-identity-5", "she agreed"):
        assert held in shown.stdout
    result = speak("The cat sat.", "--voice", "anna.voice")
    assert result.exit_code == 0 and Path("speech.wav").exists()


def test_a_voice_is_made_of_several_recordings(reference_file: Path):
    for name, recordings in {"one": 1, "two": 2}.items():
        files = [str(reference_file), str(reference_file.with_name("reference-2.wav"))][:recordings]
        shutil.copy(reference_file, reference_file.with_name("reference-2.wav"))
        made = RUN.invoke(app, ["voice", "create", *files, "--name", "A", "--output", f"{name}.voice"])
        assert made.exit_code == 0, made.stderr
    one, two = (Voice.load(f"{name}.voice") for name in ("one", "two"))
    np.testing.assert_allclose(one.embeddings["identity"], two.embeddings["identity"], rtol=1e-5)
    refused = RUN.invoke(app, ["voice", "create", *files, "missing.wav", "--name", "A", "--output", "three.voice"])
    assert refused.exit_code == 2 and "missing.wav" in refused.stderr and not Path("three.voice").exists()


def test_a_shallow_voice_is_reported(reference_file: Path):
    assert (
        RUN.invoke(app, ["voice", "create", str(reference_file), "--name", "B", "--output", "b.voice"]).exit_code == 0
    )
    shown = RUN.invoke(app, ["voice", "show", "b.voice"]).stdout
    assert "shallow" in shown and "not recorded" in shown


def test_text_must_come_one_way(reference_file: Path):
    Path("book.txt").write_text("The cat sat.")
    assert_refused(speak("Hi.", "--file", "book.txt", "--reference", reference_file), "not both")
    assert_refused(speak("--reference", reference_file), "there is no text")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_text_that_is_piped_or_in_a_file_may_be_utf16(reference_file: Path, encoding: str):
    content = "The cat sat there. \U0001f600\r\n".encode(encoding)  # whose second half ends with a zero byte
    Path("a.txt").write_bytes(content)
    voice = ["--reference", str(reference_file), "--json"]
    piped = RUN.invoke(app, ["speak", *voice], input=content)
    filed = RUN.invoke(app, ["speak", "-f", "a.txt", *voice])
    for result in (piped, filed):
        assert result.exit_code == 0, result.stderr
        assert [take["text"] for take in json.loads(result.stdout)["takes"]] == ["The cat sat there."]


@pytest.mark.parametrize("end", [b"\n", b"\r\n\x1a", b"\0"])
def test_utf16_with_a_line_end_of_another_encoding_is_read(reference_file: Path, end: bytes):
    content = "The cat sat there.".encode("utf-16-le") + end
    result = RUN.invoke(app, ["speak", "--reference", str(reference_file), "--json"], input=content)
    assert [take["text"] for take in json.loads(result.stdout)["takes"]] == ["The cat sat there."]


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document"),
        (b"PK\x03\x04\x14\0\x06\0 word/document.xml", "a Word document (.docx)"),
        (b"PK\x03\x04 mimetypeapplication/vnd.oasis.opendocument.text", "an OpenDocument text"),
        (b"PK\x03\x04\x14\0\0\0photos", "a ZIP archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "an old Office document"),
        (b"Book".ljust(60, b"\0") + b"BOOKMOBI", "a Kindle book"),
        (b"The cat\0sat.", "binary data"),
    ],
)
def test_documents_that_are_no_text_are_named(reference_file: Path, content: bytes, form: str):
    Path("a.bin").write_bytes(content)
    assert_refused(speak("--file", "a.bin", "--reference", reference_file), form)
    assert_refused(RUN.invoke(app, ["speak", "--reference", str(reference_file)], input=content), form)
    if form != "binary data":
        assert_refused(speak("--file", "a.bin", "--output", "book", "--reference", reference_file), form)


def test_the_name_of_a_file_as_text_is_warned_of(reference_file: Path):
    Path("my chapter.txt").write_text("The cat sat.")
    result = speak("my chapter.txt", "--reference", reference_file)
    assert result.exit_code == 0 and "--file 'my chapter.txt'" in result.stderr
    assert speak("other.txt", "--reference", reference_file).stderr == ""


def test_binary_data_as_a_text_is_said_to_be_that(reference_file: Path):
    assert_refused(speak("--file", reference_file, "--reference", reference_file), "binary data")


def test_the_voice_must_come_one_way(reference_file: Path):
    assert_refused(speak("Hi.", "--reference", reference_file, "--voice", "anna.voice"), "not both")
    assert_refused(speak("Hi.", "--voice", "anna.voice", "--transcript", "Her words."), "--transcript belongs")


def test_text_is_read_from_standard_input(reference_file: Path):
    for words in (["-"], ["--file", "-"], ["-", "--stream", "--output", "a.wav"]):
        result = RUN.invoke(
            app, ["speak", *words, "--reference", str(reference_file), "--json"], input="The cat sat.\n"
        )
        assert [take["text"] for take in json.loads(result.stdout)["takes"]] == ["The cat sat."]
    result = RUN.invoke(
        app, ["speak", "--file", "-", "--batch", "2", "--output", "lines", "--reference", str(reference_file)],
        input="The cat sat.\nThe mat sat.\n",
    )  # fmt: skip
    assert result.exit_code == 0 and len(list(Path("lines").glob("*.wav"))) == 2


def test_voices_are_named_in_any_case_or_as_openai_does(reference_file: Path):
    tts = scripted_synthesizer(good)
    for name in ("linda", "Linda", "NOVA"):
        assert tts.open_voice(name).name == "linda"
        assert speak("The cat sat.", "--voice", name).exit_code == 0
    Path("cast").write_text("Narrator = Coral\nAnna = emma\n")
    named = open_cast(tts, Path("cast"), None)
    assert named["narrator"].name == "linda" and add_dialogue(tts, named, "ANNA") == "Anna"
    for marked in ("[voice:Coral] The cat sat.", "[voice:NARRATOR] The cat sat."):
        result = speak(marked, "--cast", "cast")
        assert result.exit_code == 0, result.stderr


def test_choices_may_be_in_any_case(reference_file: Path):
    result = speak("The cat sat.", "--reference", reference_file, "--engine", "ONNX", "--continuation", "None")
    assert result.exit_code == 0, result.stderr
    assert speak("Hi.", "--engine", "steam").exit_code == 2


def test_a_file_comes_before_a_name_in_another_case(reference_file: Path):
    Path("Alloy").write_bytes(Path(reference_file).read_bytes())
    for voice, output in (("Alloy", "a.wav"), (reference_file, "b.wav")):
        assert speak("The cat sat.", "--voice", voice, "--output", output).exit_code == 0
    assert Path("a.wav").read_bytes() == Path("b.wav").read_bytes()


def test_a_recording_can_be_given_as_the_voice(reference_file: Path):
    assert speak("The cat sat.", "--voice", reference_file, "--output", "a.wav").exit_code == 0
    assert speak("The cat sat.", "--reference", reference_file, "--output", "b.wav").exit_code == 0
    assert Path("a.wav").read_bytes() == Path("b.wav").read_bytes()


@pytest.mark.parametrize("suffix", audio.SUFFIXES)
def test_the_suffix_chooses_the_format(reference_file: Path, suffix: str):
    assert speak("The cat sat.", "--reference", reference_file, "--output", f"out{suffix}").exit_code == 0
    assert soundfile.info(f"out{suffix}").duration == pytest.approx(1.7, abs=0.2)


def test_an_epub_within_a_pipe_is_refused_with_the_remedy(reference_file: Path):
    with zipfile.ZipFile("book.epub", "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
    result = RUN.invoke(app, ["speak", "-", "--reference", str(reference_file)], input=Path("book.epub").read_bytes())
    assert_refused(result, "name its file: --file BOOK.epub")


def test_texts_beyond_the_limit_are_refused(reference_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marstts.cli.speak_input.MAX_TEXT_BYTES", 100)
    Path("long.txt").write_text("a" * 101)
    assert_refused(speak("--file", "long.txt", "--reference", reference_file), "long.txt")
    result = RUN.invoke(app, ["speak", "-", "--reference", str(reference_file)], input="a" * 101)
    assert_refused(result, "standard input")


@pytest.mark.parametrize("text", ["", "🙂🙂🙂"])
def test_texts_without_words_are_refused(reference_file: Path, text: str):
    assert_refused(speak(text, "--reference", reference_file), "nothing to speak")


@pytest.mark.parametrize("text", ["[pause:60s]", "[pause]", '<break time="1s"/>'])
def test_a_text_of_pauses_is_not_called_foreign(reference_file: Path, text: str):
    assert_refused(speak(text, "--reference", reference_file), "give a text with words")


def test_unfit_references_are_refused(reference_file: Path):
    samples, rate = soundfile.read(reference_file)
    Path("text.wav").write_text("no sound")
    Path("empty.wav").write_bytes(b"")
    soundfile.write("silent.wav", 0 * samples, rate)
    soundfile.write("short.wav", samples[rate : rate + rate // 10], rate)
    soundfile.write("whole.flac", samples, rate)
    Path("cut.flac").write_bytes(Path("whole.flac").read_bytes()[:3000])
    for name in ("missing.wav", "text.wav", "empty.wav", "silent.wav", "short.wav", "cut.flac"):
        assert_refused(speak("The cat sat.", "--reference", name), name)


def test_unwritable_outputs_are_refused_before_speaking(reference_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: pytest.fail("time was spent on loading"))
    for output in ("speech.xyz", "speech", "no/such/folder/speech.wav"):
        assert_refused(speak("Hi.", "--reference", reference_file, "--output", output), output)
    result = RUN.invoke(app, ["voice", "create", str(reference_file), "--name", "A", "--output", "no/folder/a.voice"])
    assert_refused(result, "no/folder")
    result = RUN.invoke(app, ["voice", "create", str(reference_file), "--name", "A", "--output", "a.WAV"])
    assert_refused(result, "expected a name ending in .voice")


def test_files_that_are_no_voices_are_refused(reference_file: Path):
    Path("letter.voice").write_text("Dear Anna,")
    for name in ("missing.voice", "letter.voice", "unknown"):
        assert_refused(speak("Hi.", "--voice", name), str(name))
    for name in ("missing.voice", reference_file):
        assert_refused(RUN.invoke(app, ["voice", "show", str(name)]), str(name))


def test_a_stream_is_piped_as_raw_pcm(reference_file: Path):
    result = speak("The cat sat. It rained.", "--reference", reference_file, "--stream", "--output", "-")
    assert result.exit_code == 0, result.stderr
    tts = scripted_synthesizer(good)
    chunks = tts.stream("The cat sat. It rained.", tts.clone(reference_file))
    assert result.stdout_bytes == b"".join(chunk.pcm() for chunk in chunks)
    assert "Wrote standard output (" in result.stderr and not Path("speech.wav").exists()


def test_a_stream_is_written_as_it_is_made(reference_file: Path, monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    original = audio.open_writer

    @contextmanager
    def watched(path, rate):
        with original(path, rate) as write:
            yield lambda samples: (write(samples), sizes.append(partial_path(path).stat().st_size))

    monkeypatch.setattr("marstts.audio.open_writer", watched)
    result = speak("The cat sat.", "--reference", reference_file, "--stream", "--output", "out.wav", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert soundfile.info("out.wav").duration == pytest.approx(report["audio_seconds"], abs=0.001)
    assert len(sizes) > 2 and sizes == sorted(set(sizes)) and report["takes"][0]["stop"] == "end of speech"


class FakeSoundDevice:
    """Fake of the package `sounddevice` that stores what was played."""

    class PortAudioError(Exception):
        pass

    def __init__(self, works: bool = True) -> None:
        self.played, self.works = b"", works

    def RawOutputStream(self, *, samplerate, channels, dtype):
        if not self.works:
            raise self.PortAudioError("no default output device")
        assert (samplerate, channels, dtype) == (24_000, 1, "int16")
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def write(self, data):
        self.played += data


def test_a_stream_is_played(reference_file: Path, monkeypatch: pytest.MonkeyPatch):
    device = FakeSoundDevice()
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    result = speak("The cat sat.", "--reference", reference_file, "--stream")
    assert result.exit_code == 0 and len(device.played) > 24_000 and result.stdout == "Played 1.7 s\n"


def test_the_missing_extra_for_playing_is_named(reference_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert_refused(speak("Hi.", "--reference", reference_file, "--stream"), "pip install 'marstts[play]'")
    monkeypatch.setitem(sys.modules, "sounddevice", FakeSoundDevice(works=False))
    assert_refused(speak("Hi.", "--reference", reference_file, "--stream"), "no default output device")

    def broken(name):
        raise OSError("PortAudio library not found")

    monkeypatch.delitem(sys.modules, "sounddevice")
    monkeypatch.setattr("importlib.import_module", broken)
    with pytest.raises(MissingExtraError, match="libportaudio2"), open_loudspeaker(24_000):
        pass


def test_lines_can_be_streamed_into_their_files(reference_file: Path):
    Path("lines.txt").write_text("The cat sat.")
    voice = ["--file", "lines.txt", "--reference", reference_file]
    assert speak(*voice, "--stream", "--batch", 2, "--output", "streamed").exit_code == 0
    tts = scripted_synthesizer(good)
    chunks = list(tts.stream("The cat sat.", tts.clone(reference_file)))
    assert soundfile.info("streamed/0001.wav").frames == sum(len(chunk.samples) for chunk in chunks)
    assert speak("Hi there.", "--reference", reference_file, "--batch", 2, "--output", "one").exit_code == 0
    assert Path("one/0001.wav").is_file()
    Path("taken").write_text("")
    assert_refused(speak(*voice, "--batch", 2, "--output", "taken"), "taken")
    assert_refused(speak(*voice, "--stream", "--output", "no/such/out.wav"), "no/such")


def test_a_log_shows_how_far_the_work_is(reference_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marstts.cli.terminal.FIRST_LINE_SECONDS", 0.0)
    monkeypatch.setattr("marstts.cli.terminal.LINE_RATIO", 0.0)
    voice = ("--reference", reference_file)
    assert speak("The cat sat.", *voice).stderr == ""
    assert "speaking: 1 of 3 sentences, " in speak("The cat sat. She sells. It rained.", *voice).stderr
    Path("lines.txt").write_text("The cat sat.\nShe sells.\nIt rained.\n")
    assert "speaking: 2 of 3 lines, " in speak("-f", "lines.txt", "--batch", 1, "-o", "out", *voice).stderr
    Path("book.txt").write_text("Chapter 1\n\nThe cat sat. She sells.\n\nChapter 2\n\nIt rained. She left.\n")
    result = speak("-f", "book.txt", "-o", "book/", *voice)
    assert re.search(r"speaking: 1 of [0-9]+ sentences, [0-9]+ s left\n", result.stderr), result.stderr


def report_of(folder: str) -> list[dict]:
    return [json.loads(line) for line in Path(folder, "report.jsonl").read_text(encoding="utf-8").splitlines()]


def test_every_line_is_spoken_into_a_file_of_its_own(reference_file: Path):
    Path("lines.txt").write_text("The cat sat on the mat.\n\n🙂\nShe sells sea shells. It rained.\n", encoding="utf-8")
    result = speak("--file", "lines.txt", "--reference", reference_file, "--batch", 3, "--output", "out", "--seed", 5)
    assert result.exit_code == 1 and "line 3: " in result.stderr and result.stderr.count("\n") == 2
    assert sorted(path.name for path in Path("out").iterdir()) == [".lock", "0001.wav", "0004.wav", "report.jsonl"]
    entries = report_of("out")
    assert [(entry["line"], entry["file"]) for entry in entries] == [(1, "0001.wav"), (3, None), (4, "0004.wav")]
    assert "nothing to speak" in entries[1]["error"] and [len(e.get("takes", [])) for e in entries] == [1, 0, 2]
    tts = scripted_synthesizer(good)
    tts.speak("She sells sea shells. It rained.", tts.clone(reference_file), seed=5).save("alone.wav")
    assert Path("out/0004.wav").read_bytes() == Path("alone.wav").read_bytes()


def test_an_interrupted_batch_resumes(reference_file: Path, monkeypatch: pytest.MonkeyPatch):
    Path("lines.txt").write_text("The cat sat.\nShe sells.\nIt rained.\n")
    arguments = ["--file", "lines.txt", "--reference", reference_file, "--batch", 1, "--output", "out"]
    begun: list[int] = []

    def counting(attempt, prompt):
        begun.append(attempt)
        return good(attempt, prompt)

    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(counting))
    assert speak(*arguments, "--json").stdout == '{"spoken": 3, "kept": 0, "failed": []}\n' and len(begun) == 3
    whole = Path("out/report.jsonl").read_text()
    first, second = whole.splitlines()[:2]
    Path("out/0003.wav").unlink()
    Path("out/report.jsonl").write_text(f"{first}\n{second[:40]}")  # cut off while it was written
    assert json.loads(speak(*arguments, "--json").stdout) == {"spoken": 2, "kept": 1, "failed": []}
    assert [entry["line"] for entry in report_of("out")] == [1, 2, 3] and len(begun) == 5
    assert speak(*arguments).exit_code == 0 and len(begun) == 5

    Path("lines.txt").write_text("The cat sat.\nShe sold.\nIt rained.\n")
    assert "1 line spoken, 2 kept" in speak(*arguments).stdout
    assert [entry["text"] for entry in report_of("out")] == ["The cat sat.", "She sold.", "It rained."]
    assert json.loads(speak(*arguments, "--seed", 1, "--json").stdout)["spoken"] == 3
    Path("out/report.jsonl").write_text("no report\n" + whole)
    assert_refused(speak(*arguments), "report.jsonl:1")
