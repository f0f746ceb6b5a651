"""The answers of a listening test in one SQLite file: sessions, answers, and nothing about a person.

Upstream: `service`.  Downstream: `analysis`, which needs this file and the rules only; any SQLite browser.

Each session is stored trial by trial when it starts, and each answer as it comes, so that a listener can resume. A
listener is a number and the secret of a link. A file is checked as a whole when it is opened: its tables must be these,
and every row must be valid.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from marstts.errors import DataError
from marstts.io.config import Config
from marstts.io.reading import open_regular, printable_name
from marstts_listening_test.config import Question
from marstts_listening_test.design import ATTENTION_CHECKS, SIDES, ListeningTrial, TrialKind

FORMAT = "marstts listening test 2"

MAX_FILE_BYTES = 2**30
"""Largest file of answers; 10,000 listeners with long sessions need less."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS metadata (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS listeners (
    number INTEGER PRIMARY KEY, link TEXT UNIQUE NOT NULL, code TEXT NOT NULL, started REAL NOT NULL,
    last_seen REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS headphone_checks (
    listener INTEGER NOT NULL REFERENCES listeners, attempt INTEGER NOT NULL, passed INTEGER NOT NULL,
    PRIMARY KEY (listener, attempt)
);
CREATE TABLE IF NOT EXISTS trials (
    listener INTEGER NOT NULL REFERENCES listeners, position INTEGER NOT NULL, question TEXT NOT NULL,
    kind TEXT NOT NULL, system TEXT NOT NULL, sentence TEXT NOT NULL, audio_seconds REAL NOT NULL,
    PRIMARY KEY (listener, position)
);
CREATE TABLE IF NOT EXISTS answers (
    listener INTEGER NOT NULL, position INTEGER NOT NULL, choice INTEGER NOT NULL, plays INTEGER NOT NULL,
    response_seconds REAL NOT NULL, answered_at REAL NOT NULL,
    PRIMARY KEY (listener, position), FOREIGN KEY (listener, position) REFERENCES trials
);
"""


@dataclass(frozen=True)
class Listener:
    """A listener who uses the page."""

    number: int
    link: str
    """Secret part of their address."""
    code: str
    """Shown at the end, as a proof of completion."""
    last_seen: float
    """Time of their last visit or answer, in seconds since 1970."""
    checks: tuple[bool, ...]
    """Whether each attempt at the headphone check was passed."""


@dataclass(frozen=True)
class Answer:
    """A listener's answer to one trial."""

    listener: str
    position: int
    trial: ListeningTrial
    audio_seconds: float
    """Duration of the trial's recordings."""
    choice: int
    response_seconds: float
    """Time from when the recordings could first be played to the answer."""


@dataclass(frozen=True)
class SessionRecord:
    """A listener's session as the analysis sees it."""

    name: str
    num_trials: int
    """Trials in the session."""
    headphones: bool | None
    """Whether the headphone check was passed; None: it was not made."""
    answers: Sequence[Answer]


class AnswerStore:
    """An open file of answers. Safe to use from several threads."""

    def __init__(self, path: Path, digest: str) -> None:
        """Open or create the file; DataError where it is something else, or belongs to another test."""
        self.path, self.lock = path, threading.Lock()
        self.connection = connect(path)
        try:
            with self.transaction() as cursor:
                if not read_schema(cursor):
                    create_tables(cursor, digest)
            found = read_metadata(self.connection, path)
            load_records(self.connection, path)
        except DataError:
            self.close()
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter for what a corrupt file has as text
            self.close()
            raise DataError(f"{printable_name(path)}: expected a writable file of answers, but {error}") from error
        if found.get("test") != digest:
            self.close()
            raise DataError(
                f"{printable_name(path)}: holds answers to another test (other recordings, or another design); name "
                "another database"
            )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """A cursor whose changes are committed together, one thread at a time."""
        with self.lock, self.connection:
            yield self.connection.cursor()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def start(self, session: Sequence[tuple[ListeningTrial, float]], number: int, now: float) -> Listener:
        """Store a new listener's session: trials with their seconds of audio."""
        link, code = secrets.token_urlsafe(16), secrets.token_hex(4)
        with self.transaction() as cursor:
            cursor.execute("INSERT INTO listeners VALUES (?, ?, ?, ?, ?)", (number, link, code, now, now))
            cursor.executemany(
                "INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (number, position, trial.question.value, trial.kind.value, trial.system, trial.sentence, seconds)
                    for position, (trial, seconds) in enumerate(session)
                ],
            )
        return Listener(number, link, code, now, ())

    def count(self) -> int:
        """Number of listeners who have started."""
        with self.transaction() as cursor:
            return int(cursor.execute("SELECT COUNT(*) FROM listeners").fetchone()[0])

    def find(self, link: str) -> Listener | None:
        """The listener of a link."""
        with self.transaction() as cursor:
            row = cursor.execute("SELECT number, code, last_seen FROM listeners WHERE link = ?", (link,)).fetchone()
            if row is None:
                return None
            number, code, last_seen = row
            checks = cursor.execute(
                "SELECT passed FROM headphone_checks WHERE listener = ? ORDER BY attempt", (number,)
            )
            return Listener(number, link, code, last_seen, tuple(bool(passed) for (passed,) in checks))

    def trials(self, number: int) -> list[ListeningTrial]:
        """The session of a listener."""
        with self.transaction() as cursor:
            rows = cursor.execute(
                "SELECT question, kind, system, sentence FROM trials WHERE listener = ? ORDER BY position", (number,)
            )
            return [
                ListeningTrial(Question(question), TrialKind(kind), system, name)
                for question, kind, system, name in rows
            ]

    def choices(self, number: int) -> list[int]:
        """A listener's answers so far, in order."""
        with self.transaction() as cursor:
            rows = cursor.execute("SELECT choice FROM answers WHERE listener = ? ORDER BY position", (number,))
            return [choice for (choice,) in rows]

    def finished(self) -> list[int]:
        """Numbers of listeners who answered everything."""
        with self.transaction() as cursor:
            rows = cursor.execute(
                "SELECT listener FROM trials LEFT JOIN answers USING (listener, position)"
                " GROUP BY listener HAVING COUNT(choice) = COUNT(*) ORDER BY listener"
            )
            return [number for (number,) in rows]

    def mark_seen(self, number: int, now: float) -> None:
        """Store that the listener can play the present trial from now on."""
        with self.transaction() as cursor:
            cursor.execute("UPDATE listeners SET last_seen = ? WHERE number = ?", (now, number))

    def add_answer(self, listener: Listener, position: int, choice: int, plays: int, now: float) -> None:
        """Store an answer; the first to a trial stays."""
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?)",
                (listener.number, position, choice, plays, now - listener.last_seen, now),
            )
            cursor.execute("UPDATE listeners SET last_seen = ? WHERE number = ?", (now, listener.number))

    def add_headphone_check(self, listener: Listener, passed: bool) -> None:
        """Store the outcome of a headphone check."""
        with self.transaction() as cursor:
            attempt = len(listener.checks)
            cursor.execute(
                "INSERT OR IGNORE INTO headphone_checks VALUES (?, ?, ?)", (listener.number, attempt, passed)
            )


def connect(path: Path) -> sqlite3.Connection:
    """The database at a path, created if missing; DataError where the path is something else."""
    if path.exists() or path.is_symlink():
        open_regular(path, MAX_FILE_BYTES, DataError).close()
    try:
        connection = sqlite3.connect(path, check_same_thread=False, timeout=10.0)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("SELECT name FROM sqlite_master").fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter for what a corrupt file has as text
        raise DataError(
            f"{printable_name(path)}: expected a database of answers, or a path for one, but {error}"
        ) from error
    return connection


def create_tables(cursor: sqlite3.Cursor, digest: str) -> None:
    """Fill an empty database with the tables of a test."""
    cursor.executescript(SCHEMA)
    cursor.executemany("INSERT INTO metadata VALUES (?, ?)", [("format", FORMAT), ("test", digest)])


def read_schema(cursor: sqlite3.Cursor) -> list[tuple[str, str, str | None]]:
    """Type, name and SQL of everything in a database."""
    return cursor.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()


def read_metadata(connection: sqlite3.Connection, path: Path) -> dict[str, str]:
    """The metadata of a file of answers; DataError where its tables are not exactly those of a test.

    Views, triggers and other tables could make any later query run without end.
    """
    with closing(sqlite3.connect(":memory:")) as expected:
        expected.executescript(SCHEMA)
        tables = read_schema(expected.cursor())
    found = read_schema(connection.cursor())
    if found != tables:
        names = ", ".join(printable_name(name) for _, name, _ in found[:5]) or "none"
        raise DataError(
            f"{printable_name(path)}: expected answers to a listening test, format {FORMAT!r}, but its tables are "
            f"others ({names})"
        )
    metadata = dict(connection.execute("SELECT name, value FROM metadata LIMIT 100").fetchall())
    if metadata.get("format") != FORMAT:
        raise DataError(f"{printable_name(path)}: expected format {FORMAT!r}, but it has {metadata.get('format')!r}")
    return metadata


def read_records(path: Path) -> list[SessionRecord]:
    """All sessions of a file and their answers; DataError where it is no file of answers."""
    if not path.exists():
        raise DataError(
            f"{printable_name(path)}: there are no answers yet; `marstts-listening-test serve` collects them"
        )
    connection = connect(path)
    try:
        read_metadata(connection, path)
        return load_records(connection, path)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter for what a corrupt file has as text
        raise DataError(f"{printable_name(path)}: expected answers to a listening test, but {error}") from error
    finally:
        connection.close()


Name = Annotated[str, Field(max_length=1000)]
Position = Annotated[int, Field(ge=0, lt=10_000)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]


class AnswerRow(Config):
    """A row of `answers` with its row of `trials`."""

    model_config = ConfigDict(strict=True)

    listener: int
    position: Position
    question: Annotated[Question, Field(strict=False)]
    kind: Annotated[TrialKind, Field(strict=False)]
    system: Name
    sentence: Name
    audio_seconds: Seconds
    choice: int
    response_seconds: Seconds

    def as_answer(self) -> Answer:
        """The answer; ValueError where the trial is impossible or the choice is not on its scale."""
        if self.choice not in self.question.scale:
            raise ValueError(f"choice {self.choice} is not on the scale of {self.question.value}")
        trial = ListeningTrial(self.question, self.kind, self.system, self.sentence)
        _check_trial(trial)
        return Answer(
            name_listener(self.listener), self.position, trial, self.audio_seconds, self.choice, self.response_seconds
        )


def _check_trial(trial: ListeningTrial) -> None:
    """Raise ValueError for a trial that no design makes: the analysis relies on its anchors and sides."""
    is_preference = trial.question is Question.PREFERENCE
    anchors = {anchor.value for anchor in ATTENTION_CHECKS.get(trial.question, ())}
    if trial.kind is TrialKind.ATTENTION_CHECK and trial.system not in anchors:
        raise ValueError(f"an attention check of {trial.question.value} with {trial.system!r} instead of an anchor")
    if is_preference and (trial.kind is not TrialKind.RATING or trial.system not in SIDES):
        raise ValueError(f"a preference with {trial.system!r} instead of a side")


ListenerRow = tuple[Position, Annotated[int, Field(ge=1, le=10_000)], Annotated[int, Field(ge=0, le=1)] | None, Name]
"""Number, trials in the session, whether a headphone check was passed, and link."""


def load_records(connection: sqlite3.Connection, path: Path) -> list[SessionRecord]:
    """All sessions of an open file; DataError naming the first row that is not valid."""
    listeners = connection.execute(
        "SELECT number, (SELECT COUNT(*) FROM trials WHERE listener = number),"
        " (SELECT MAX(passed) FROM headphone_checks WHERE listener = number), link FROM listeners ORDER BY number"
    )
    rows = connection.execute(
        "SELECT trials.listener, trials.position, question, kind, system, sentence, audio_seconds, choice,"
        " response_seconds FROM trials LEFT JOIN answers USING (listener, position)"
        " ORDER BY trials.listener, trials.position"
    )
    listener_type: TypeAdapter[list[ListenerRow]] = TypeAdapter(list[ListenerRow])
    answers: dict[int, list[Answer]] = defaultdict(list)
    names = ("listener", "position", "question", "kind", "system", "sentence", "audio_seconds", "choice")
    try:
        sessions = listener_type.validate_python([tuple(row) for row in listeners], strict=True)
        for values in rows:
            is_answered = values[7] is not None
            held = dict(zip((*names, "response_seconds"), values, strict=True))
            unanswered = {"choice": 1, "response_seconds": 0.0}
            row = AnswerRow.model_validate(held if is_answered else {**held, **unanswered})
            answer = row.as_answer()
            if is_answered:
                answers[row.listener].append(answer)
    except (ValidationError, ValueError) as error:
        problem = describe_problem(error)
        raise DataError(
            f"{printable_name(path)}: expected valid sessions and answers of a listening test, but {problem}"
        ) from error
    return [
        SessionRecord(name_listener(number), num_trials, None if passed is None else bool(passed), answers[number])
        for number, num_trials, passed, _ in sessions
    ]


def describe_problem(error: Exception) -> str:
    """The first problem of a row in a few words."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return printable_name(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    return printable_name(str(error))


def name_listener(number: int) -> str:
    """Name of a listener in reports."""
    return f"listener {number + 1}"
