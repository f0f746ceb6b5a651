"""Addresses and names of computers: web and mail addresses, IP numbers, paths, files, handles, hashtags, code.

Upstream: folded text.  Downstream: the rules of numbers, which read the digits that remain.
"""

from __future__ import annotations

import re
from functools import lru_cache

from marstts.text.numbers.words import cardinal, in_pairs, one_by_one, spelled
from marstts.text.rules.engine import rule
from marstts.text.rules.tables import table

TOP_LEVEL_DOMAINS = (
    "com|org|net|edu|gov|mil|int|io|ai|co|uk|de|fr|eu|us|ca|au|nz|ie|nl|es|ch|se|no|jp|cn|in|br|ru|it|at|be|dk|fi|pl"
    "|info|dev|app|me|tv|gg|xyz|biz|ly|to|fm|so|tech|shop|online|site|store|blog|cloud"
)

FILE_ENDINGS = (
    "txt|md|py|js|ts|tsx|jsx|json|toml|yaml|yml|csv|tsv|html|htm|css|xml|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg"
    "|mp[34]"
    "|wav|flac|ogg|zip|tar|gz|exe|dll|so|sh|bat|c|h|cpp|hpp|rs|go|rb|java|kt|swift|sql|log|ini|cfg|conf|env|lock"
    "|ipynb|heic|mov|avi|webp|bmp|psd|epub|apk|dmg|bak|php|tex|scss|vue|lua|whl"
)

_ADDRESS_SYMBOLS = table("symbols")["address"]
_ADDRESS_SYMBOL = re.compile(f"[{re.escape(''.join(_ADDRESS_SYMBOLS))}]")
_EDGES = "\"'()[]{}<>,;:!?.*_"
_EMAIL = re.compile(r"[A-Za-z0-9_.+'-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_WEB_ADDRESS = re.compile(
    r"[A-Za-z]{3,6}://\S+|www\.\S+"
    rf"|[A-Za-z0-9-]*[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*\.(?:{TOP_LEVEL_DOMAINS})(?::[0-9]{{2,5}})?"
    rf"(?:[/?#]\S*)?"
    r"|localhost:[0-9]{2,5}(?:/\S*)?"
)
_PATH = re.compile(
    r"[A-Za-z]:[\\/](?!/)\S*|~/\S*|\.{1,2}/\S+|\\\\\S+"
    r"|/(?:[A-Za-z0-9_.@+-]+/)+[A-Za-z0-9_.@+*-]*(?:\?[A-Za-z0-9_]+=[A-Za-z0-9_.=&%+-]*)?"
    r"|/(?:usr|etc|var|tmp|home|bin|opt|dev|root|mnt|proc|sys|api)(?:/\S*)?"
    rf"|(?:[A-Za-z0-9_.@+-]+/)+[A-Za-z0-9_@+-]+\.(?:{FILE_ENDINGS})(?::[0-9]{{1,5}})?"
)
_SCHEME = re.compile(r"^[A-Za-z]{3,6}://")
_LONG_DIGITS = re.compile(r"(?<![0-9])[0-9]{5,}(?![0-9])")


@lru_cache(maxsize=4096)
def _read_word(word: str) -> str | None:
    """A word that is a web or mail address, a path or a file name; None: it is another."""
    core = word.strip(_EDGES)
    if not core:
        return None
    before, _, after = word.partition(core)
    if _EMAIL.fullmatch(core) or _WEB_ADDRESS.fullmatch(core):
        spoken = _spell_out(_SCHEME.sub("", core).rstrip("/"))
        return before + re.sub(r"\bwww\b", "W W W", spoken) + after
    word, after = _without_closing(word)
    path = word.lstrip("\"'([")
    if _PATH.fullmatch(path) and not (word[0] == "'" and path[0] == "/"):
        after = after.replace('"', "", 1) if word[0] == '"' else after
        return word[: len(word) - len(path)].replace('"', "") + _spell_out(path) + after
    return None


def _without_closing(word: str) -> tuple[str, str]:
    """A word without the marks that close it, and those marks."""
    core = word.rstrip("\"'),;:!?.")
    return core, word[len(core) :].replace(")", " ")


def _spell_out(address: str) -> str:
    address = _LONG_DIGITS.sub(lambda match: one_by_one(match[0]), address)
    address = _ADDRESS_SYMBOL.sub(lambda match: f" {_ADDRESS_SYMBOLS[match[0]]} ", address)
    return re.sub(r"\betc\b", "E T C", address)


def _read_ip(match: re.Match[str]) -> str | None:
    groups = match["groups"].split(".")
    if any(int(group) > 255 for group in groups):
        return None
    words = " dot ".join(one_by_one(group) for group in groups)
    if match["tail"]:
        name = "slash" if match["tail"][0] == "/" else "colon"
        words += f" {name} {cardinal(match['tail'][1:]) if name == 'slash' else in_pairs(match['tail'][1:])}"
    return words


def _read_colon_address(match: re.Match[str]) -> str | None:
    """An IPv6 or hardware address, digit by digit."""
    address = match[0]
    is_address = ("::" in address and len(address) > 2) or address.count(":") >= 5
    if not is_address:
        return None
    return " ".join(_read_hexadecimal(part) for part in re.findall(r"::|:|[0-9A-Fa-f]+", address))


def _read_hexadecimal(part: str) -> str:
    if part.startswith(":"):
        return " ".join(["colon"] * len(part))
    return spelled(part.upper())


def _read_hex_number(match: re.Match[str]) -> str:
    if match["color"]:
        return "hash " + _read_hexadecimal(match["color"])
    if match["bits"]:
        return "zero b " + _read_hexadecimal(match["bits"])
    return "zero x " + _read_hexadecimal(match["digits"])


def _split_humps(match: re.Match[str]) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", match[0])


def _read_hashtag(match: re.Match[str]) -> str:
    return " hashtag " + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", match["tag"]).replace("_", " ")


HEXADECIMAL = [
    rule(
        "code.hexadecimal",
        r"(?<![0-9A-Za-z])(?:0[xX](?P<digits>[0-9A-Fa-f]{1,128})|0[bB](?P<bits>[01]{1,64})|#(?P<color>(?=[0-9A-Fa-f]{0,5}[A-Fa-f])"
        r"(?=[0-9A-Fa-f]{0,5}[0-9])[0-9A-Fa-f]{6}))"
        r"(?![0-9A-Za-z])",
        _read_hex_number,
    ),
]
"""Before the rules that part capitals from what touches them."""

RULES = [
    rule("address.web", r"(?<!\S)(?=\S*?(?:[.:@]\S|[/\\]))\S+", lambda match: _read_word(match[0]), parted=False),
    rule(
        "address.ip",
        r"(?<![0-9A-Za-z.])(?P<groups>[0-9]{1,3}(?:\.[0-9]{1,3}){3})(?P<tail>/[0-9]{1,2}|:[0-9]{2,5})?"
        r"(?![0-9A-Za-z]|\.[0-9])",
        _read_ip,
    ),
    rule(
        "address.ipv6",
        r"(?<![0-9A-Za-z:.])(?=[0-9A-Fa-f]{0,38}:)(?=[0-9A-Fa-f:]{2,39}(?![0-9A-Za-z:]))"
        r"(?:[0-9A-Fa-f]{1,4}|:)(?::{0,2}[0-9A-Fa-f]{1,4}|::){1,8}",
        _read_colon_address,
    ),
    rule("address.hashtag", r"(?<![\w&])#(?P<tag>(?=[0-9_]{0,20}[A-Za-z])\w{1,100})", _read_hashtag),
    rule(
        "code.camel",
        r"(?<![A-Za-z0-9])(?!mmHg)[a-z]{2,20}(?:[A-Z][a-z]{1,20})+(?![A-Za-z])",
        _split_humps,
        parted=False,
    ),
    rule("code.camel", r"(?<![A-Za-z0-9])([A-Z]{2,6})(?=[A-Z][a-z]{3,20}(?![A-Za-z]))", r"\1 ", parted=False),
    rule("code.snake", r"(?<=[A-Za-z0-9])_(?=[A-Za-z0-9])", " ", parted=False),
    rule("code.call", r"(?<=[A-Za-z0-9_])\(\)", "", parted=False),
]
