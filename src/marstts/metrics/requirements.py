"""Packages that metrics need: checked all at once, before any work begins.

Upstream: `panel.MetricsConfig`.  Downstream: `cli.evaluate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

PACKAGES: Mapping[str, Mapping[str, str]] = {
    "sphinx": {"pocketsphinx": "eval", "jiwer": "eval"},
    "whisper": {"torch": "eval-models", "transformers": "eval-models", "jiwer": "eval"},
    "faster-whisper": {"faster_whisper": "eval", "jiwer": "eval"},
    "word-test": {"pocketsphinx": "eval"},
    "resemblyzer": {"resemblyzer": "eval"},
    "wavlm": {"torch": "released", "transformers": "released"},
    "xvector": {"torch": "released", "transformers": "released"},
    "dnsmos": {"speechmos": "eval", "librosa": "eval", "requests": "eval"},
    "plcmos": {"speechmos": "eval", "librosa": "eval", "requests": "eval"},
    "utmos": {"utmos_pytorch": "eval-models", "torch": "eval-models"},
    "distillmos": {"distillmos": "eval", "xls_r_sqa": "eval", "torch": "eval"},
    "prosody": {"pyworld": "eval", "librosa": "eval"},
}
"""Packages and the extra that installs each, by the name of the metric. All reports need scipy, too."""

REPORT = {"scipy": "eval"}


def missing_packages(metrics: Iterable[str]) -> list[str]:
    """One sentence per extra whose packages are missing; empty if all metrics can be computed."""
    needed = dict(REPORT)
    for name in metrics:
        needed |= PACKAGES.get(name, {})
    missing: dict[str, list[str]] = {}
    for package, extra in sorted(needed.items()):
        if find_spec(package) is None:
            missing.setdefault(extra, []).append(package)
    return [
        f"the metrics need the Python packages {', '.join(packages)}: pip install 'marstts[{extra}]'"
        for extra, packages in sorted(missing.items())
    ]
