"""A user's dictionary: words and how they are pronounced, as a respelling, in ARPAbet or in IPA.

Upstream: a TSV file, one `word<TAB>pronunciation` a line; overrides in the text, `[Nguyen]{win}`, `[Nguyen](/nwɪn/)`.
Downstream: `reading`, which puts the pronunciation in the place of the word: a respelling as it is, phones as
characters of `phones`. Models that read phones say them as they are, with their stress. For models that read letters
only, `respell` maps phones to letters that are read that way: `S IH1 N AE0 P S` and `/sɪnæps/` become "sinaps".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marstts.errors import DataError
from marstts.io.reading import printable_name, read_text
from marstts.text.phones import FALLING, PHONE_RUN, RISING, VOWELS, as_characters, as_phones, with_stress
from marstts.text.rules.engine import Trace
from marstts.text.rules.tables import table

MAX_FILE_BYTES = 8 * 2**20
MAX_PRONUNCIATION_CHARACTERS = 200

_LETTERS: dict[str, str] = table("phones")["arpabet"]
"""Phone of ARPAbet -> letters."""

_IPA: dict[str, str] = table("phones")["ipa"]
"""Symbol of IPA -> phone of ARPAbet."""

_IPA_SYMBOL = re.compile("|".join(sorted(map(re.escape, _IPA), key=len, reverse=True)))
_IPA_MARKS = re.compile("[ˈˌ.ːˑ͡ʰ \\-]")
_STRESS = {"ˈ": "1", "ˌ": "2"}
_IPA_TOKEN = re.compile(f"[ˈˌ]|{_IPA_SYMBOL.pattern}")
_ARPABET = re.compile(r"[A-Z]{1,2}[0-2]?(?: [A-Z]{1,2}[0-2]?)*")
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_CONTOUR = re.compile(r"\[(ris|fall)ing\](?=[?!.]|$)", re.IGNORECASE)
_RESPELLING = re.compile(r"(?=[^\W_])(?:[^\W_]|[\u0300-\u036f '\u2018\u2019.,\u00b7\u02c8\u02cc\u02d0-]){1,200}")
"""Characters of a respelling; others are of code, of markup or of a formula."""

_ATTRIBUTE = (
    r"(?:[.#][\w:.-]{1,60}|[\w:.-]{1,40}=(?:\"[^\"]{0,120}\"|'[^']{0,120}'|[^\s\"'={}]{1,120})"
    r"|-|=[a-z]{2,12})"
)
ATTRIBUTES = rf"\{{:?\s{{0,3}}{_ATTRIBUTE}(?:\s{{1,3}}{_ATTRIBUTE}){{0,9}}\s{{0,3}}\}}"
"""Pattern of the attributes that Pandoc and its kin put behind a word: `{.smallcaps}`, `{#id lang=fr}`."""

_ATTRIBUTES = re.compile(ATTRIBUTES)
_PLACEHOLDER = re.compile(r"[A-Za-z]{1,40}(?:_[A-Za-z0-9]{1,40}){1,8}")
"""The name in a placeholder of a template, `{first_name}`, which is no respelling."""

OVERRIDE = r"\[(?P<word>[^\[\]{}]{1,80})\]\{(?P<say>[^{}]{1,200})\}"
"""Pattern of a word with its pronunciation, and of what looks like one in code, formulas and markup."""

_OVERRIDE = re.compile(OVERRIDE)


@dataclass(frozen=True)
class Lexicon:
    """Pronunciations by word; a word in small letters stands for every spelling of it."""

    respellings: Mapping[str, str] = field(default_factory=dict)

    def find(self, word: str) -> str | None:
        """The respelling of `word`, or of its small letters; None where there is none."""
        word = unicodedata.normalize("NFC", word).replace("\u2019", "'")
        return self.respellings.get(word) or self.respellings.get(word.lower())

    def apply(self, text: str, trace: Trace) -> str:
        """`text` with every known word respelled; phrases of several words first."""
        if not self.respellings:
            return text
        for phrase in sorted((key for key in self.respellings if " " in key), key=len, reverse=True):
            if phrase.lower() in text.lower():
                pattern = re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)", re.IGNORECASE if phrase.islower() else 0)
                text = pattern.sub(self._phrase_reader(self.respellings[phrase], trace), text)
        return _WORD.sub(lambda match: self._respell(match[0], trace), text)

    @staticmethod
    def _phrase_reader(said: str, trace: Trace) -> Callable[[re.Match[str]], str]:
        return lambda match: _record(match[0], said, trace)

    def _respell(self, word: str, trace: Trace) -> str:
        said = self.find(word)
        if said is None and word.lower().endswith(("'s", "\u2019s")):
            said = self.find(word[:-2])
            return word if said is None else _record(word, said + "'s", trace)
        return word if said is None else _record(word, said, trace)


def _record(word: str, said: str, trace: Trace) -> str:
    trace.record("lexicon", word, said)
    return said


def read_lexicon(path: Path | str) -> Lexicon:
    """The lexicon in a TSV file; lines that begin with # are comments.

    Raises DataError where the file cannot be read, or with every line that is no entry.
    """
    content = read_text(path, MAX_FILE_BYTES, DataError)
    respellings: dict[str, str] = {}
    complaints = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            word, said = read_entry(line)
            respellings[word] = said
        except DataError as error:
            complaints.append(f"line {number}: {error}")
    if complaints:
        raise DataError(f"{printable_name(path)}: {'; '.join(complaints[:5])}")
    return Lexicon(respellings)


def lexicon_of(pronunciations: Mapping[str, str]) -> Lexicon:
    """The lexicon of words and their pronunciations; raises DataError for what is no entry."""
    return Lexicon(dict(read_entry(f"{word}\t{said}") for word, said in pronunciations.items()))


def read_entry(line: str) -> tuple[str, str]:
    """The word and the pronunciation of one line; raises DataError."""
    word, tab, pronunciation = line.partition("\t")
    word = unicodedata.normalize("NFC", word.strip()).replace("\u2019", "'")
    if not tab or not word or not pronunciation.strip():
        raise DataError(f"expected a word, a tab and a pronunciation, but came {line[:60]!r}")
    return word, read_pronunciation(pronunciation.split("\t")[0].strip())


def read_pronunciation(pronunciation: str) -> str:
    """The text that is said so: a respelling itself; phones of ARPAbet (`S IH1 N`) or IPA (`/sɪn/`) as characters.

    Raises DataError for phones that are not known.
    """
    if len(pronunciation) > MAX_PRONUNCIATION_CHARACTERS:
        raise DataError(f"a pronunciation of {len(pronunciation)} characters; at most {MAX_PRONUNCIATION_CHARACTERS}")
    if len(pronunciation) > 2 and pronunciation[0] == pronunciation[-1] == "/":
        return _from_ipa(pronunciation[1:-1])
    if _ARPABET.fullmatch(pronunciation) and (" " in pronunciation or pronunciation[-1].isdigit()):
        return as_characters(with_stress(pronunciation.split()))
    if not any(character.isalpha() for character in pronunciation):
        raise DataError(f"expected letters, ARPAbet or IPA between slashes, but came {pronunciation[:60]!r}")
    return pronunciation


def respell(text: str) -> str:
    """The text with its phones as letters, for models that read letters only; nothing else changes."""
    return PHONE_RUN.sub(lambda run: letters_of(as_phones(run[0])), text)


def without_marks(text: str) -> str:
    """A spoken text for models that read letters only: phones respelled, marks of intonation left out."""
    return respell(text.replace(RISING, "").replace(FALLING, ""))


def letters_of(phones: Sequence[str]) -> str:
    """Letters that are read as these phones, as far as letters can; stress is lost."""
    letters = [_LETTERS[phone.rstrip("012")] for phone in phones]
    return "".join([*letters[:-1], "a"] if phones[-1] == "AH0" else letters)


def _from_ipa(symbols: str) -> str:
    """Words of IPA as characters. A mark of stress counts for the next vowel."""
    words = []
    for word in unicodedata.normalize("NFC", symbols).split():
        rest = _IPA_SYMBOL.sub("", _IPA_MARKS.sub("", word))
        if rest:
            raise DataError(f"expected IPA symbols of English, but {rest[0]!r} is none")
        phones, stress = [], "0"
        for match in _IPA_TOKEN.finditer(word):
            if match[0] in _STRESS:
                stress = _STRESS[match[0]]
            for phone in _IPA.get(match[0], "").split():
                is_vowel = phone in VOWELS
                phones.append(phone + stress if is_vowel else phone)
                stress = "0" if is_vowel else stress
        words.append(as_characters(with_stress(phones)))
    return " ".join(words)


def read_override(match: re.Match[str]) -> str | None:
    r"""How a match of `OVERRIDE` is pronounced; None where it is no word with a pronunciation.

    Brackets that touch what stands before them are an index or an argument, as in `a[1]{2}` and `\sqrt[3]{8}`.
    """
    before = match.string[match.start() - 1 : match.start()]
    say = match["say"].strip()
    if before.isalnum() or before in ("\\", "_", "*", ")", "]"):
        return None
    is_phones = len(say) > 2 and say[0] == say[-1] == "/"
    if not is_phones and _RESPELLING.fullmatch(say) is None:
        return None
    try:
        return read_pronunciation(say)
    except DataError:
        return None


def read_as_text(match: re.Match[str]) -> str:
    """What is read where a match of `OVERRIDE` is no pronunciation: the word alone before attributes or bad phones."""
    if match.string[match.start() - 1 : match.start()].isalnum():
        return match[0]
    say = match["say"].strip()
    tries_phones = say[0] == say[-1] == "/" or _ARPABET.fullmatch(say) if say else False
    return match["word"] if tries_phones or _ATTRIBUTES.fullmatch(f"{{{say}}}") else match[0]


def apply_overrides(text: str, trace: Trace) -> str:
    """`text` with every override read: `[Nguyen]{win}` -> "win"; what is none stays text, and `trace` names it."""
    if "ing]" in text:
        text = _CONTOUR.sub(lambda mark: RISING if mark[1].lower() == "ris" else FALLING, text)
    if "]{" not in text:
        return text

    def read(match: re.Match[str]) -> str:
        said = read_override(match)
        if said is not None:
            return _record(match["word"], said, trace)
        if _PLACEHOLDER.fullmatch(match["say"]):
            return f"{match['word']} {match['say'].replace('_', ' ')}"
        trace.leave_out(match[0])
        return read_as_text(match)

    return _OVERRIDE.sub(read, text)


def written_words(text: str) -> str:
    """`text` without the pronunciations that it gives: `[Nguyen]{win}` -> "Nguyen"."""
    text = _CONTOUR.sub("", text) if "ing]" in text else text
    if "]{" not in text:
        return text
    return _OVERRIDE.sub(lambda match: match[0] if read_override(match) is None else match["word"], text)
