"""Names and rare words: what the recognizer finds in the speech of the packaged model, with and without a lexicon."""

from __future__ import annotations

import pytest

from marstts.text.lexicon import Lexicon

WORDS = {
    "Nguyen": ("win", "W IH N", "N UW G Y EH N"),
    "Siobhan": ("shivawn", "SH IH V AO N", "S IY OW B HH AE N"),
    "Hermione": ("her my oh nee", "HH ER M AY OW N IY", "HH ER M IY OW N"),
    "Versailles": ("ver sigh", "V ER S AY", "V ER S EY L Z"),
    "Yosemite": ("yo semmity", "Y OW S EH M AH T IY", "Y OW Z M AY T"),
    "Arkansas": ("arkan saw", "AA R K AH N S AO", "AA R K AE N Z AH S"),
    "segue": ("seg way", "S EH G W EY", "S EH G Y UW"),
    "hyperbole": ("high perbolly", "HH AY P ER B AH L IY", "HH AY P ER B OW L"),
    "Worcester": ("wooster", "W UH S T ER", "W AO R S EH S T ER"),
    "colonel": ("kernel", "K ER N AH L", "K AA L AH N EH L"),
}
"""Respelling, how the word is pronounced, and how its letters suggest it."""

SENTENCE = "He said the word {} again."
SEEDS = (0, 1)


def heard_right(synthesizer: object, decoder: object, word: str, seed: int) -> bool:
    """Whether the recognizer, which knows both pronunciations, prefers the right one."""
    from marstts.metrics import sphinx

    _, right, wrong = WORDS[word]
    for name, phones in ((f"right{word.lower()}", right), (f"wrong{word.lower()}", wrong)):
        if decoder.lookup_word(name) is None:  # type: ignore[attr-defined]
            decoder.add_word(name, phones, True)  # type: ignore[attr-defined]
    choices = f"( right{word.lower()} | wrong{word.lower()} )"
    grammar = f"#JSGF V1.0;\ngrammar g;\npublic <s> = he said the word {choices} again ;\n"
    decoder.add_jsgf_string("choices", grammar)  # type: ignore[attr-defined]
    decoder.activate_search("choices")  # type: ignore[attr-defined]
    speech = synthesizer.speak(SENTENCE.format(word), seed=seed)  # type: ignore[attr-defined]
    sphinx.decode(decoder, sphinx.prepare(speech.waveform))
    return f"right{word.lower()}" in sphinx.decoded_words(decoder)


@pytest.mark.slow
def test_a_lexicon_makes_the_model_say_names_and_rare_words_right() -> None:
    pytest.importorskip("pocketsphinx")
    import dataclasses

    import marstts
    from marstts.metrics import sphinx

    decoder = sphinx.new_decoder(lw=1.0, wip=1.0, beam=1e-60, wbeam=1e-40, pbeam=1e-60)
    plain = marstts.load("mini")
    taught = dataclasses.replace(plain, lexicon=Lexicon({word: respelling for word, (respelling, *_) in WORDS.items()}))
    trials = [(word, seed) for word in WORDS for seed in SEEDS]
    without = [heard_right(plain, decoder, word, seed) for word, seed in trials]
    with_lexicon = [heard_right(taught, decoder, word, seed) for word, seed in trials]
    print(dict(zip(trials, zip(without, with_lexicon, strict=True), strict=True)))
    assert sum(with_lexicon) >= 0.75 * len(trials)
    assert sum(with_lexicon) > sum(without)
