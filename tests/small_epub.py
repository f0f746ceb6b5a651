"""The smallest EPUB with two chapters, for tests of commands."""

from __future__ import annotations

import zipfile
from pathlib import Path

PARTS = {
    "mimetype": "application/epub+zip",
    "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="b.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
    "b.opf": '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
    "<dc:title>The Sea</dc:title><dc:creator>A. Writer</dc:creator></metadata><manifest>"
    '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>'
    '<item id="b" href="b.xhtml" media-type="application/xhtml+xml"/></manifest>'
    '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>',
    "a.xhtml": "<html><body><h1>The Harbor</h1><p>It lay still in the fog.</p></body></html>",
    "b.xhtml": "<html><body><h1>The Storm</h1><p>It blew all night.</p></body></html>",
}


def write_small_epub(
    path: Path, cover: bytes = b"", authors: tuple[str, ...] = (), page: str = "", about: str = ""
) -> Path:
    """Write the book to `path`; `page` in place of its first page, `about` added to its metadata."""
    package = PARTS["b.opf"].replace("</metadata>", f"{about}</metadata>")
    if authors:
        creators = "".join(f"<dc:creator>{author}</dc:creator>" for author in authors)
        package = package.replace("<dc:creator>A. Writer</dc:creator>", creators)
    if cover:
        item = '<item id="c" href="c.jpg" media-type="image/jpeg" properties="cover-image"/></manifest>'
        package = package.replace("</manifest>", item)
    parts = {**PARTS, "b.opf": package, "a.xhtml": page or PARTS["a.xhtml"]}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        if cover:
            archive.writestr("c.jpg", cover)
    return path
