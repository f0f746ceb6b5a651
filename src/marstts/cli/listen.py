"""`marstts listen`: listening tests as a page, for a crowd, and their results."""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.terminal import messages, printed_warnings
from marstts.errors import DataError
from marstts.evaluation.listening.analysis import analyse, as_json, as_markdown
from marstts.evaluation.listening.config import read_listening_test
from marstts.evaluation.listening.host import Host, Sheet
from marstts.evaluation.listening.preference import count_preferences, open_preference
from marstts.evaluation.listening.session import open_session
from marstts.evaluation.listening.store import Store, read_attendance
from marstts.evaluation.listening.turk import export_sessions, read_results
from marstts.evaluation.listening.web import PageServer
from marstts.evaluation.score import speak_trials
from marstts.evaluation.systems import Clone
from marstts.evaluation.testset import trials_digest

LOCAL = "127.0.0.1"
app = typer.Typer(help="Let people judge speech.", no_args_is_help=True)

ConfigFile = Annotated[Path, typer.Argument(metavar="TEST.toml", help="The listening test, see docs/listening.md.")]
Address = Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 for any free one.")]


@app.command()
def serve(config: ConfigFile, address: Address = LOCAL, port: Port = 8765) -> None:
    """Serve the page of a test until interrupted; answers go to its database at once."""
    test = read_listening_test(config)
    sheet = open_session(test)
    with closing(Store(test.database, sheet.digest)) as store, PageServer(Host(sheet, store), address, port) as server:
        messages().print(f"{test.title}: {len(sheet.plan(0))} recordings a listener; answers in {test.database}")
        typer.echo(server.address)
        with suppress(KeyboardInterrupt):
            server.serve()
        messages().print(f"listeners so far: {store.count()}; `marstts listen analyse {config}` tells what they say")


@app.command()
def export(
    config: ConfigFile,
    output: Annotated[Path, typer.Option(help="Folder to write, which must not be there yet.")],
    audio_url: Annotated[str, typer.Option(help="Where you will put the folder audio/, e.g. https://host/test.")],
    listeners: Annotated[int, typer.Option(min=1, help="Sessions to write, one HIT each.")] = 20,
) -> None:
    """Write the same test for Mechanical Turk: a HIT's layout, its inputs, the recordings, and the key to them."""
    sheet = open_session(read_listening_test(config))
    export_sessions(sheet, output, audio_url, listeners)
    messages().print(f"{output}: hit.html, inputs.csv ({listeners} HITs), audio/; keep key.json to yourself")


@app.command("analyse")
def analyse_command(
    config: ConfigFile,
    turk: Annotated[
        Path | None, typer.Option(metavar="RESULTS.csv", help="Results of Mechanical Turk instead of the database.")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="key.json", help="The key that `export` wrote.")] = None,
    as_data: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Leave out listeners who broke the test's rules, and print means with 95 % intervals."""
    test = read_listening_test(config)
    attendances = read_results(turk, key) if turk is not None else read_attendance(test.database)
    analysis = analyse(attendances, test.rules, test.headphones)
    typer.echo(json.dumps(as_json(analysis, test.rules), indent=2) if as_data else as_markdown(analysis))


@app.command()
def ab(
    a: Annotated[str, typer.Argument(help="A folder of takes, <sentence>.wav, or a model by name or folder.")],
    b: Annotated[str, typer.Argument(help="Another one; the same sentences.")],
    testset: Annotated[str, typer.Option(help="What models speak: studio, a testset.jsonl, …")] = "studio",
    root: Annotated[Path | None, typer.Option(help="Where the test set's recordings lie.")] = None,
    clone: Annotated[Clone, typer.Option(help="How models take up a reference.")] = Clone.DEEP,
    takes: Annotated[
        Path | None, typer.Option(help="Keep what models speak here, and do not speak it again.", show_default=False)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Sentences at most.")] = None,
    seed: Annotated[int, typer.Option(help="Of the order, and of models' takes.")] = 0,
    sample_rate: Annotated[
        int | None, typer.Option(min=8_000, max=48_000, help="Bring all takes to this rate (Hz).")
    ] = None,
    database: Annotated[Path | None, typer.Option(help="Keep the answers here, and go on with them.")] = None,
    as_data: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    address: Address = LOCAL,
    port: Port = 8766,
) -> None:
    """Compare two checkpoints by ear, blind; ends with the result when all sentences are judged."""
    with tempfile.TemporaryDirectory() as scratch:
        speaker = Speaker(testset, root, limit, clone, seed, takes or Path(scratch) / "takes")
        folders = [speaker.takes_of(name) for name in (a, b)]
        sheet = open_preference(*folders, limit=limit, seed=seed, sample_rate=sample_rate)
        with closing(Store(database or Path(scratch) / "answers.sqlite", sheet.digest)) as store:
            number = hold_once(sheet, store, address, port)
            preference = count_preferences(store.trials(number), store.choices(number))
    if as_data:
        typer.echo(json.dumps({"a": a, "b": b, **asdict(preference)}))
    else:
        typer.echo(preference.describe(f"A ({a})", f"B ({b})"))


@dataclass(frozen=True)
class Speaker:
    """Lets models speak a test set, so that they can be compared like folders."""

    testset: str
    root: Path | None
    limit: int | None
    clone: Clone
    seed: int
    output: Path

    def takes_of(self, name: str) -> Path:
        """The folder of takes behind a name: itself, or what that model says; DataError where it cannot speak."""
        from marstts.cli import evaluate  # brings what models and judges need, which folders do not

        if evaluate.model_folder(name.partition("@")[0]) is None:
            return Path(name)
        wanted = evaluate.Wanted([self.clone], self.seed, {}, None)
        [system] = evaluate.find_systems(name, wanted)
        trials = evaluate.thin_out(evaluate.open_testset(self.testset, self.root, messages().print), self.limit)
        made_by = f"{system.name} {system.version} {trials_digest(trials)}"
        folder = self.output / hashlib.sha256(made_by.encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        with printed_warnings():
            spoken = speak_trials(system, trials, folder, messages().print)
        silent = [f"{one.trial}: {one.problem}" for one in spoken.values() if one.problem]
        if silent:
            raise DataError(f"{name}: cannot be compared, for it could not speak {'; '.join(silent[:3])}")
        return folder


def hold_once(sheet: Sheet, store: Store, address: str, port: int) -> int:
    """Serve until somebody has answered everything (perhaps long ago); their number."""
    done = store.finished()
    if not done:
        with PageServer(Host(sheet, store, finished=lambda number: server.stop()), address, port) as server:
            messages().print(f"open {server.address} in a browser")
            server.serve()
        done = store.finished()
    if not done:
        raise DataError("stopped before all sentences were judged; with --database FILE one can go on later")
    return done[0]
