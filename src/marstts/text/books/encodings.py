"""The encodings of documents: those that the web knows, by a fixed list, and none by a name of Python's own table.

Upstream: the bytes of a document that others wrote.  Downstream: `epub`, `book`.
https://encoding.spec.whatwg.org lists the labels. Python knows more by name: codecs that run for minutes, that are no
encodings of bytes, or that give halves of characters.
"""

from __future__ import annotations

import re

_LABELS = """
cp866: 866 cp866 csibm866 ibm866
iso8859-2: csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2
iso8859-3: csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3
iso8859-4: csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4
iso8859-5: csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988
iso8859-6: arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e iso-8859-6-i
 iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987
iso8859-7: csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7
 iso_8859-7:1987 sun_eu_greek
iso8859-8: csiso88598e csiso88598i csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-8859-8-i iso-ir-138 iso8859-8
 iso88598 iso_8859-8 iso_8859-8:1988 logical visual
iso8859-10: csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6
iso8859-13: iso-8859-13 iso8859-13 iso885913
iso8859-14: iso-8859-14 iso8859-14 iso885914
iso8859-15: csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9
iso8859-16: iso-8859-16
koi8-r: cskoi8r koi koi8 koi8-r koi8_r
koi8-u: koi8-ru koi8-u
mac-roman: csmacintosh mac macintosh x-mac-roman
cp874: dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874
cp1250: cp1250 windows-1250 x-cp1250
cp1251: cp1251 windows-1251 x-cp1251
cp1252: ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 iso_8859-1
 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252
cp1253: cp1253 windows-1253 x-cp1253
cp1254: cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 windows-1254
 x-cp1254
cp1255: cp1255 windows-1255 x-cp1255
cp1256: cp1256 windows-1256 x-cp1256
cp1257: cp1257 windows-1257 x-cp1257
cp1258: cp1258 windows-1258 x-cp1258
mac-cyrillic: x-mac-cyrillic x-mac-ukrainian
gb18030: chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030
big5hkscs: big5 big5-hkscs cn-big5 csbig5 x-x-big5
euc-jp: cseucpkdfmtjapanese euc-jp x-euc-jp
iso2022-jp: csiso2022jp iso-2022-jp
cp932: csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis
cp949: cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949
"""
"""Python's codec for the labels of each encoding. UTF-8 is tried first, UTF-16 is known by its first bytes."""

CODECS = {
    label: codec
    for codec, labels in (line.split(": ") for line in _LABELS.strip().replace("\n ", " ").splitlines())
    for label in labels.split()
}

_STATED = re.compile(rb"(?:encoding|charset)\s{0,40}=\s{0,40}[\"']?([A-Za-z0-9.:_-]{2,40})", re.IGNORECASE)
_DECLARATION = re.compile(r"\A\s*<\?xml\b[^<>]*>")
DEFAULT = "cp1252"
"""Windows-1252, which browsers read where no other encoding is known."""


def decode_document(content: bytes) -> str:
    """The text of a document in the encoding that it states; bytes that are no UTF-8 are taken as Windows-1252.

    What is no character of the encoding becomes U+FFFD; halves of characters (surrogates) are never in the text.
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    if content[:4] in (b"<\0?\0", b"<\0h\0", b"<\0!\0", b"<\0p\0"):
        return content.decode("utf-16-le", "replace")
    if content[:4] in (b"\0<\0?", b"\0<\0h", b"\0<\0!", b"\0<\0p"):
        return content.decode("utf-16-be", "replace")
    for encoding in ("utf-8-sig", stated_encoding(content)):
        try:
            return content.decode(encoding)
        except UnicodeError:
            continue
    return content.decode(DEFAULT, "replace")


def stated_encoding(content: bytes) -> str:
    """Python's codec for the encoding that a document states, where the web knows it; else Windows-1252."""
    stated = _STATED.search(content[:1024])
    return CODECS.get(stated[1].decode("ascii").lower(), DEFAULT) if stated is not None else DEFAULT


def without_declaration(document: str) -> str:
    """The text of an XML document without its first line, which names the encoding that its bytes had."""
    return _DECLARATION.sub("", document, count=1)
