"""Draw the pictures of docs/architecture.md: the network, and the packages of both halves.

    python tools/diagrams.py                 write docs/images/network.svg, packages.svg and lab.svg

Upstream: the import statements of src/marstts.
Downstream: README.md, docs/architecture.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"

INK, MUTED, EDGE = "#1f2937", "#6b7280", "#4b5563"
BLUE, GREEN, ORANGE, GRAY, PAPER = "#dbeafe", "#dcfce7", "#ffedd5", "#f3f4f6", "#ffffff"

NOTES = {
    "cli": "one thin file per command",
    "preference": "takes, pairs, ORPO",
    "evaluation": "test sets, systems, tables",
    "benchmark": "speed and memory",
    "server": "OpenAI's speech API",
    "http": "safe by default",
    "web": "speech in the tab",
    "metrics": "WER, SIM, MOS predictors",
    "synthesis": "text + voice → speech",
    "training": "all gradients",
    "models": "opens and exports every model",
    "mars6": "arXiv:2501.05787",
    "mars5": "Camb.ai's MARS5",
    "generation": "requests, sampling, scheduler",
    "bundle": "one folder, all parts",
    "data": "manifests, shards, batches",
    "voice": "a speaker, one file",
    "codec": "mini, SNAC",
    "speaker": "mini, WavLM, CLAP",
    "nn": "layers",
    "text": "strings → sentences",
    "audio": "decoders, spectra",
    "weights": "published checkpoints",
    "onnx": "checked graphs",
    "io": "files, configuration",
    "errors": "one sentence",
    "doctor": "models and machines",
}

HALVES = {"marstts": "packages", "marstts_lab": "lab"}
"""The halves of the source, and their pictures."""


@dataclass
class Drawing:
    """An SVG that grows by boxes, arrows and labels; coordinates are pixels from the top left."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, height: int, lines: tuple[str, ...], fill: str) -> None:
        """Draw a rounded box; the first line is its name, the others are notes."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{EDGE}"/>'
        )
        top = y + height / 2 - (len(lines) - 1) * 8 + 5
        for number, line in enumerate(lines):
            style = f'font-weight="600" fill="{INK}"' if number == 0 else f'font-size="11.5" fill="{MUTED}"'
            self.label(x + width / 2, top + number * 16, line, style)

    def label(self, x: float, y: float, text: str, style: str, anchor: str = "middle") -> None:
        """Write one line of text."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {style}>{escape(text)}</text>')

    def note(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        """Write a small note."""
        self.label(x, y, text, f'font-size="11.5" fill="{MUTED}"', anchor)

    def arrow(self, *points: tuple[int, int]) -> None:
        """Draw a line through the points, with a head at its end."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{EDGE}" stroke-width="1.5" marker-end="url(#head)"/>'
        )

    def save(self, path: Path) -> None:
        """Write the file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" font-family="Helvetica, Arial, sans-serif" font-size="14">\n'
            f"<title>{escape(self.title)}</title>\n"
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{EDGE}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{PAPER}"/>\n'
        )
        path.write_text(head + "\n".join(self.parts) + "\n</svg>\n", encoding="utf-8")


def draw_network() -> Drawing:
    """Draw MARS6 and what surrounds it, from text and reference to audio."""
    drawing = Drawing(1000, 420, "MARS6: text and a reference become audio")
    drawing.box(20, 60, 130, 46, ("text",), GRAY)
    drawing.box(20, 260, 130, 46, ("reference", "1 to 15 s of audio"), GRAY)
    drawing.box(190, 60, 150, 46, ("tokenizer", "bytes or BPE ids"), BLUE)
    drawing.box(190, 200, 150, 46, ("identity encoder", "one vector"), BLUE)
    drawing.box(190, 260, 150, 46, ("style encoder", "one vector"), BLUE)
    drawing.box(190, 340, 150, 46, ("codec encoder", "deep clones only"), BLUE)
    drawing.arrow((150, 83), (188, 83))
    drawing.arrow((150, 275), (170, 275), (170, 223), (188, 223))
    drawing.arrow((150, 283), (188, 283))
    drawing.arrow((150, 295), (170, 295), (170, 363), (188, 363))

    drawing.box(390, 60, 150, 70, ("encoder", "two speaker slots,", "then the text"), GREEN)
    drawing.arrow((340, 83), (388, 83))
    drawing.arrow((340, 223), (365, 223), (365, 115), (388, 115))
    drawing.arrow((340, 283), (375, 283), (375, 122), (388, 122))
    drawing.box(390, 200, 150, 70, ("global decoder", "one step per patch,", "12 patches a second"), GREEN)
    drawing.arrow((465, 130), (465, 198))
    drawing.note(472, 168, "memory (cross-attention)", "start")
    drawing.arrow((340, 363), (430, 363), (430, 272))
    drawing.note(437, 345, "prefix", "start")

    drawing.box(600, 200, 150, 70, ("local decoder", "seven tokens,", "coarse to fine"), GREEN)
    drawing.arrow((540, 235), (598, 235))
    drawing.note(569, 226, "vector")
    draw_patch(drawing, 600, 312)
    drawing.arrow((675, 270), (675, 310))
    drawing.arrow((600, 330), (505, 330), (505, 272))
    drawing.note(552, 323, "next step")
    drawing.box(820, 200, 150, 70, ("codec decoder", "codes of 3 levels", "→ 24 kHz"), BLUE)
    drawing.arrow((750, 330), (790, 330), (790, 245), (818, 245))
    drawing.box(820, 340, 150, 46, ("audio",), GRAY)
    drawing.arrow((895, 270), (895, 338))
    drawing.box(
        600,
        60,
        370,
        70,
        ("backoff", "too quiet, too short, too long, no end of speech:", "sample again with a higher top-p"),
        ORANGE,
    )
    drawing.arrow((930, 200), (930, 132))
    drawing.arrow((675, 132), (675, 198))
    drawing.note(
        20, 30, "green: the model (MARS6)  ·  blue: tokenizer, speaker encoders, codec  ·  orange: synthesis", "start"
    )
    return drawing


def draw_patch(drawing: Drawing, x: int, y: int) -> None:
    """Draw the seven tokens of a patch: one of L0, two of L1, four of L2."""
    for number, (level, fill) in enumerate([("0", "#fca5a5"), *[("1", "#fdba74")] * 2, *[("2", "#fde68a")] * 4]):
        left = x + number * 21
        drawing.parts.append(
            f'<rect x="{left}" y="{y}" width="21" height="34" fill="{fill}" stroke="{EDGE}" stroke-width="0.8"/>'
        )
        drawing.label(left + 10.5, y + 22, f"L{level}", f'font-size="11" fill="{INK}"')
    drawing.note(x + 75, y + 52, "patch: 1/12 s of speech")


def imports_from(half: str) -> re.Pattern[str]:
    """A statement that imports a package of this half, or some of them."""
    return re.compile(rf"^ *(?:from|import) {half}(?:\.(\w+)| import \(?([\w,\s]+))", re.MULTILINE)


def imports_of_packages(half: str) -> dict[str, set[str]]:
    """For each package and module of the first level of `marstts` or `marstts_lab`, those of it that it imports."""
    source = ROOT / "src" / half
    names = {path.stem for path in source.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    found: dict[str, set[str]] = {name: set() for name in names if not name.startswith("__")}
    for path in source.rglob("*.py"):
        importer = path.relative_to(source).parts[0].removesuffix(".py")
        if importer in found:
            imported = imports_from(half).findall(path.read_text(encoding="utf-8"))
            parts = {part for module, names in imported for part in (module, *re.findall(r"\w+", names))}
            found[importer] |= parts & found.keys()
    return {importer: imported - {importer} for importer, imported in found.items()}


def without_detours(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The imports without those that a longer chain of imports implies (the transitive reduction)."""
    below: dict[str, set[str]] = {}
    for name in TopologicalSorter(imports).static_order():
        below[name] = imports[name].union(*(below[other] for other in imports[name]))
    return {
        name: {other for other in imported if not any(other in below[between] for between in imported)}
        for name, imported in imports.items()
    }


def rows_of_packages(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """The packages from top to bottom, each directly above the highest one that it imports."""
    height: dict[str, int] = {}
    for name in TopologicalSorter(imports).static_order():
        height[name] = 1 + max((height[other] for other in imports[name]), default=-1)
    return [
        sorted(name for name in height if height[name] == level) for level in sorted(set(height.values()), reverse=True)
    ]


def draw_packages(half: str) -> Drawing:
    """Draw the packages of a half with their imports, as the source has them."""
    imports = imports_of_packages(half)
    rows = rows_of_packages(imports)
    width, row, gap, box = 1000, 40, 32, 176
    drawing = Drawing(width, 60 + len(rows) * (row + gap), f"The packages of {half}; imports point down")
    drawing.note(20, 26, "Drawn from the imports. An import that others imply has no arrow.", "start")
    corner: dict[str, tuple[int, int]] = {}
    for number, names in enumerate(rows):
        shift = 90 if number % 2 else -90  # so that arrows pass beside the boxes between
        start = (width - len(names) * box - (len(names) - 1) * gap) // 2 + (shift if len(names) < 4 else 0)
        for place, name in enumerate(names):
            corner[name] = (start + place * (box + gap), 44 + number * (row + gap))
    for name, imported in sorted(without_detours(imports).items()):
        for other in sorted(imported):
            (left, top), (left_below, top_below) = corner[name], corner[other]
            drawing.arrow((left + box // 2, top + row), (left_below + box // 2, top_below))
    shared = {"generation", "bundle", "data", "voice", "codec", "speaker", "nn", "text"}
    for name, (left, top) in corner.items():
        fill = GREEN if name in ("mars6", "mars5") else BLUE if name in shared else GRAY
        fill = ORANGE if name in ("synthesis", "training", "models") else fill
        drawing.box(left, top, box, row, (name, NOTES[name]), fill)
    return drawing


if __name__ == "__main__":
    draw_network().save(IMAGES / "network.svg")
    for half, name in HALVES.items():
        draw_packages(half).save(IMAGES / f"{name}.svg")
