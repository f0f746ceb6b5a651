"""Written forms that can mean two things, and what around them decides."""

from __future__ import annotations

import pytest

from marstts.text.normalize import normalize
from marstts.text.reading import read_text


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("She sang in Old St James's.", "She sang in Old Saint James's."),
        ("The ferry to Port St. Anne left.", "The ferry to Port Saint Anne left."),
        ("We saw Great St Martin and East St Paul.", "We saw Great Saint Martin and East Saint Paul."),
        ("Bury St Edmunds, North St Ives, Lake St. Clair.", "Bury Saint Edmunds, North Saint Ives, Lake Saint Clair."),
        ("Sault Ste. Marie, St-Denis and Sts. Peter and Paul.",
         "Sault Saint Marie, Saint-Denis and Saints Peter and Paul."),
        ("Main St. Then we left.", "Main Street. Then we left."),
        ("She lives on Main St. Paul left.", "She lives on Main Street. Paul left."),
        ("Turn at Elm St. Bring a map.", "Turn at Elm Street. Bring a map."),
        ("At Bond St Mary got off.", "At Bond Street Mary got off."),
        ("High St, St Mary St, 12 Oak St.", "High Street, Saint Mary Street, twelve Oak Street."),
    ],
)  # fmt: skip
def test_a_saint_is_no_street(written: str, spoken: str) -> None:
    assert normalize(written) == spoken == " ".join(read_text(written).sentences)


def test_a_saint_after_a_name_ends_no_sentence() -> None:
    assert len(read_text("Old St. Paul's and Port St. Anne are near.").sentences) == 1


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Rest 90s.", "Rest ninety seconds."),
        ("Wait 20s, then go.", "Wait twenty seconds, then go."),
        ("Then 10s more.", "Then ten seconds more."),
        ("In the 80s more people came.", "In the eighties more people came."),
        ("60s left on the clock", "sixty seconds left on the clock"),
        ("Run 5s, rest 30s", "Run five seconds, rest thirty seconds"),
        ("Skip 40s of ads.", "Skip forty seconds of ads."),
        ("Timeout: 30s. Retry in 10s.", "Timeout: thirty seconds. Retry in ten seconds."),
        ("A 30s clip and the 10s delay.", "A thirty second clip and the ten second delay."),
        ("Sprint 20s, walk 40s, eight rounds.", "Sprint twenty seconds, walk forty seconds, eight rounds."),
        ("It was in the 60s.", "It was in the sixties."),
        ("She is in her 30s.", "She is in her thirties."),
        ("60s music and 90s kids", "sixties music and nineties kids"),
        ("I like the '80s and 90s, a 90s vibe, the late 70s.",
         "I like the eighties and nineties, a nineties vibe, the late seventies."),
        ("Hits of the 80s, 90s and today.", "Hits of the eighties, nineties and today."),
        ("It was in the 1980s, with 10s of boats.", "It was in the nineteen eighties, with tens of boats."),
    ],
)  # fmt: skip
def test_seconds_are_no_decades(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It has 12,5 points.", "It has twelve point five points."),
        ("It took 0,5 hours.", "It took zero point five hours."),
        ("3,14 is pi", "three point one four is pi"),
        ("He said that 2,72 was e.", "He said that two point seven two was e."),
        ("John 3,16 is known.", "John three, sixteen is known."),
        ("John 3:16. 12,13 is a prime pair.", "John three, sixteen. twelve, thirteen is a prime pair."),
        ("He said that 5,10 was wrong.", "He said that five, ten was wrong."),
        ("2,50 is too much.", "two point five zero is too much."),
        ("1,5 million people left", "one point five million people left"),
        ("3,7 percent at 12,5 degrees", "three point seven percent at twelve point five degrees"),
        ("From 2,5-3,5 hours.", "From two point five to three point five hours."),
        ("It rose by 0,7.", "It rose by zero point seven."),
        ("3, 5 and 7", "three, five and seven"),
        ("pages 4,5 and 6,7", "pages four, five and six, seven"),
        ("1,2 or 3 of 1,200", "one, two or three of one thousand two hundred"),
        ("2,71828 in all", "two point seven one eight two eight in all"),
        ("1.234,5 km", "one thousand two hundred and thirty-four point five kilometers"),
        ("12.345,678 items", "twelve thousand three hundred and forty-five point six seven eight items"),
        ("12,345 people", "twelve thousand three hundred and forty-five people"),
    ],
)
def test_a_decimal_comma_is_no_list(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It cost 99.000 €.", "It cost ninety-nine thousand euros."),
        ("€ 1.250.000", "one million two hundred and fifty thousand euros"),
        ("45.500 EUR next to 27,50 €",
         "forty-five thousand five hundred euros next to twenty-seven euros and fifty cents"),
        ("1.250 euros, CHF 12.500", "one thousand two hundred and fifty euros, twelve thousand five hundred francs"),
        ("a town of 45.500 inhabitants", "a town of forty-five thousand five hundred inhabitants"),
        ("€1.459 per litre", "one point four five nine euros per litre"),
        ("$1.250 and €0.125", "one point two five zero dollars and zero point one two five euros"),
    ],
)  # fmt: skip
def test_points_part_thousands_of_european_money(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("her $3 umbrella", "her three dollar umbrella"),
        ("that £8 book", "that eight pound book"),
        ("the €50 ticket", "the fifty euro ticket"),
        ("the $5 lego and a $5 latte", "the five dollar lego and a five dollar latte"),
        ("Anna's $12 salad, two $5 tickets", "Anna's twelve dollar salad, two five dollar tickets"),
        ("her new $30 hat, the $3.50 coffee", "her new thirty dollar hat, the three dollar and fifty cent coffee"),
        ("the $3 million deal", "the three million dollar deal"),
        ("I gave her $3 yesterday.", "I gave her three dollars yesterday."),
        ("The $5 he owed. The $5 was gone.", "The five dollars he owed. The five dollars was gone."),
        ("It cost $5 and the $10.", "It cost five dollars and the ten dollars."),
    ],
)
def test_amounts_before_nouns_are_singular(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Text 150-1234-5678.", "Text one five zero, one two three four, five six seven eight."),
        ("Fax 02-9876-5432", "Fax zero two, nine eight seven six, five four three two"),
        ("Call 0 800 555 0123", "Call zero, eight zero zero, five five five, zero one two three"),
        ("at 135-4567-8900 now", "at one three five, four five six seven, eight nine zero zero now"),
        ("138 0013 8000", "one three eight, zero zero one three, eight zero zero zero"),
        ("Phone: 12-34-56-78.", "Phone: one two, three four, five six, seven eight."),
        ("It is 06.12.34.56.78.", "It is zero six, one two, three four, five six, seven eight."),
        ("Text 20 friends 300 times.", "Text twenty friends three hundred times."),
        ("Call 12-05-2024 a day.", "Call December fifth, twenty twenty-four a day."),
    ],
)
def test_telephone_numbers_are_read_digit_by_digit(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("On 1-2-24 we met.", "On the first of February, twenty twenty-four we met."),
        ("by 3-11-99", "by the third of November, nineteen ninety-nine"),
        ("a 4-3-12 split", "a four to three-twelve split"),
        ("due 17-05-24", "due the seventeenth of May, twenty twenty-four"),
        ("by 30-11-99.", "by the thirtieth of November, nineteen ninety-nine."),
        ("04-07-23 and 05-17-24", "the fourth of July, twenty twenty-three and May seventeenth, twenty twenty-four"),
        ("99-11-30", "November thirtieth, nineteen ninety-nine"),
        ("the combination 10-12-30", "the combination ten to twelve-thirty"),
        ("a score of 21-19-21", "a score of twenty-one to nineteen-twenty-one"),
    ],
)
def test_dates_with_dashes_and_two_digits_of_the_year(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("0xdeadBEEF12", "zero x D E A D B E E F one two"),
        ("wallet 0x9aF350cB", "wallet zero x nine A F three five zero C B"),
        ("hash 540356cBB", "hash five four zero three five six c B B"),
        ("checksum 3fA85f64", "checksum three f A eight five f six four"),
        ("seed 9aF3, id 4E57-B42D", "seed nine a F three, id four E five seven, B four two D"),
        ("a facade, 1e10 and 10000BC", "a facade, one times ten to the tenth and ten thousand B C"),
    ],
)
def test_hexadecimal_strings_are_spelled(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("key RxB-Nd7", "key R x B, N d seven"),
        ("id a1-Qe5-77", "id a one, Q e five, seven seven"),
        ("Order X7-Bd2", "Order X seven, B d two"),
        ("Model Nd5", "Model N d five"),
        ("He played Nf3 and Qxd4+.", "He played knight f three and queen takes d four check."),
        ("The move Nd7 wins.", "The move knight d seven wins."),
        ("3. O-O Qxd4+ 4. Kh1", "three, castles queen takes d four check; four, king h one"),
        ("1e4 and 1 e4, 2 d5", "one, e four and one e four, two d five"),
        ("e8=Q+ and exd5", "e eight becomes queen check and e takes d five"),
    ],
)
def test_codes_are_no_chess(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("flight 27L, car 12C", "flight twenty-seven L, car twelve C"),
        ("runway 27L", "runway twenty-seven L"),
        ("Runways 27L and 27R", "Runways twenty-seven L and twenty-seven R"),
        ("Land on 09R.", "Land on zero nine R."),
        ("seat 12A, exit 12W or bus 7V", "seat twelve A, exit twelve W or bus seven V"),
        ("a 27L backpack, a 5 V supply", "a twenty-seven liter backpack, a five volt supply"),
    ],
)
def test_a_letter_after_the_number_of_a_place_is_no_unit(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    "citation",
    [
        "[Smith 2019]",
        "[Smith et al., 2019; Jones 2020]",
        "[see van der Berg and O'Neil, 2019a, p. 5]",
        "[Müller & Li 1999, 2001b]",
    ],
)
def test_authors_and_years_in_brackets_are_left_out(citation: str) -> None:
    assert normalize(f"It grew {citation}. Then it fell.") == "It grew. Then it fell."
    assert normalize(f"It grew. {citation} Then it fell.") == "It grew. Then it fell."


@pytest.mark.parametrize("words", ["[July 2019]", "[Spring 2020]", "[In 2019]"])
def test_dates_in_brackets_are_read(words: str) -> None:
    assert "twenty" in normalize(f"He wrote it then {words} and left.")


def test_a_citation_that_a_sentence_needs_is_read() -> None:
    assert "Smith" in normalize("This was shown by [Smith 2019].")
