"""The folder of the user's own voices: by name, private, shared by processes, and never a path by a name."""

from __future__ import annotations

import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from marstts.errors import FileError, MarsError, VoiceError
from marstts.io.files import hold_folder
from marstts.synthesis.clone import voice_folder
from marstts.synthesis.clone.packaged import OPENAI_VOICES, packaged_names
from marstts.synthesis.clone.voice_folder import VoiceFolder, VoiceNameError, own_folder
from marstts.synthesis.clone.voices import find_voice
from marstts.voice import Voice


def make_voice(name: str, value: float = 1.0) -> Voice:
    return Voice(
        name=name,
        embeddings={"identity": np.array([value, 2.0], np.float32)},
        prefix=None,
        codec="toy",
        encoders={"identity": "toy"},
        source_sha256="0" * 64,
        consent="she agreed",
    )


@pytest.fixture
def folder(tmp_path: Path) -> VoiceFolder:
    return VoiceFolder(tmp_path / "data" / "voices")


def test_a_voice_is_kept_found_renamed_and_deleted(folder: VoiceFolder):
    assert len(folder) == 0 and not folder.folder.exists()
    kept = folder.add(make_voice("Anna"))
    assert list(folder) == ["Anna"] and folder["Anna"] == folder[kept.id] == folder["aNNa"] == make_voice("Anna")
    folder.add(make_voice("Ben", 3.0))
    renamed = folder.rename("Anna", "Berta")
    assert (renamed.id, renamed.created_at) == (kept.id, kept.created_at)
    assert set(folder) == {"Berta", "Ben"} and "Anna" not in folder
    assert folder["Berta"] == make_voice("Berta") and folder["Ben"] == make_voice("Ben", 3.0)
    assert folder.delete("berta").id == kept.id and list(folder) == ["Ben"]
    with pytest.raises(KeyError):
        folder["Berta"]


def test_only_the_user_can_read_the_files(folder: VoiceFolder):
    folder.add(make_voice("Anna"))
    folder.rename("Anna", "Berta")
    [file] = folder.folder.iterdir()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, folder.folder, folder.folder.parent)]
    assert modes == [0o600, 0o700, 0o700]


@pytest.mark.parametrize("name", [packaged_names()[0], packaged_names()[-1].upper(), *list(OPENAI_VOICES)[:2], "Alloy"])
def test_a_name_with_another_meaning_is_refused(folder: VoiceFolder, name: str):
    folder.add(make_voice("Anna"))
    for change in (lambda: folder.add(make_voice(name)), lambda: folder.rename("Anna", name)):
        with pytest.raises(VoiceNameError, match="choose another one"):
            change()
    assert list(folder) == ["Anna"]


@pytest.mark.parametrize("name", ["Anna", "", " Anna", "a" * 65, "a\nb", "voice_" + "a" * 26, "narrator", "Default"])
def test_a_name_that_is_taken_or_none_is_refused(folder: VoiceFolder, name: str):
    folder.add(make_voice("Anna"))
    with pytest.raises(VoiceNameError):
        folder.add(make_voice(name))
    assert len(folder) == 1


@pytest.mark.parametrize("name", ["../../escape", "/etc/passwd", "..", "a/b.voice", "C:\\x", "voice_*", "%2e%2e"])
def test_a_name_is_never_part_of_a_path(folder: VoiceFolder, name: str, tmp_path: Path):
    assert name not in folder
    with pytest.raises(VoiceError):
        folder.delete(name)
    folder.add(make_voice(name))
    [file] = folder.folder.iterdir()
    assert file.name == f"{folder.entries()[0].id}.voice" and folder[name].name == name
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [file.name]
    folder.delete(name)
    assert not list(folder.folder.iterdir())


def test_spellings_in_unicode_are_one_name(folder: VoiceFolder):
    folder.add(make_voice("Zo\u00eb"))
    assert "Zoe\u0308" in folder
    with pytest.raises(VoiceNameError):
        folder.add(make_voice("Zoe\u0308"))


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_changes_of_another_process_are_seen(folder: VoiceFolder, pause: float, monkeypatch: pytest.MonkeyPatch):
    if pause:
        monkeypatch.setattr(voice_folder, "SETTLED_NS", 1_000_000)  # so that entries are kept between the changes
    other = VoiceFolder(folder.folder)
    assert list(other) == []
    folder.add(make_voice("Anna"))
    time.sleep(pause)
    assert list(other) == list(other) == ["Anna"]
    time.sleep(pause)
    folder.rename("Anna", "Berta")
    time.sleep(pause)
    assert list(other) == ["Berta"]
    other.delete("Berta")
    time.sleep(pause)
    assert list(folder) == []


def test_of_several_who_want_a_name_at_once_one_gets_it(folder: VoiceFolder):
    def add(value: int) -> bool:
        try:
            VoiceFolder(folder.folder).add(make_voice("Anna", value))
        except VoiceNameError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(add, range(8))) == 1
    assert len(folder) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked")
def test_a_change_waits_for_another_process_and_then_says_so(folder: VoiceFolder, monkeypatch: pytest.MonkeyPatch):
    folder.add(make_voice("Anna"))
    monkeypatch.setattr(voice_folder, "HELD_SECONDS", 0.05)
    with hold_folder(folder.folder, 1.0), pytest.raises(FileError, match="another process"):
        folder.delete("Anna")
    assert list(folder) == ["Anna"]
    folder.delete("Anna")


def test_what_is_no_voice_is_left_alone_and_named_once(folder: VoiceFolder, caplog: pytest.LogCaptureFixture):
    folder.add(make_voice("Anna"))
    files = {folder.folder / f"voice_{'a' * 26}.voice": b"corrupt", folder.folder / "letter.txt": b"Dear Anna,"}
    for path, content in files.items():
        path.write_bytes(content)
    assert list(folder) == list(folder) == ["Anna"]
    assert [path.read_bytes() for path in files] == list(files.values())
    assert len(caplog.records) == 1 and "left out" in caplog.text


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(MarsError, match="file"):
        VoiceFolder(tmp_path / "file" / "voices").add(make_voice("Anna"))


def test_the_folder_is_that_of_the_variable_or_in_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MARSTTS_VOICES", str(tmp_path / "chosen"))
    assert own_folder() == tmp_path / "chosen" == VoiceFolder().folder
    monkeypatch.delenv("MARSTTS_VOICES")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    for platform, data, place in (
        ("linux", "", ".local/share"),
        ("linux", "relative", ".local/share"),  # which the convention says to ignore
        ("linux", str(tmp_path / "data"), "data"),
        ("darwin", "", "Library/Application Support"),
        ("win32", "", "AppData/Local"),
    ):
        monkeypatch.setenv("XDG_DATA_HOME", data)
        monkeypatch.setattr(voice_folder.sys, "platform", platform)
        assert own_folder() == tmp_path / place / "marstts" / "voices"


def test_a_name_is_found_before_a_file_without_a_suffix_and_a_path_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = VoiceFolder()
    kept = {name: own.path_of(own.add(make_voice(name))) for name in ("me", "me.wav")}
    monkeypatch.chdir(tmp_path)
    assert find_voice("me") == kept["me"] and find_voice("me.wav") == kept["me.wav"]
    for name in ("me", "me.wav"):
        Path(name).write_bytes(b"a recording")
    assert find_voice("me") == kept["me"] and find_voice("me.wav") == Path("me.wav")
    assert find_voice("./me") == Path("./me") and find_voice(Path("me")) == Path("me")
    with pytest.raises(VoiceError, match=r"neither a file nor .* me\b.*; did you mean 'me'"):
        find_voice("mee")


def test_a_name_in_another_case_is_the_packaged_voices_before_an_earlier_voice_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    own, name, alias = VoiceFolder(), packaged_names()[0], next(iter(OPENAI_VOICES))
    kept = own.path_of(own.add(make_voice("me")))
    make_voice(name.title()).save(kept)  # earlier versions gave such names
    assert find_voice(name.title()) == kept and find_voice(name.upper()).stem == find_voice(name).stem == name
    assert find_voice(alias.upper()).stem == OPENAI_VOICES[alias]
    assert name.upper() not in own
    Path(name.upper()).write_bytes(b"a recording")
    assert find_voice(name.upper()) == Path(name.upper())
