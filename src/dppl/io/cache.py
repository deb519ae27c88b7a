"""A cache of embeddings on disk, keyed by what made them and the hash of what they were made of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError

_FILE = "embeddings.sqlite"
_PATIENCE_S = 60.0  # how long one process waits while another writes


class Cache:
    """Embeddings of contents that were met before, in one SQLite file.

    Folder and file are for their owner alone: they hold embeddings of private records. `maker` is everything that
    decides an embedding but the content: the encoder's fingerprint and the decoder.

    SQLite's transactions keep it whole when a process is killed, and let several processes share it.
    """

    def __init__(self, folder: Path, maker: str, dimension: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / _FILE
        # Before SQLite makes it with the permissions of the process.
        self._path.touch(0o600)
        self._path.chmod(0o600)  # SQLite gives its side files the same permissions
        self._maker = sha256(maker.encode()).digest()
        self._size = 4 * dimension
        self._lock = Lock()
        # Decoding threads look up, the main thread adds; the lock lets one in at a time.
        self._connection = sqlite3.connect(self._path, timeout=_PATIENCE_S, check_same_thread=False)
        with self._using() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, x BLOB) WITHOUT ROWID")

    def key(self, content: bytes) -> bytes:
        """Return the key of a content."""
        # Both hashes have one length, so no two pairs make one key.
        return sha256(self._maker + sha256(content).digest()).digest()

    def get(self, key: bytes) -> NDArray[np.float32] | None:
        """Return the embedding kept under a key, if there is one."""
        with self._using() as connection:
            found = connection.execute("SELECT x FROM embeddings WHERE key = ?", (key,)).fetchone()
        # An entry of another width is none: the file may be damaged.
        if found is None or len(found[0]) != self._size:
            return None
        return np.frombuffer(found[0], "<f4").astype(np.float32)

    def add(self, entries: Iterable[tuple[bytes, NDArray[np.float32]]]) -> None:
        """Keep embeddings, all of them or none."""
        rows = [(key, np.asarray(x, "<f4").tobytes()) for key, x in entries]
        with self._using() as connection:
            # Another process may have been faster; its embedding is the same.
            connection.executemany("INSERT OR IGNORE INTO embeddings VALUES (?, ?)", rows)

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """Let one thread at a time use the connection, for one transaction."""
        try:
            with self._lock, self._connection as connection:
                yield connection
        except sqlite3.Error as error:
            self.close()
            raise InputError(
                f"{self._path} must be a cache of dppl that can be written to; got {type(error).__name__}; remove it "
                "if it is something else or damaged."
            ) from None

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
