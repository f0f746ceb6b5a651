"""The command `marstts-listening-test`: listening tests as a page in the browser, and their results.

Upstream: the shell.  Downstream: `rating` and `preference`, the two kinds of test; `web`, which serves one; `analysis`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.main import CommandGroup
from marstts.cli.terminal import configure_logging, printed_warnings, say, silence_libraries
from marstts.errors import DataError
from marstts.io.reading import printable_text
from marstts_lab.evaluation.open_systems import SystemOptions, find_systems, model_folder, split_label
from marstts_lab.evaluation.score import generate_takes
from marstts_lab.evaluation.systems import Clone
from marstts_lab.evaluation.testset import trials_digest
from marstts_lab.evaluation.testsets.catalog import PACKAGED_VOICES, open_testset, subsample
from marstts_listening_test.analysis import analyze, as_json, as_markdown
from marstts_listening_test.config import read_listening_test
from marstts_listening_test.preference import count_preferences, open_preference_plan
from marstts_listening_test.rating import open_rating_plan
from marstts_listening_test.service import SessionService, TestPlan
from marstts_listening_test.store import AnswerStore, read_records

log = logging.getLogger("marstts.listening_test")  # below the logger whose records the commands of marstts show

LOCAL = "127.0.0.1"


class ListeningTestGroup(CommandGroup):
    """The group of the commands."""

    program = "marstts-listening-test"


app = typer.Typer(cls=ListeningTestGroup, no_args_is_help=True, pretty_exceptions_enable=False)

TestSource = Annotated[
    Path,
    typer.Argument(
        metavar="TEST", help="A test's TOML file, see docs/evaluation/listening-tests.md, or an evaluation's folder."
    ),
]
Address = Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 admits other machines.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 for any free one.")]


@app.callback()
def main() -> None:
    """Run a listening test with human listeners."""
    configure_logging()
    silence_libraries()


@app.command()
def serve(test: TestSource, address: Address = LOCAL, port: Port = 8765) -> None:
    """Serve the page of a test until interrupted; each answer is stored in its database at once."""
    from marstts_listening_test.web import open_server  # help needs no server

    config = read_listening_test(test)
    plan = open_rating_plan(config)
    with (
        closing(AnswerStore(config.database, plan.digest)) as store,
        open_server(SessionService(plan, store), address, port) as server,
    ):
        log.info(f"{config.title}: {len(plan.plan(0))} recordings a listener; answers in {config.database}")
        say(server.address)
        with suppress(KeyboardInterrupt):
            server.serve()
        log.info(f"listeners so far: {store.count()}; `marstts-listening-test analyze {test}` shows the results")


@app.command("analyze")
def analyze_command(
    test: TestSource,
    as_data: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Exclude listeners who broke the test's rules, and print means with 95 % intervals."""
    config = read_listening_test(test)
    analysis = analyze(read_records(config.database), config.rules, config.headphones)
    say(json.dumps(as_json(analysis, config.rules), indent=2) if as_data else as_markdown(analysis))


@app.command()
def ab(
    a: Annotated[str, typer.Argument(help="A folder of takes, <sentence>.wav, or a model by name or folder.")],
    b: Annotated[str, typer.Argument(help="Another one; the same sentences.")],
    testset: Annotated[
        str,
        typer.Option(help="Test set that models speak: packaged-voices, a folder of recordings, a testset.jsonl, …"),
    ] = PACKAGED_VOICES,
    root: Annotated[Path | None, typer.Option(help="Folder of the test set's recordings.")] = None,
    clone: Annotated[Clone, typer.Option(help="How models use a reference.")] = Clone.SHALLOW,
    takes: Annotated[
        Path | None, typer.Option(help="Folder that keeps the takes of models, for later runs.", show_default=False)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Sentences at most.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order and of models' takes.")] = 0,
    sample_rate: Annotated[
        int | None, typer.Option(min=8_000, max=48_000, help="Resample all takes to this rate (Hz).")
    ] = None,
    database: Annotated[Path | None, typer.Option(help="Keep the answers in this file, and resume with them.")] = None,
    as_data: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    address: Address = LOCAL,
    port: Port = 8766,
) -> None:
    """Compare two checkpoints in a blind test; ends with the result once all sentences are answered."""
    with tempfile.TemporaryDirectory() as scratch:
        models = ModelTakes(testset, root, limit, clone, seed, takes or Path(scratch) / "takes")
        folders = [models.folder_of(name) for name in (a, b)]
        plan = open_preference_plan(*folders, limit=limit, seed=seed, sample_rate=sample_rate)
        with closing(AnswerStore(database or Path(scratch) / "answers.sqlite", plan.digest)) as store:
            number = serve_once(plan, store, address, port)
            result = count_preferences(store.trials(number), store.choices(number))
    if as_data:
        say(json.dumps({"a": a, "b": b, **asdict(result)}))
    else:
        say(result.describe(f"A ({printable_text(a)})", f"B ({printable_text(b)})"))


@dataclass(frozen=True)
class ModelTakes:
    """Synthesizes a test set with models, so that they can be compared like folders."""

    testset: str
    root: Path | None
    limit: int | None
    clone: Clone
    seed: int
    output: Path

    def folder_of(self, name: str) -> Path:
        """The folder of takes of a name: itself, or what that model synthesizes; DataError where a take fails."""
        system = split_label(name)[1]
        if model_folder(system.partition("@")[0]) is None:
            return Path(system)
        [speaker] = find_systems(name, SystemOptions([self.clone], self.seed, None))
        trials = subsample(open_testset(self.testset, self.root), self.limit)
        identity = f"{speaker.name} {speaker.version} {trials_digest(trials)}"
        folder = self.output / hashlib.sha256(identity.encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        with printed_warnings():
            takes = generate_takes(speaker, trials, folder)
        failed = [f"{take.trial}: {take.error}" for take in takes.values() if take.error]
        if failed:
            raise DataError(f"{name}: cannot be compared, for these takes failed: {'; '.join(failed[:3])}")
        return folder


def serve_once(plan: TestPlan, store: AnswerStore, address: str, port: int) -> int:
    """Serve until one listener has answered everything, perhaps in an earlier run; their number."""
    from marstts_listening_test.web import open_server

    finished = store.finished()
    if not finished:
        with open_server(SessionService(plan, store, finished=lambda number: server.stop()), address, port) as server:
            log.info(f"open {server.address} in a browser")
            server.serve()
        finished = store.finished()
    if not finished:
        raise DataError("stopped before all sentences were answered; with --database FILE you can resume later")
    return finished[0]
