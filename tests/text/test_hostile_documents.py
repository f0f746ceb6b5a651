"""Documents made to hang the reader or fill its memory: time is linear, and what is refused is one sentence."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from marstts.errors import DataError, MarsError, TextError
from marstts.text.books.book import read_book
from marstts.text.ssml import is_ssml, read_ssml
from marstts.text.xhtml import Tag, read_xhtml
from small_epub import PARTS, write_small_epub

SLOWEST_SECONDS = 4.0
"""In quadratic time, all of these take more; each takes a part of a second on an idle machine."""


def timed(read: Callable[[], object]) -> None:
    started = time.process_time()
    try:
        read()
    except MarsError as error:
        assert "\n" not in str(error)
    assert time.process_time() - started < SLOWEST_SECONDS


def test_comments_before_an_ssml_document_take_linear_time() -> None:
    started = time.process_time()
    assert not is_ssml("<!---->" * 280 + "x")
    assert is_ssml("<!-- a --> <!-- b\n -->\n<speak>")
    assert not is_ssml("<!-- <speak> -->")
    assert time.process_time() - started < SLOWEST_SECONDS


@pytest.mark.parametrize(
    "document",
    [
        "aaaaaaaaaaaaaaaaaa<mark/>" * 10_000,
        "".join(f"<emphasis>w{number}</emphasis>" for number in range(10_000)),
        "<s>a</s>" * 10_000,
        "a<break/>" * 5_000,
        "<p>" * 10_000,
    ],
    ids=["marks", "emphasis", "sentences", "breaks", "nested"],
)
def test_ssml_takes_linear_time(document: str) -> None:
    timed(lambda: read_ssml(f"<speak>{document}</speak>"))


@pytest.mark.parametrize("entity", ['"lol"', 'SYSTEM "file:///etc/passwd"'])
def test_entities_of_ssml_are_refused(entity: str) -> None:
    with pytest.raises(TextError, match="without entities"):
        read_ssml(f"<!DOCTYPE speak [<!ENTITY a {entity}>]><speak>&a;</speak>")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", ">", "'>", "-->"])
@pytest.mark.parametrize(
    "piece",
    ["<", "<!", "<!--", "<![CDATA[", "<a ", "</", "<a b='", "<?", "<a/", "<a b=c ", "<p>", "<svg>", "a<b>", "&#"],
)
def test_xhtml_takes_linear_time(piece: str, end: str) -> None:
    timed(lambda: list(read_xhtml(piece * (50_000 // len(piece)) + end)))


def test_tags_and_text_of_xhtml() -> None:
    document = "<!DOCTYPE html><p ID='a' b=\"1 > 0\" c=d>5 &lt; 6"
    document += "<br/><!-- <x> --><![CDATA[<y>]]><script>a<b</script></p> < 2"
    tag, *found = read_xhtml(document)
    assert tag == Tag("p", starts=True, ends=False, attributes={"id": "a", "b": "1 > 0", "c": "d"})
    assert [one if isinstance(one, str) else one.name for one in found] == [
        "5 < 6", "br", "<y>", "script", "script", "p", " ", "<", " 2",
    ]  # fmt: skip


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_book(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    path = write_small_epub(tmp_path / "a.epub")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in PARTS.items():
            archive.writestr(name, content if name != "a.xhtml" else "a" * (17 * 2**20))
    assert path.stat().st_size < 2**20 and "too large to be a text" in refusal(path)


def test_a_directory_that_fills_the_memory_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.epub"
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("META-INF/container.xml", "a")
        for number in range(200):
            archive.writestr(f"{number}{'a' * 20_000}", "")
    content = bytearray(sink.getvalue())
    path.write_bytes(content)
    assert "too many parts" in refusal(path)
    end = content.rfind(b"PK\5\6")
    content[end + 12 : end + 16] = (900 * 2**20).to_bytes(4, "little")  # which the file does not have
    path.write_bytes(content)
    refusal(path)
    path.write_bytes(content[:end] + b"PK\6\7" + bytes(16) + content[end:])
    refusal(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_no_epub_has_are_refused(method: int, tmp_path: Path) -> None:
    path = tmp_path / "a.epub"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in PARTS.items():
            archive.writestr(name, content)
    assert "compressed in another way" in refusal(path)


@pytest.mark.slow
def test_entities_and_corrupt_parts_of_an_epub_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.epub"
    entity = '<!DOCTYPE a [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]>'
    for compression, parts in (
        (zipfile.ZIP_STORED, {**PARTS, "b.opf": entity + PARTS["b.opf"]}),
        (zipfile.ZIP_STORED, {**PARTS, "META-INF/container.xml": "<a>" * 100_000}),
    ):
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in parts.items():
                archive.writestr(name, content)
        assert "malformed" in refusal(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in PARTS.items():
            archive.writestr(name, content)
        start = archive.getinfo("b.opf").header_offset + 30 + len("b.opf")
    content = bytearray(path.read_bytes())
    content[start : start + 20] = b"\xff" * 20
    path.write_bytes(content)
    assert "corrupt" in refusal(path)


def test_nested_entries_of_a_table_of_contents_take_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "a.epub"
    ncx = "<ncx>" + "<navPoint>" * 30_000 + "</navPoint>" * 30_000 + "</ncx>"
    item = '<item id="n" href="n.ncx" media-type="application/x-dtbncx+xml"/></manifest>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**PARTS, "n.ncx": ncx}.items():
            archive.writestr(name, content.replace("</manifest>", item) if name == "b.opf" else content)
    timed(lambda: read_book(path))


@pytest.mark.parametrize("place", ["gone{}.xhtml", "d.xhtml"])
def test_contents_and_items_of_the_same_documents_take_linear_time(place: str, tmp_path: Path) -> None:
    path = tmp_path / "a.epub"
    points = "".join(
        f'<navPoint><navLabel><text>A</text></navLabel><content src="{place.format(number)}"/></navPoint>'
        for number in range(25_000)
    )
    items = "".join(f'<item id="d{n}" href="d.xhtml" media-type="application/xhtml+xml"/>' for n in range(25_000))
    items += '<item id="n" href="n.ncx" media-type="application/x-dtbncx+xml"/></manifest>'
    parts = {**PARTS, "n.ncx": f"<ncx>{points}</ncx>", "d.xhtml": "<p>It rained.</p>"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content.replace("</manifest>", items) if name == "b.opf" else content)
    timed(lambda: read_book(path))


DEFAULTS = '<!DOCTYPE p [<!ATTLIST item href CDATA "' + "x" * 100_000 + '">]>'
MANY = "<a/>" * 400_000


@pytest.mark.parametrize("doctype", [DEFAULTS, '<!DOCTYPE p SYSTEM "p.dtd" [<!ATTLIST item href CDATA "x">]>'])
@pytest.mark.parametrize("part", ["META-INF/container.xml", "b.opf", "META-INF/encryption.xml"])
def test_declarations_within_a_part_are_refused(tmp_path: Path, part: str, doctype: str) -> None:
    book = rewritten(tmp_path, **{part: doctype + "<p>" + '<item id="c"/>' * 100 + "</p>"})
    assert "declares entities or attributes" in refusal(book)


def test_a_doctype_without_declarations_is_read(tmp_path: Path) -> None:
    assert len(read_book(rewritten(tmp_path, **{"b.opf": "<!DOCTYPE package>" + PARTS["b.opf"]})).chapters) == 2


def test_declarations_within_ssml_are_refused() -> None:
    with pytest.raises(TextError, match="declares entities or attributes"):
        read_ssml(f"{DEFAULTS}<speak>{'<item/>' * 100}</speak>")


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    ["<h1>x</h1>", "<hr/>", "<br/>", "10<sup>3</sup>", "<div>", "<a ", "<!---->", "&a", "<", "ab ", "\n",
     '<a href="#n1">1</a>', f'<a href="{"#" * 5000}">x</a>', '<aside epub:type="footnote">x</aside>', "<![CDATA[a]]>"],
)  # fmt: skip
def test_a_book_that_unfolds_is_read_or_refused_in_time(tmp_path: Path, body: str) -> None:
    path = rewritten(tmp_path, **{"a.xhtml": f"<html><body>{body * (11 * 2**20 // len(body))}</body></html>"})
    timed(lambda: read_book(path))


@pytest.mark.parametrize("part", ["META-INF/container.xml", "b.opf"])
def test_parts_of_too_many_elements_or_attributes_are_refused(tmp_path: Path, part: str) -> None:
    for content in (f"<p>{MANY}</p>", "<p " + " ".join(f"a{number}=''" for number in range(310_000)) + "/>"):
        timed(lambda content=content: refusal(rewritten(tmp_path, **{part: content})))


@pytest.mark.parametrize("line", ["\n", "Chapter 1\n\n", "\u2028", "# a\n\n"])
def test_a_text_of_too_many_lines_is_refused_in_time(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.txt").write_text(line * 700_000, "utf-8")
    timed(lambda: refusal(tmp_path / "a.txt"))


def rewritten(folder: Path, **parts: str) -> Path:
    """The small book with other parts."""
    with zipfile.ZipFile(folder / "a.epub", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**PARTS, **parts}.items():
            archive.writestr(name, content)
    return folder / "a.epub"
