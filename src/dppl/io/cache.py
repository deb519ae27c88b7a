"""A cache of embeddings on disk, keyed by what made them and the hash of what they were made of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError

_PATIENCE_S = 60.0  # how long one process waits while another writes


class Cache:
    """Embeddings of contents that were met before, in one SQLite file that several processes may share.

    Folder and file are for their owner alone: they hold embeddings of private records. `maker` is everything that
    decides an embedding but the content: the encoder's fingerprint and the decoder.
    """

    def __init__(self, folder: Path, maker: str, dimension: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / "embeddings.sqlite"
        # Before SQLite makes it with the permissions of the process; its side files get the same.
        self._path.touch(0o600)
        self._path.chmod(0o600)
        self._maker = sha256(maker.encode()).digest()
        self._size = 4 * dimension
        # Decoding threads look up, the main thread adds; the lock lets one in at a time.
        self._lock = Lock()
        self._connection = sqlite3.connect(self._path, timeout=_PATIENCE_S, check_same_thread=False)
        self.close = self._connection.close
        self._run("CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, x BLOB) WITHOUT ROWID", [()])

    def key(self, content: bytes) -> bytes:
        """Return the key of a content."""
        # Both hashes have one length, so no two pairs make one key.
        return sha256(self._maker + sha256(content).digest()).digest()

    def get(self, key: bytes) -> NDArray[np.float32] | None:
        """Return the embedding kept under a key, if there is one."""
        found = self._run("SELECT x FROM embeddings WHERE key = ?", [(key,)])
        # An entry of another width is none: the file may be damaged.
        return np.frombuffer(found[0], "<f4").astype(np.float32) if found and len(found[0]) == self._size else None

    def add(self, entries: Iterable[tuple[bytes, NDArray[np.float32]]]) -> None:
        """Keep embeddings, all of them or none."""
        # Another process may have been faster; its embedding is the same.
        rows = [(key, np.asarray(x, "<f4").tobytes()) for key, x in entries]
        self._run("INSERT OR IGNORE INTO embeddings VALUES (?, ?)", rows)

    def _run(self, statement: str, rows: list[Any]) -> Any:
        """Run a statement for each row in one transaction, one thread at a time; return the first row of the last."""
        found = None
        try:
            with self._lock, self._connection:
                for row in rows:
                    found = self._connection.execute(statement, row).fetchone()
            return found
        except sqlite3.Error as error:
            self.close()
            raise InputError(
                f"{self._path} must be a cache of dppl that can be written to; got {type(error).__name__}; remove it "
                "if it is something else or damaged."
            ) from None
