import json

import pytest

from marstts.errors import DataError
from marstts_lab.data.manifest import Utterance, read_manifest, write_manifest


def utterance(name: str, **changes: object) -> Utterance:
    values = {
        "id": name,
        "audio": f"flac/{name}.flac",
        "text": "Grüße, he said.",
        "speaker": "s1",
        "style": "regular",
        "seconds": 2.5,
        "source_rate": 16000,
        "split": "train",
        "license": "CC0",
    }
    return Utterance(**{**values, **changes})


def line(**changes: object) -> str:
    values = {**utterance("a").__dict__, **changes}
    return json.dumps({name: value for name, value in values.items() if value is not ...})


def test_what_is_written_is_read_back(tmp_path):
    utterances = [utterance("b"), utterance("a", seconds=3.0, split="test")]
    write_manifest(utterances, tmp_path / "corpus" / "utterances.jsonl")
    assert read_manifest(tmp_path / "corpus" / "utterances.jsonl") == utterances
    assert [path.name for path in (tmp_path / "corpus").iterdir()] == ["utterances.jsonl"]


def test_whole_seconds_are_read_as_float_and_blank_lines_skipped(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text(line(seconds=3) + "\n\n" + line(id="b") + "\n")
    first, second = read_manifest(path)
    assert isinstance(first.seconds, float) and second.id == "b"


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ("{not json", "one JSON object per line"),
        (line(speeker="x"), "speeker: unexpected keyword argument"),
        (line(seconds=float("nan")), "expected JSON"),
        (line(id="good"), "used before on line 1"),
    ],
)
def test_a_malformed_line_is_named_by_file_and_number(tmp_path, bad, complaint):
    path = tmp_path / "m.jsonl"
    path.write_text(line(id="good") + "\n" + bad + "\n")
    with pytest.raises(DataError, match=complaint) as caught:
        read_manifest(path)
    assert str(caught.value).startswith(f"{path}:2: ")


def test_every_complaint_about_a_line_is_reported_at_once(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text(line(speaker=..., style=3) + "\n")
    with pytest.raises(DataError, match=r"speaker: is missing; style: input should be a valid string"):
        read_manifest(path)


def test_a_missing_or_binary_manifest_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_manifest(tmp_path / "none.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match="expected UTF-8"):
        read_manifest(tmp_path / "binary.jsonl")


def test_duplicate_ids_are_not_written_and_the_old_file_stays(tmp_path):
    path = tmp_path / "m.jsonl"
    write_manifest([utterance("old")], path)
    with pytest.raises(DataError, match="id 'a' was used before"):
        write_manifest([utterance("a"), utterance("a")], path)
    assert [u.id for u in read_manifest(path)] == ["old"]
