"""The one normaliser of all word-based judges: text, or what was heard, as a list of plain words.

Upstream: test-set texts and recognisers' hypotheses.  Downstream: `recognition`, `word_choice`, `alignment`.

The rules, in order: accents dropped; typographic apostrophes straightened; "&", "mr.", "mrs.", "dr.", "i.e." and "etc."
written out; whole numbers read by num2words ("1984" is "one thousand nine hundred and eighty four"); lower case;
whatever is not a letter or an apostrophe inside a word becomes a space, hyphens too. It is the judges' own, apart from
the front end that prepares text for speaking, so that a change there cannot move the yardstick.
"""

from __future__ import annotations

import re
import unicodedata

from num2words import num2words

WRITTEN_OUT = {
    r"&": " and ",
    r"\bi\.\s?e\.": " that is ",
    r"\betc\b\.?": " et cetera ",
    r"\bmr\b\.?": " mister ",
    r"\bmrs\b\.?": " missus ",
    r"\bdr\b\.?": " doctor ",
}


def plain_words(text: str) -> list[str]:
    """Lower-case words of a-z and inner apostrophes; empty if the text holds none."""
    text = unicodedata.normalize("NFKD", text.replace("\u2019", "'").replace("\u2018", "'")).lower()
    text = "".join(character for character in text if not unicodedata.combining(character))
    for pattern, words in WRITTEN_OUT.items():
        text = re.sub(pattern, words, text)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"\d+", lambda digits: f" {num2words(int(digits.group()))} ", text)
    return re.findall(r"[a-z]+(?:'[a-z]+)*", text)
