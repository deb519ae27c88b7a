"""Files are written whole or not at all, and by one process at a time."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dppl._utils import files
from dppl._utils.files import (
    atomic_file,
    locked,
    reserved,
    write_atomically,
)
from dppl.errors import InputError
from killing import killed_everywhere, needs_fork

POSIX = pytest.mark.skipif(
    os.name != "posix", reason="there are no such permissions and locks"
)


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old", overwrite=False)
    original = os.fsync

    def fail(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new and longer", overwrite=True)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    monkeypatch.setattr(os, "fsync", original)
    with pytest.raises(FileExistsError):
        write_atomically(path, b"new", overwrite=False)
    assert path.read_bytes() == b"old"
    write_atomically(path, b"new", overwrite=True)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "no more", "source"), KeyboardInterrupt()]
)
def test_a_block_that_fails_leaves_the_old_file_and_no_part(error, overwrite, tmp_path):
    path = tmp_path / "file"
    if overwrite:
        path.write_bytes(b"old")

    def write():
        with atomic_file(path, overwrite=overwrite) as file:
            file.write(b"new" * 100_000)
            raise error

    with pytest.raises(type(error)) as raised:
        write()
    assert raised.value is error
    assert (
        getattr(error, "filename", "source") == "source"
    )  # what was read is not what was written
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == (
        {"file": b"old"} if overwrite else {}
    )


def test_a_streamed_file_has_its_name_at_the_end_and_not_before(tmp_path):
    path = tmp_path / "file"
    with atomic_file(path, overwrite=False) as file:
        for _ in range(3):
            file.write(b"abc" * 10_000)
            assert not path.exists()
        file.seek(0)
        file.write(b"X")  # as a header that is written last
    assert path.read_bytes() == b"X" + (b"abc" * 30_000)[1:]
    assert os.listdir(tmp_path) == ["file"]


def test_of_two_new_files_of_one_name_the_first_stays(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(FileExistsError) as raised, atomic_file(path, overwrite=False):
        path.write_bytes(b"first")
    assert raised.value.filename == str(path)
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


@POSIX
def test_one_writes_a_file_at_a_time(tmp_path):
    path = tmp_path / "file"
    with atomic_file(path, overwrite=True) as file:
        file.write(b"first")
        with pytest.raises(InputError, match="file is being written by another"):
            write_atomically(path, b"second", overwrite=True)
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("broken", ["one", "two"])
def test_of_two_files_both_are_written_or_none(broken, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    with pytest.raises(FileExistsError), files.new_files([one, two]):
        (tmp_path / broken).write_bytes(b"of another")
    assert os.listdir(tmp_path) == [broken]
    assert (tmp_path / broken).read_bytes() == b"of another"


@POSIX
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_private_file_is_its_owners_from_its_first_byte(overwrite, tmp_path):
    path = tmp_path / "file"
    if overwrite:
        path.touch(0o644)
    with atomic_file(path, overwrite=overwrite, private=True) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o600


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder") as raised:
        write_atomically(tmp_path / "folder", b"", overwrite=True)
    assert raised.value.filename == str(tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]
    with pytest.raises(
        FileNotFoundError, match=r"there is no folder .*absent to write file into"
    ):
        write_atomically(tmp_path / "absent" / "file", b"", overwrite=True)


WRITERS = {
    "two new": "for one in here.enter_context(files.new_files([Path('one'), Path('two')])): one.write(b'new')",
    "one new": "files.write_atomically('one', b'new', overwrite=False)",
    "one old": "files.write_atomically('one', b'new', overwrite=True)",
    "reserved": "here.enter_context(files.reserved('one', 5, overwrite=False)).write(b'new')",
}
# What the next writer of these files, or a look whether they are there, begins with.
SEEN = """[
    files.remove_left([Path('one'), Path('two')][: 1 + ('two' in given['work'])]),
    {path.name: path.read_text() for path in sorted(Path().iterdir())},
][1]"""


@needs_fork
@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_that_is_killed_anywhere_has_ended_or_left_nothing(writer, tmp_path):
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    (prepared / ".0123456789abcdef.part").touch()  # of another file
    if writer == "one old":
        (prepared / "one").write_text("old")
    before = {path.name: path.read_text() for path in prepared.iterdir()}
    killed, whole = killed_everywhere(
        tmp_path,
        f"with ExitStack() as here:\n {WRITERS[writer]}",
        imports="from contextlib import ExitStack; from dppl._utils import files",
        look=SEEN,
    )
    assert set(whole.seen.values()) == {"", "new"}
    ends = [one.killed.seen for one in killed]
    n_before = ends.count(before)
    assert ends == [before] * n_before + [whole.seen] * (len(ends) - n_before)
    assert n_before > 1
    assert (len(ends) > n_before) == (writer != "one old")
    assert all(one.repeated.seen == whole.seen for one in killed)


@POSIX
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_one_has_the_lock_at_a_time(kind, tmp_path):
    path = tmp_path / "it"
    path.touch() if kind == "file" else path.mkdir()
    with locked(path, "taken"):
        with pytest.raises(InputError, match=r"^taken$"), locked(path, "taken"):
            pytest.fail("both have it")
        with pytest.raises(InputError):  # whoever was refused takes no lock away
            locked(path, "taken").__enter__()
    with pytest.raises(KeyError), locked(path, "taken"):
        raise KeyError
    with locked(path, "taken"):
        pass


HOLDER = """
import sys
from pathlib import Path
from dppl._utils.files import locked

with locked(Path(sys.argv[1]), "taken"):
    print("has it", flush=True)
    sys.stdin.read()
"""


@POSIX
def test_a_killed_process_gives_its_lock_free(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as party:
        assert party.stdout.readline() == "has it\n"
        with pytest.raises(InputError, match="taken"), locked(Path(tmp_path), "taken"):
            pytest.fail("both have it")
        party.kill()
        party.wait()
    with locked(Path(tmp_path), "taken"):
        pass


def test_without_such_locks_nobody_is_kept_away(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    with locked(tmp_path, "taken"), locked(tmp_path, "taken"):
        pass


def test_names_may_be_as_long_as_the_system_takes_them(tmp_path):
    path = tmp_path / ("a" * 251 + ".npz")
    for content in (b"old", b"new"):
        write_atomically(path, content, overwrite=True)
        assert path.read_bytes() == content


@POSIX
def test_a_folder_may_be_written_to_and_not_read(tmp_path, monkeypatch):
    original = os.open

    def unreadable(path, flags, *mode):
        if flags == os.O_RDONLY and os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return original(path, flags, *mode)

    monkeypatch.setattr(os, "open", unreadable)
    for content in (b"old", b"new"):
        write_atomically(tmp_path / "file", content, overwrite=True)
        assert (tmp_path / "file").read_bytes() == content


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "here"
    folder.mkdir()
    return folder, tmp_path / "state" / "dppl"


def test_a_reserved_file_has_its_room_first_and_its_content_at_the_end(state):
    path = state[0] / "m.safetensors"
    with reserved(path, 50_000, overwrite=False) as output:
        (part,) = state[0].iterdir()
        assert part.name[0] == "."
        assert part.stat().st_blocks * 512 >= 50_000
        output.write(b"content")
        assert path.read_bytes() == b"content"
    assert os.listdir(state[0]) == ["m.safetensors"]
    with (
        pytest.raises(FileExistsError),
        reserved(path, 1, overwrite=False),
    ):
        pass
    with reserved(path, 1, overwrite=True) as output:
        output.write(b"longer than was said")
    assert path.read_bytes() == b"longer than was said"
    with reserved(path, 1, overwrite=True):
        pass  # nothing is written
    assert path.read_bytes() == b"longer than was said"
    assert os.listdir(state[0]) == ["m.safetensors"]


@pytest.mark.parametrize(
    "path",
    ["/proc/m", "absent/m", f"{'m' * 250}.safetensors", "taken/m"],
)
def test_what_cannot_be_written_shows_before_the_work(path, state):
    (state[0] / "taken").touch()
    with pytest.raises(OSError), reserved(state[0] / path, 1, overwrite=True):  # noqa: PT011
        pytest.fail("the work has begun")


@POSIX
def test_a_full_disk_shows_before_the_work(state, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", full)
    with (
        pytest.raises(OSError, match="No space") as raised,
        reserved(state[0] / "m", 1, overwrite=True),
    ):
        pytest.fail("the work has begun")
    assert raised.value.filename == str(state[0] / "m")
    assert os.listdir(state[0]) == []


@pytest.mark.parametrize("broken", ["write", "link", "fsync", "ftruncate"])
def test_what_cannot_be_written_after_the_work_is_kept_elsewhere(
    broken, state, monkeypatch
):
    with (
        reserved(state[0] / "m.safetensors", 100, overwrite=False) as output,
        monkeypatch.context() as patch,
    ):
        patch.setattr(os, broken, full)
        if broken == "link":
            patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space") as raised:
            output.write(b"precious")
    (kept,) = state[1].iterdir()
    assert kept.read_bytes() == b"precious"
    assert kept.suffix == ".safetensors"
    assert str(kept) in raised.value.__notes__[0]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert os.listdir(state[0]) == []


def test_a_private_file_goes_to_its_owners_folder_or_nowhere(state, monkeypatch):
    monkeypatch.chdir(state[0])
    state[1].parent.touch()  # no folder can be made there
    for private in (True, False):
        with (
            reserved(state[0] / "m", 1, overwrite=True, private=private) as output,
            monkeypatch.context() as patch,
        ):
            patch.setattr(os, "replace", full)
            with pytest.raises(OSError, match="No space") as raised:
                output.write(b"precious")
        assert ("is lost" in raised.value.__notes__[0]) is private
    assert len(os.listdir(state[0])) == 1


def test_two_cannot_reserve_one_file(state):
    with reserved(state[0] / "m", 1, overwrite=False):
        with (
            pytest.raises(InputError, match="another process"),
            reserved(state[0] / "m", 1, overwrite=False),
        ):
            pass
        with reserved(state[0] / "other", 1, overwrite=False):
            pass
    assert os.listdir(state[0]) == []


@POSIX
@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_what_somebody_else_put_there_is_not_filled(kind, state):
    path = state[0] / "m"
    victim = state[0] / "victim"
    victim.write_bytes(b"victim")
    with reserved(path, 1, overwrite=False):
        (part,) = set(state[0].iterdir()) - {victim}
    getattr(part, kind)(victim)
    if kind == "symlink_to":
        with (
            pytest.raises(InputError, match="another process"),
            reserved(path, 1, overwrite=False),
        ):
            pytest.fail("it was taken")
    else:
        with reserved(path, 1, overwrite=False) as output:
            output.write(b"new")
        assert path.read_bytes() == b"new"
    assert victim.read_bytes() == b"victim"


@POSIX
@pytest.mark.parametrize("write", [write_atomically, "reserved"])
def test_a_link_stays_and_what_it_leads_to_is_replaced(write, state):
    def put(path):
        if write != "reserved":
            write_atomically(path, b"new", overwrite=True)
            return
        with reserved(path, 3, overwrite=True) as output:
            output.write(b"new")

    (state[0] / "far").mkdir()
    target = state[0] / "far" / "target"
    link = state[0] / "link"
    link.symlink_to("far/target")
    for before in (None, b"old"):
        if before:
            target.write_bytes(before)
            target.chmod(0o600)
        put(link)
        assert link.is_symlink()
        assert target.read_bytes() == b"new"
        assert os.listdir(state[0] / "far") == ["target"]
    assert target.stat().st_mode & 0o777 == 0o600
    target.chmod(0o444)
    target.with_name("other").touch(0o644)
    with pytest.raises(PermissionError, match="read-only"):
        put(link)
    loop = state[0] / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        put(loop)
    assert loop.is_symlink()
