"""The text side of the tab: readings, sentences and prompts, in Python without compiled packages.

Upstream: `static/reader-worker.js`, which runs this module in Pyodide and speaks JSON with it.  Downstream: `text`,
`synthesis.prepared_text`, `mars6.spelling`. Rules, numbers and pronunciations are those of the package, file by file.
"""

from __future__ import annotations

import json
import re
from typing import Any

from marstts.errors import MarsError
from marstts.mars6.prompt_text import prompt_string, sentence_spans
from marstts.mars6.spelling import Spelling, read_aloud
from marstts.synthesis.prepared_text import PreparedText
from marstts.synthesis.words.written_forms import with_forms
from marstts.text.lexicon import Lexicon, read_entry
from marstts.text.phones import readable
from marstts.text.pronunciation.words import PhoneUse, phones_in_context
from marstts.text.reading import Manner, read_text
from marstts.text.sentences import last_mark
from marstts.text.tokenizers.byte_pairs import BytePairs

Answer = dict[str, Any]

_SPACED = re.compile(r"\S+")


class Reader:
    """Reads texts for one model."""

    def __init__(self, tokenizer: str, settings: Answer) -> None:
        """`tokenizer`: the text of the bundle's tokenizer.json; `settings`: those of its bundle.json."""
        self._tokenizer = BytePairs(tokenizer)
        self._quality = settings.get("quality_prefix_hz", 48_000)
        self._spelling = Spelling(settings.get("spelling", Spelling.AS_WRITTEN.value))
        self._phones = PhoneUse(settings.get("phones", PhoneUse.NONE.value))
        self._respellings = settings.get("respellings", {})

    def answer(self, request: str) -> str:
        """The answer to a request, both JSON: `{"readings": TEXT}` or `{"sentences": TEXT}`.

        `lexicon` besides has pairs of a word and its pronunciation. What is wrong is `{"error": SENTENCE}`.
        """
        asked = json.loads(request)
        try:
            lexicon = Lexicon(dict(read_entry("\t".join(pair)) for pair in asked.get("lexicon", [])))
            found = (
                self.readings(asked["readings"], lexicon)
                if "readings" in asked
                else self.sentences(asked["sentences"], lexicon)
            )
        except MarsError as error:
            found = {"error": str(error)}
        return json.dumps(found)

    def readings(self, text: str, lexicon: Lexicon) -> Answer:
        """Each word in the order of the text, how it is read, and in which phones where a table or model knows them."""
        reading = read_text(text, lexicon)
        segments = [segment for passage in reading.passages for segment in with_forms(passage)]
        words = [
            {
                "written": form.written,
                "read": readable(segment.text[form.start : form.end]),
                "phones": [
                    phones_in(word[0], segment.text, word.start())
                    for word in _SPACED.finditer(segment.text, form.start, form.end)
                ],
            }
            for segment in segments
            for form in segment.forms
        ]
        return {"words": words, "warnings": list(reading.warnings)}

    def sentences(self, text: str, lexicon: Lexicon) -> Answer:
        """The sentences of a text with pauses, voices, written forms and prompts; places count code points."""
        prepared = PreparedText(text, Manner(lexicon=lexicon))
        found = [
            {
                "text": segment.text,
                "readable": readable(segment.text),
                "mark": last_mark(segment.text),
                "voice": segment.voice,
                "lead": segment.lead_seconds,
                "pause": segment.pause_seconds,
                "forms": [[form.written, form.start, form.end] for form in segment.forms],
                **self.prompt(segment.text),
            }
            for segment in prepared
        ]
        return {"sentences": found, "warning": prepared.warning}

    def prompt(self, sentence: str) -> Answer:
        """The tokens of a sentence for the encoder, and the characters of the sentence that each stands for."""
        spelled = read_aloud(sentence, self._spelling, self._phones, self._respellings)
        string = prompt_string(spelled.text, quality=self._quality)
        ids, offsets = self._tokenizer.encode_with_offsets(string)
        return {"ids": ids, "spans": spelled.original_spans(sentence_spans(string, spelled.text, offsets))}


def phones_in(word: str, text: str, start: int) -> str:
    """The phones of a word that begins at `start` in a text, as ARPAbet; empty where they are not known."""
    letters = "".join(character for character in word if character.isalpha() or character == "'").strip("'")
    found = phones_in_context(letters, text, start) if letters.isascii() and letters else None
    return " ".join(found or ())
