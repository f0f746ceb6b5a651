"""The one normalizer of all word-based metrics: a text or a transcript as a list of plain words.

Upstream: test-set texts and recognizers' hypotheses.  Downstream: `recognition`, `minimal_pairs`, `alignment`.

The rules, in order: accents dropped; typographic apostrophes straightened; "&", "mr.", "mrs.", "dr.", "i.e." and "etc."
written out; whole numbers read by num2words ("1984" is "one thousand nine hundred and eighty four"); lower case;
everything that is not a letter or an apostrophe inside a word becomes a space, hyphens too. The normalizer is
independent of the front end that prepares text for synthesis, so that a change there cannot change the metrics.
"""

from __future__ import annotations

import re
import unicodedata

from num2words import num2words

MAX_DIGITS = 300
"""Longer numbers are read digit by digit: num2words has no names for them."""

WRITTEN_OUT = {
    r"&": " and ",
    r"\bi\.\s?e\.": " that is ",
    r"\betc\b\.?": " et cetera ",
    r"\bmr\b\.?": " mister ",
    r"\bmrs\b\.?": " missus ",
    r"\bdr\b\.?": " doctor ",
}


def plain_words(text: str) -> list[str]:
    """Lower-case words of a-z and inner apostrophes; empty if the text contains none."""
    text = unicodedata.normalize("NFKD", text.replace("\u2019", "'").replace("\u2018", "'")).lower()
    text = "".join(character for character in text if not unicodedata.combining(character))
    for pattern, words in WRITTEN_OUT.items():
        text = re.sub(pattern, words, text)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"\d+", lambda found: f" {read_number(found.group())} ", text)
    return re.findall(r"[a-z]+(?:'[a-z]+)*", text)


def read_number(digits: str) -> str:
    """A whole number in words."""
    if len(digits) > MAX_DIGITS:
        return " ".join(num2words(int(digit)) for digit in digits)
    return str(num2words(int(digits)))
