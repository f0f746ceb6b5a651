"""Answers in one SQLite file: who was asked what, and what they said.

Upstream: `host`.  Downstream: `analysis`, which reads nothing else but the rules; any SQLite browser.

Each session is written down trial by trial when it begins, and each answer as it comes, so that a listener goes on
where they stopped, and the file alone tells what was done. Of listeners it knows a number and the secret of their link.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from marstts.errors import DataError
from marstts.evaluation.listening.config import Question
from marstts.evaluation.listening.design import Kind, Trial

FORMAT = "marstts listening test 1"

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS listeners (
    number INTEGER PRIMARY KEY, link TEXT UNIQUE NOT NULL, code TEXT NOT NULL, began REAL NOT NULL, seen REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS checks (
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
    seconds REAL NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (listener, position), FOREIGN KEY (listener, position) REFERENCES trials
);
"""


@dataclass(frozen=True)
class Listener:
    """A person at the page."""

    number: int
    link: str
    """Secret part of their address."""
    code: str
    """Shown at the end, as a proof of having come there."""
    seen: float
    """When they last came or answered, in seconds since 1970."""
    checks: tuple[bool, ...]
    """Whether each attempt at the headphone check was passed."""


@dataclass(frozen=True)
class Answer:
    """What a listener said of one trial."""

    listener: str
    position: int
    trial: Trial
    audio_seconds: float
    """How long one has to listen to hear all of it."""
    choice: int
    seconds: float
    """From when it could first be heard to the answer."""


@dataclass(frozen=True)
class Attendance:
    """A listener as the analysis sees them."""

    name: str
    asked: int
    """Trials in their session."""
    headphones: bool | None
    """Whether they passed the check; None: it was not made."""
    answers: Sequence[Answer]


class Store:
    """An open file of answers. Safe to use from several threads."""

    def __init__(self, path: Path, digest: str) -> None:
        """Open or begin the file; DataError where it is something else, or belongs to another test."""
        self.path, self.lock = path, threading.Lock()
        self.connection = connect(path)
        with self.transaction() as cursor:
            cursor.executescript(SCHEMA)
            cursor.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?)", [("format", FORMAT), ("test", digest)])
            held = dict(cursor.execute("SELECT name, value FROM facts"))
        if held.get("test") != digest:
            self.close()
            raise DataError(
                f"{path}: holds answers to another test (other recordings, or another design); name another database"
            )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """All or nothing, one at a time."""
        with self.lock, self.connection:
            yield self.connection.cursor()

    def close(self) -> None:
        self.connection.close()

    def begin(self, sessions: Sequence[tuple[Trial, float]], number: int, now: float) -> Listener:
        """Write down a new listener's session, trials with their seconds of audio."""
        link, code = secrets.token_urlsafe(16), secrets.token_hex(4)
        with self.transaction() as cursor:
            cursor.execute("INSERT INTO listeners VALUES (?, ?, ?, ?, ?)", (number, link, code, now, now))
            cursor.executemany(
                "INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (number, position, trial.question.value, trial.kind.value, trial.system, trial.sentence, seconds)
                    for position, (trial, seconds) in enumerate(sessions)
                ],
            )
        return Listener(number, link, code, now, ())

    def count(self) -> int:
        """How many listeners have begun."""
        with self.transaction() as cursor:
            return int(cursor.execute("SELECT COUNT(*) FROM listeners").fetchone()[0])

    def find(self, link: str) -> Listener | None:
        """The listener of a link."""
        with self.transaction() as cursor:
            row = cursor.execute("SELECT number, code, seen FROM listeners WHERE link = ?", (link,)).fetchone()
            if row is None:
                return None
            number, code, seen = row
            checks = cursor.execute("SELECT passed FROM checks WHERE listener = ? ORDER BY attempt", (number,))
            return Listener(number, link, code, seen, tuple(bool(passed) for (passed,) in checks))

    def trials(self, number: int) -> list[Trial]:
        """The session of a listener."""
        with self.transaction() as cursor:
            rows = cursor.execute(
                "SELECT question, kind, system, sentence FROM trials WHERE listener = ? ORDER BY position", (number,)
            )
            return [Trial(Question(question), Kind(kind), system, name) for question, kind, system, name in rows]

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

    def see(self, number: int, now: float) -> None:
        """Note that the listener is here, and hears from now on."""
        with self.transaction() as cursor:
            cursor.execute("UPDATE listeners SET seen = ? WHERE number = ?", (now, number))

    def answer(self, listener: Listener, position: int, choice: int, plays: int, now: float) -> None:
        """Keep an answer; the first to a trial stays."""
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?)",
                (listener.number, position, choice, plays, now - listener.seen, now),
            )
            cursor.execute("UPDATE listeners SET seen = ? WHERE number = ?", (now, listener.number))

    def check(self, listener: Listener, passed: bool) -> None:
        """Keep the outcome of a headphone check."""
        with self.transaction() as cursor:
            attempt = len(listener.checks)
            cursor.execute("INSERT OR IGNORE INTO checks VALUES (?, ?, ?)", (listener.number, attempt, passed))


def connect(path: Path) -> sqlite3.Connection:
    """The database at a path, which is made if it is not there; DataError where there is something else."""
    try:
        connection = sqlite3.connect(path, check_same_thread=False, timeout=10.0)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("SELECT name FROM sqlite_master").fetchall()
    except sqlite3.Error as error:
        raise DataError(f"{path}: expected a database of answers, or a place for one, but {error}") from error
    return connection


def read_attendance(path: Path) -> list[Attendance]:
    """All listeners of a file and what they answered; DataError where it is no file of answers."""
    if not path.is_file():
        raise DataError(f"{path}: there are no answers yet; `marstts listen serve` collects them")
    connection = connect(path)
    try:
        held = dict(connection.execute("SELECT name, value FROM facts"))
        listeners = connection.execute(
            "SELECT number, (SELECT COUNT(*) FROM trials WHERE listener = number),"
            " (SELECT MAX(passed) FROM checks WHERE listener = number) FROM listeners ORDER BY number"
        ).fetchall()
        rows = connection.execute(
            "SELECT listener, position, question, kind, system, sentence, audio_seconds, choice, seconds"
            " FROM answers JOIN trials USING (listener, position) ORDER BY listener, position"
        ).fetchall()
    except sqlite3.Error as error:
        raise DataError(f"{path}: expected answers to a listening test, but {error}") from error
    finally:
        connection.close()
    if held.get("format") != FORMAT:
        raise DataError(f"{path}: expected {FORMAT!r}, but it holds {held.get('format')!r}")
    answers = [
        Answer(name_listener(row[0]), row[1], Trial(Question(row[2]), Kind(row[3]), row[4], row[5]), *row[6:])
        for row in rows
    ]
    return [
        Attendance(
            name_listener(number), asked, None if passed is None else bool(passed),
            [answer for answer in answers if answer.listener == name_listener(number)],
        )
        for number, asked, passed in listeners
    ]  # fmt: skip


def name_listener(number: int) -> str:
    """What a listener is called in reports."""
    return f"listener {number + 1}"
