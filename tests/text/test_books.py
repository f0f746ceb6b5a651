"""Books: chapters with titles, from EPUB and plain text; nothing in a file can hurt."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from marstts.errors import DataError
from marstts.text.books import epub
from marstts.text.books.book import book_of_text, read_book
from marstts.text.books.epub import Notes

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
PACKAGE = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
<metadata><dc:title>The Sea</dc:title><dc:creator>A. Writer</dc:creator><dc:language>en</dc:language></metadata>
<manifest>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="a" href="text/a.xhtml" media-type="application/xhtml+xml"/>
<item id="b" href="text/b%20b.xhtml" media-type="application/xhtml+xml"/>
<item id="c" href="text/c.xhtml" media-type="application/xhtml+xml"/>
<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
</manifest>
<spine><itemref idref="nav"/><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/>
<itemref idref="lost"/></spine></package>"""
NAVIGATION = """<html xmlns:epub="x"><body><nav epub:type="toc"><ol>
<li><a href="text/a.xhtml">The <i>Harbor</i></a></li>
<li><a href="text/a.xhtml#two">The Boat</a></li><li><a href="text/b%20b.xhtml">The Storm</a></li></ol></nav>
<nav epub:type="landmarks"><a href="text/c.xhtml">Nowhere</a></nav></body></html>"""
NCX = """<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel><text>First</text></navLabel>
<content src="text/a.xhtml"/></navPoint><navPoint><navLabel><text>Second</text></navLabel>
<content src="text/b%20b.xhtml"/></navPoint></navMap></ncx>"""
DOCUMENTS = {
    "OEBPS/text/a.xhtml": "<?xml version='1.0'?><!DOCTYPE html><html><head><title>no</title><style>p {}</style></head>"
    "<body>"
    "<h1>The Harbor</h1><p>It lay&nbsp;still<a epub:type='noteref' href='#n'>1</a>, at 5 a.m.<br/>in the\nfog.</p>"
    "<section id='two'><h2>The Boat</h2><p>We rowed.</p><script>alert(1)</script></section></body></html>",
    "OEBPS/text/b b.xhtml": "<html><body><h1>The Storm</h1><p>It blew &amp; blew.</p></body></html>",
    "OEBPS/text/c.xhtml": "<html><body><p>And it went on blowing.</p></body></html>",
}


def write_epub(path: Path, **parts: str) -> Path:
    content = {"META-INF/container.xml": CONTAINER, "OEBPS/content.opf": PACKAGE, "OEBPS/nav.xhtml": NAVIGATION}
    content |= {"OEBPS/toc.ncx": NCX, **DOCUMENTS, **{name.replace("__", "/"): text for name, text in parts.items()}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        for name, text in content.items():
            if text:
                archive.writestr(name, text)
    return path


def test_chapters_follow_the_table_of_contents(tmp_path: Path) -> None:
    book = read_book(write_epub(tmp_path / "b.epub"))
    assert (book.title, book.author, book.language) == ("The Sea", "A. Writer", "en")
    assert [(chapter.number, chapter.title) for chapter in book] == [
        (1, "The Harbor"),
        (2, "The Boat"),
        (3, "The Storm"),
    ]
    harbor, boat, storm = (chapter.text for chapter in book)
    assert harbor == "It lay still, at 5 a.m.\nin the fog."
    assert boat == "We rowed."
    assert storm == "It blew & blew.\n\nAnd it went on blowing."


def test_the_older_table_of_contents_is_read_too(tmp_path: Path) -> None:
    package = PACKAGE.replace(' properties="nav"', "").replace('<itemref idref="nav"/>', "")
    parts = {"OEBPS__content.opf": package, "OEBPS__nav.xhtml": ""}
    assert [chapter.title for chapter in read_book(write_epub(tmp_path / "b.epub", **parts))] == ["First", "Second"]


def document(
    tmp_path: Path, body: str, *, head: str = "", parts: dict[str, str] | None = None, **options: Notes
) -> str:
    """The text of a book whose only document has this body."""
    added = parts or {}
    package = PACKAGE.replace(' properties="nav"', "").replace('<itemref idref="nav"/>', "")
    parts = {
        "OEBPS__content.opf": package.replace('<itemref idref="b"/><itemref idref="c"/>', ""),
        "OEBPS__toc.ncx": "",
    }
    parts |= {"OEBPS__nav.xhtml": "", "OEBPS__text__a.xhtml": f"<html><head>{head}</head><body>{body}</body></html>"}
    parts |= added
    [chapter] = read_book(write_epub(tmp_path / "b.epub", **parts), **options)
    return chapter.text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>10<sup>3</sup> m, x<sup>2</sup>, 4 km<sup>2</sup></p>", "10^3 m, x^2, 4 km^2"),
        ('<p>10<span style="vertical-align: super">6</span><a epub:type="z3998:noteref" href="#z">7</a></p>', "10^6"),
        ("<p>CO<sub>2</sub> on the 21<sup>st</sup></p>", "CO2 on the 21st"),
        ("<p>M<sup>c</sup>Lean, S<sup>t</sup> Anne, y<sup>e</sup>, Rob<sup>t</sup></p>", "McLean, St Anne, ye, Robt"),
        ("<p>x<sub>n</sub>, V<sub>max</sub>, a<sub><i>k</i></sub> e<sup>t</sup></p>", "x n, V max, a k e^t"),
        ("<p>The sea<sup>a</sup> rose<sup>\u2020</sup> so.<sup>b</sup></p>", "The sea rose so."),
        ("<table><caption>Prices</caption><tr><th>Item</th><th>Price</th></tr><tr><td>Tea</td><td>$2</td></tr></table>",
         "Prices\n\nItem, Price.\n\nTea, $2."),
        ("<table><tr><td><p>Who?</p></td><td>I.</td><td/></tr><tr><td>All in one cell</td></tr></table>",
         "Who? I.\n\nAll in one cell"),
        ("<table><tr><td><p>One.</p><p>Two.</p></td><td>Three.</td></tr></table>", "One.\n\nTwo.\n\nThree."),
        ("<table><tr><td>a<td>b<tr><td>c<td><table><tr><td>d<td>e</table></table><p>f</p>",
         "a, b.\n\nc, d, e.\n\nf"),
        ("<p>It sank.<sup>1</sup> In 1912<sup>2</sup>.</p>", "It sank. In 1912."),
        ('<p>It sank.<a href="#n2"><sup>2</sup></a> Then<sup><a href="c.xhtml#x">3</a></sup> rain.</p>',
         "It sank. Then rain."),
        ('<p>Sank<a class="noteref" href="#x">4</a>, <a role="doc-noteref" href="#y">b</a>so.</p>', "Sank, so."),
        ('<p>See <a href="c.xhtml">page 4</a> and <a href="#fn1">the note</a>.</p>', "See page 4 and the note."),
        ('<p>He <span epub:type="pagebreak">12</span>ran <i role="doc-pagebreak">iv</i>home.</p>', "He ran home."),
        ('<p>So<span class="pagenum">[Pg 7]</span>on</p>', "Soon"),
        ('<p hidden="hidden">No.</p><p style="color:red; display: none">No.</p><i aria-hidden="true">No</i><p>Yes.</p>',
         "Yes."),
        ("<p>Ca<sup>2+</sup>, SO<sub>4</sub><sup>2\u2212</sup>, the 3<sup>d</sup> of May, 22<sup>d</sup></p>",
         "Ca^2+, SO4^2-, the 3rd of May, 22nd"),
        ("<p>He <del>went</del><ins>ran</ins>.</p><video>No.</video><noscript>No.</noscript><iframe>No.</iframe>",
         "He ran."),
        ('<p><img alt="W" src="w.png"/>hen <img class="math" alt="x^2 + 1"/>, <img alt="\\frac{1}{2}"/></p>',
         "When x^2 + 1, $\\frac{1}{2}$"),
        ('<p><img alt="A ship" src="s.png"/>He <img alt="x" src="s.png"/>sailed.</p>', "He sailed."),
        ('<epub:switch><epub:case required-namespace="http://www.w3.org/1998/Math/MathML"><math><mi>x</mi></math>'
         '</epub:case><epub:default><p>Or x.</p></epub:default></epub:switch>', "x"),
        ('<epub:switch><epub:case required-namespace="http://www.xml-cml.org"><p>C</p></epub:case>'
         '<epub:default><p>Coal.</p></epub:default></epub:switch>', "Coal."),
        ("<p>One.</p><hr/><p>Two.</p><hr><p>Three.</p>", "One.\n\n* * *\n\nTwo.\n\n* * *\n\nThree."),
    ],
)  # fmt: skip
def test_text_is_read_without_what_is_not_speech(tmp_path: Path, body: str, text: str) -> None:
    assert document(tmp_path, body) == text


NOTES = """<p>One.</p><aside epub:type="footnote"><p><a href="#r1">1</a> A note.</p></aside><p>Two.</p>
<section role="doc-endnotes"><ol><li>Another. <a role="doc-backlink" href="#r2">up</a></li></ol></section>
<p>Three.</p>"""


@pytest.mark.parametrize(
    ("notes", "text"),
    [
        (Notes.IN_PLACE, ["One.", "A note.", "Two.", "Another.", "Three."]),
        (Notes.AT_END, ["One.", "Two.", "Three.", "A note.", "Another."]),
        (Notes.LEFT_OUT, ["One.", "Two.", "Three."]),
    ],
)
def test_notes_are_read_where_the_reader_wants_them(tmp_path: Path, notes: Notes, text: list[str]) -> None:
    assert document(tmp_path, NOTES, notes=notes).split("\n\n") == text


@pytest.mark.parametrize(
    ("headings", "title", "text"),
    [
        ("<h1>Chapter 1</h1><h2>The Sea</h2>", "Chapter 1: The Sea", "It lay."),
        ("<h1>THE SEA</h1><h2>The Sea</h2>", "The Sea", "It lay."),
        ("<h1>Chapter 1</h1><h2>The Sea</h2>", "The Sea", "# Chapter 1\n\nIt lay."),
        ("<p>The Sea.</p>", "The Sea", "It lay."),
        ("<h2>The Seal</h2>", "The Sea", "# The Seal\n\nIt lay."),
    ],
)
def test_a_title_is_said_once(tmp_path: Path, headings: str, title: str, text: str) -> None:
    navigation = f'<nav epub:type="toc"><a href="text/a.xhtml">{title}</a></nav>'
    page = f"<html><body>{headings}<p>It lay.</p></body></html>"
    parts = {"OEBPS__nav.xhtml": navigation, "OEBPS__text__a.xhtml": page}
    chapter = read_book(write_epub(tmp_path / "b.epub", **parts)).chapters[0]
    assert (chapter.title, chapter.text.partition("\n\n# The Storm")[0]) == (title, text)


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("cp1252", "windows-1252"), ("iso-8859-1", "ISO-8859-1"), ("utf-16", "utf-16"), ("utf-16-le", "utf-16"),
        ("iso-8859-15", "iso-8859-15"), ("utf-8", "utf-8"), ("cp1252", "utf-8"), ("utf-8", "no-such"),
    ],
)  # fmt: skip
def test_older_encodings_are_read(tmp_path: Path, encoding: str, declared: str) -> None:
    page = f'<?xml version="1.0" encoding="{declared}"?><html><body><p>Un café, señor.</p></body></html>'
    path = write_epub(tmp_path / "b.epub")
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, page.encode(encoding) if name == "OEBPS/text/a.xhtml" else content)
    assert read_book(path).chapters[0].text == "Un café, señor."


def test_a_book_of_pictures_is_warned_about(tmp_path: Path) -> None:
    pictures = {
        f"OEBPS__text__{name}.xhtml": "<html><body><img src='x.png'/></body></html>" for name in ("a", "b b", "c")
    }
    [warning, _] = read_book(write_epub(tmp_path / "b.epub", **pictures)).warnings
    assert "3 pages of pictures" in warning and "nothing else" in warning
    assert "pictures" not in str(read_book(write_epub(tmp_path / "c.epub")).warnings)


def test_cover_and_all_authors_are_given(tmp_path: Path) -> None:
    creators = (
        '<dc:creator id="a">Ann Lee</dc:creator><dc:creator>Bo Ray</dc:creator><dc:creator id="t">Cy Day</dc:creator>'
        '<meta refines="#t" property="role">trl</meta></metadata>'
    )
    cover = '<item id="p" href="p.png" media-type="image/png" properties="cover-image"/></manifest>'
    package = PACKAGE.replace("<dc:creator>A. Writer</dc:creator>", "").replace("</metadata>", creators)
    parts = {"OEBPS__content.opf": package.replace("</manifest>", cover), "OEBPS__p.png": "PNG"}
    book = read_book(write_epub(tmp_path / "b.epub", **parts))
    assert (book.author, book.authors, book.cover) == ("Ann Lee, Bo Ray", ("Ann Lee", "Bo Ray"), b"PNG")
    package = PACKAGE.replace("</metadata>", '<meta name="cover" content="p"/></metadata>')
    parts["OEBPS__content.opf"] = package.replace("</manifest>", cover.replace(' properties="cover-image"', ""))
    assert read_book(write_epub(tmp_path / "c.epub", **parts)).cover == b"PNG"


def test_without_contents_every_document_is_a_chapter(tmp_path: Path) -> None:
    package = PACKAGE.replace(' properties="nav"', "").replace('<itemref idref="nav"/>', "")
    parts = {"OEBPS__content.opf": package, "OEBPS__toc.ncx": "", "OEBPS__nav.xhtml": ""}
    titles = [chapter.title for chapter in read_book(write_epub(tmp_path / "b.epub", **parts))]
    assert titles == ["The Harbor", "The Storm", "Part 3"]


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"META-INF__container.xml": "<container/>"}, "missing"),
        ({"OEBPS__content.opf": "<package"}, "malformed"),
        ({"OEBPS__content.opf": '<!DOCTYPE p [<!ENTITY a "b">]><package>&a;</package>'}, "malformed"),
        ({"OEBPS__content.opf": PACKAGE.replace("<item", "<x")}, "no words"),
        ({"META-INF__encryption.xml": '<e><CipherReference URI="OEBPS/text/a.xhtml"/></e>'}, "encrypted"),
    ],
)
def test_broken_books_are_refused_in_one_sentence(tmp_path: Path, parts: dict[str, str], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read_book(write_epub(tmp_path / "b.epub", **parts))


def test_large_parts_are_refused_before_they_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epub, "MAX_PART_BYTES", 2_000)
    with pytest.raises(DataError, match="too large"):
        read_book(write_epub(tmp_path / "b.epub", OEBPS__text__c_xhtml="", **{"OEBPS__text__c.xhtml": "x" * 3_000}))


def test_a_truncated_epub_is_refused(tmp_path: Path) -> None:
    whole = write_epub(tmp_path / "b.epub").read_bytes()
    for size in range(0, len(whole), 211):
        path = tmp_path / "cut.epub"
        path.write_bytes(whole[:size])
        with pytest.raises(DataError):
            read_book(path)


NOVEL = """Title: The Walk
Author: B. Writer

*** START OF THE PROJECT GUTENBERG EBOOK THE WALK ***

CONTENTS

CHAPTER I. The Road

CHAPTER II. The Hill

CHAPTER I. The Road

I set out early. Chapter two of my life began when the road bent, and I went along it
for a long time.

CHAPTER II. The Hill

The hill was steep; nobody had told me so. I climbed it all the same, and slowly.

Epilogue

I came home at last, and it was late, and I was glad of it.

*** END OF THE PROJECT GUTENBERG EBOOK THE WALK ***
License words.
"""


def test_a_plain_text_is_cut_at_its_headings() -> None:
    book = book_of_text(NOVEL, "file")
    assert (book.title, book.author) == ("The Walk", "B. Writer")
    assert [chapter.title for chapter in book][-3:] == ["CHAPTER I. The Road", "CHAPTER II. The Hill", "Epilogue"]
    assert "license" not in " ".join(chapter.text.lower() for chapter in book)
    assert [chapter.number for chapter in book] == list(range(1, len(book.chapters) + 1))


def test_markdown_headings_are_chapters() -> None:
    book = book_of_text(
        "# One\n\nWords of the first chapter, many of them.\n\n# Two\nWords of the second chapter, more.", "f"
    )
    assert [chapter.title for chapter in book] == ["One", "Two"]


def test_a_chapter_of_a_few_words_is_kept() -> None:
    book = book_of_text("# Poem\n\nRoses are red,\nviolets blue.\n\n# Rest\n\nMany more words than that.\n", "f")
    assert [(chapter.title, chapter.text) for chapter in book] == [
        ("Poem", "Roses are red,\nviolets blue."), ("Rest", "Many more words than that."),
    ]  # fmt: skip


def test_a_text_without_headings_is_one_chapter(tmp_path: Path) -> None:
    path = tmp_path / "tale.txt"
    path.write_bytes("Once there was a caf\xe9.".encode("cp1252"))
    [chapter] = read_book(path)
    assert (chapter.title, chapter.text) == ("tale", "Once there was a café.")


@pytest.mark.parametrize("content", [b"", b"  \n", b"\x00\x01\x02", b"PK\x03\x04rest"])
def test_files_without_words_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    with pytest.raises(DataError):
        read_book(path)
    with pytest.raises(DataError, match="no such file"):
        read_book(tmp_path / "nope.epub")


@pytest.mark.parametrize("spine", ["<spine/>", "<spine></spine>", '<spine><itemref idref="unknown"/></spine>', ""])
def test_without_a_spine_the_documents_are_read_in_the_order_of_the_parts(tmp_path: Path, spine: str) -> None:
    start, end = PACKAGE.index("<spine>"), PACKAGE.index("</spine>") + len("</spine>")
    parts = {"OEBPS__content.opf": PACKAGE[:start] + spine + PACKAGE[end:]}
    book = read_book(write_epub(tmp_path / "b.epub", **parts))
    assert [chapter.title for chapter in book] == ["The Harbor", "The Boat", "The Storm"]


MATH = "<math xmlns='http://www.w3.org/1998/Math/MathML'>"


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("<mfrac><mi>a</mi><mrow><mi>b</mi><mo>+</mo><mn>1</mn></mrow></mfrac>", "a over b plus 1"),
        ("<mfrac><mn>1</mn><mn>2</mn></mfrac>", "1/2"),
        ("<mfrac linethickness='0pt'><mi>n</mi><mi>k</mi></mfrac>", "n choose k"),
        ("<msqrt><msup><mi>b</mi><mn>2</mn></msup><mo>\u2212</mo><mn>4</mn></msqrt>",
         "the square root of b squared minus 4"),
        ("<mroot><mi>x</mi><mn>3</mn></mroot><mo>\u2264</mo><msup><mi>e</mi><mrow><mo>-</mo><mi>t</mi></mrow></msup>",
         "the cube root of x is at most e to the power of minus t"),
        ("<munderover><mo>\u2211</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi>",
         "the sum from i equals 1 to n of i"),
        ("<munder><mi>lim</mi><mrow><mi>x</mi><mo>\u2192</mo><mn>0</mn></mrow></munder><mi>f</mi><mo>&#x2061;</mo>"
         "<mo>(</mo><mi>x</mi><mo>)</mo>", "the limit as x goes to 0 of f(x)"),
        ("<msub><mi>log</mi><mn>2</mn></msub><mo>|</mo><msub><mi>x</mi><mi>n</mi></msub><mo>|</mo>",
         "log base 2 the absolute value of x n"),
        ("<semantics><mi>x</mi><annotation encoding='application/x-tex'>\\x</annotation></semantics>", "x"),
        ("<mover><mi>v</mi><mo>\u2192</mo></mover><mo>=</mo><mfenced><mi>a</mi><mi>b</mi></mfenced>",
         "v vector equals (a, b)"),
        ("<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>0</mn></mtd></mtr></mtable>", "1, 0"),
        ("<menclose notation='radical'><mi>x</mi></menclose>", "the square root of x"),
        ("<mmultiscripts><mi>C</mi><mn>6</mn><none/><mprescripts/><none/><mn>14</mn></mmultiscripts>", "14 C 6"),
        ("<mrow>" * 60 + "<mi>x</mi>", "a long one"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "m:"])
def test_formulas_are_read(prefix: str, formula: str, words: str, tmp_path: Path) -> None:
    math = f"<math alttext='a long one'>{formula}</math>".replace("</", f"</{prefix}").replace("<m", f"<{prefix}m")
    assert document(tmp_path, f"<p>Then {math.replace('<semantics', f'<{prefix}semantics')}, he said.</p>") == (
        f"Then {words}, he said."
    )


def test_a_formula_that_was_not_closed_takes_no_paragraph_with_it(tmp_path: Path) -> None:
    assert document(tmp_path, f"<p>So {MATH}<mi>x</mi><p>Next.</p></p><p>Last.</p>") == "So x\n\nNext.\n\nLast."


def test_a_formula_without_content_is_read_by_its_text_or_warned_about(tmp_path: Path) -> None:
    body = "<p>See <math alttext='\\frac{1}{2}' altimg='x.png'/> and <math alttext='a or b'></math> <math></math>.</p>"
    assert document(tmp_path, body).startswith("See $\\frac{1}{2}$ and a or b")
    assert any("1 formula " in warning for warning in read_book(tmp_path / "b.epub").warnings)


def test_documents_outside_of_the_reading_order_are_read_where_the_contents_name_them(tmp_path: Path) -> None:
    named = PACKAGE.replace('idref="b"', 'idref="b" linear="no"')
    book = read_book(write_epub(tmp_path / "b.epub", **{"OEBPS__content.opf": named}))
    assert [chapter.title for chapter in book] == ["The Harbor", "The Boat", "The Storm"]
    assert not any("reading order" in warning for warning in book.warnings)


@pytest.mark.parametrize(("body", "is_warned"), [("<p>An appendix.</p>", True), ("<img src='x.jpg'/>", False)])
def test_words_outside_of_reading_order_and_contents_are_warned_about(
    body: str, is_warned: bool, tmp_path: Path
) -> None:
    parts = {
        "OEBPS__content.opf": PACKAGE.replace('idref="c"', 'idref="c" linear="no"'),
        "OEBPS__text__c.xhtml": f"<html><body>{body}</body></html>",
    }
    book = read_book(write_epub(tmp_path / "b.epub", **parts))
    assert book.chapters[-1].text == "It blew & blew."
    assert any("left out 1 part that the book keeps outside" in each for each in book.warnings) is is_warned


def entry(title: str, place: str, *inner: str) -> str:
    """An entry of an NCX."""
    label = f"<navLabel><text>{title}</text></navLabel><content src='text/{place}'/>"
    return f"<navPoint>{label}{''.join(inner)}</navPoint>"


def link(place: str, title: str, *inner: str) -> str:
    """An entry of a navigation document; no link without a place."""
    own = f'<a href="text/{place}">{title}</a>' if place else f"<span>{title}</span>"
    return f"<li>{own}{'<ol>' + ''.join(inner) + '</ol>' if inner else ''}</li>"


CHAPTERS = {
    f"OEBPS__text__{name}.xhtml": f"<html><body><h1>Chapter {number}</h1><p>It rained.</p></body></html>"
    for name, number in zip(("a", "b b", "c"), ("I", "II", "III"), strict=True)
}
B = "b%20b.xhtml"


@pytest.mark.parametrize(
    "contents",
    [
        entry("Part One", "a.xhtml", entry("Chapter I", "a.xhtml"), entry("Chapter II", B))
        + entry("Part Two", "c.xhtml", entry("Chapter III", "c.xhtml")),
        entry("Part One", "a.xhtml") + entry("Chapter I", "a.xhtml") + entry("Chapter II", B)
        + entry("Part Two", "c.xhtml") + entry("Chapter III", "c.xhtml"),
        link("a.xhtml", "Part One", link("a.xhtml", "Chapter I"), link(B, "Chapter II"))
        + link("c.xhtml", "Part Two", link("c.xhtml", "Chapter III")),
        link("", "Part One", link("a.xhtml", "Chapter I"), link(B, "Chapter II"))
        + link("", "Part Two", link("c.xhtml", "Chapter III")),
        link("a.xhtml", "Part One: Chapter I") + link(B, "Chapter II") + link("c.xhtml", "Part Two: Chapter III"),
    ],
)  # fmt: skip
def test_the_title_of_a_part_stands_before_that_of_its_first_chapter(contents: str, tmp_path: Path) -> None:
    parts = {"OEBPS__nav.xhtml": f'<nav epub:type="toc"><h1>Contents</h1><ol>{contents}</ol></nav>', **CHAPTERS}
    if "navPoint" in contents:
        package = PACKAGE.replace(' properties="nav"', "").replace('<itemref idref="nav"/>', "")
        ncx = f"<ncx xmlns='http://www.daisy.org/z3986/2005/ncx/'><navMap>{contents}</navMap></ncx>"
        parts |= {"OEBPS__content.opf": package, "OEBPS__toc.ncx": ncx}
    book = read_book(write_epub(tmp_path / "b.epub", **parts))
    titles = ["Part One: Chapter I", "Chapter II", "Part Two: Chapter III"]
    assert [(chapter.title, chapter.text) for chapter in book] == [(title, "It rained.") for title in titles]


def test_description_and_date_are_given_as_plain_text(tmp_path: Path) -> None:
    about = (
        "<dc:description>&lt;p&gt;A &lt;b&gt;fine&lt;/b&gt; book.&lt;/p&gt;</dc:description>"
        "<dc:date>0101-01-01</dc:date><dc:date event='modification'>2020-01-02</dc:date><dc:date>1912-04</dc:date>"
    )
    path = write_epub(
        tmp_path / "b.epub", **{"OEBPS__content.opf": PACKAGE.replace("</metadata>", f"{about}</metadata>")}
    )
    book = read_book(path)
    assert (book.description, book.date) == ("A fine book.", "1912-04")


@pytest.mark.parametrize(
    ("stated", "date"),
    [("March 1998", "1998"), ("c1998", "1998"), ("12/03/1998", "1998"), ("[2004?]", "2004"), ("?", "")],
)
def test_the_year_is_found_in_other_dates(stated: str, date: str, tmp_path: Path) -> None:
    package = PACKAGE.replace("</metadata>", f"<dc:date>{stated}</dc:date></metadata>")
    assert read_book(write_epub(tmp_path / "b.epub", **{"OEBPS__content.opf": package})).date == date


def test_documents_that_only_the_contents_name_are_read_in_their_place(tmp_path: Path) -> None:
    package = PACKAGE.replace('<itemref idref="b"/>', "")
    contents = "".join(link(place, title) for place, title in (("a.xhtml", "A"), (B, "B"), ("c.xhtml", "C")))
    parts = {"OEBPS__content.opf": package, "OEBPS__nav.xhtml": f'<nav epub:type="toc"><ol>{contents}</ol></nav>'}
    assert [chapter.title for chapter in read_book(write_epub(tmp_path / "b.epub", **parts))] == ["A", "B", "C"]


def test_documents_that_nothing_names_are_warned_about(tmp_path: Path) -> None:
    package = PACKAGE.replace('<itemref idref="c"/>', "")
    book = read_book(write_epub(tmp_path / "b.epub", **{"OEBPS__content.opf": package}))
    assert book.chapters[-1].text == "It blew & blew."
    assert any("left out 1 part that the book keeps outside" in each for each in book.warnings)


def test_parts_that_the_file_does_not_hold_are_warned_about(tmp_path: Path) -> None:
    assert read_book(write_epub(tmp_path / "b.epub")).warnings == ("the book names 1 part that the file does not hold",)


def test_a_title_that_the_book_does_not_state_is_not_spoken(tmp_path: Path) -> None:
    (tmp_path / "draft-7.txt").write_text("It rained.\n\nChapter 2\n\nIt snowed.")
    spoken = [chapter.spoken for chapter in read_book(tmp_path / "draft-7.txt")]
    assert spoken == ["It rained.", "# Chapter 2\n\nIt snowed."]
    assert book_of_text("Title: The Rain\n\nIt rained.", "f").chapters[0].spoken == "# The Rain\n\nIt rained."
    untitled = {"OEBPS__nav.xhtml": "", "OEBPS__toc.ncx": "", "OEBPS__text__a.xhtml": "<body><p>It rained.</p></body>"}
    first = read_book(write_epub(tmp_path / "b.epub", **untitled)).chapters[0]
    assert (first.title, first.spoken) == ("Part 1", "It rained.")


def test_notes_follow_the_text_of_a_chapter_of_several_documents(tmp_path: Path) -> None:
    note = '<html><body><p>It blew.</p><aside epub:type="footnote"><p>A note.</p></aside></body></html>'
    book = read_book(write_epub(tmp_path / "b.epub", **{"OEBPS__text__b b.xhtml": note}), Notes.AT_END)
    assert book.chapters[-1].text == "It blew.\n\nAnd it went on blowing.\n\nA note."
