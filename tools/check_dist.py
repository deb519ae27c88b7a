"""Look into the wheel and the source archive in a folder: all that is needed at run time, and nothing that is not.

    python -m build --outdir FOLDER && python tools/check_dist.py FOLDER

Ends with an AssertionError that says what is wrong.
"""

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LARGEST = 2_000_000  # bytes of each


def check(folder: Path) -> None:
    """Check the one wheel and the one archive in `folder`."""
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    for path in (wheel, archive):
        assert path.stat().st_size < LARGEST, (
            f"{path.name} has {path.stat().st_size} bytes"
        )
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (metadata,) = (
            file.read(name).decode()
            for name in names
            if name.endswith(".dist-info/METADATA")
        )
    package = ROOT / "src"
    wanted = {
        path.relative_to(package).as_posix()
        for path in (package / "dppl").rglob("*")
        if path.is_file()
        and path.suffix
        in (".py", ".pyi", ".typed", ".yaml", ".html", ".md", ".css", ".jinja")
    }
    found = {name for name in names if ".dist-info/" not in name}
    assert found == wanted, f"the wheel differs from src: {sorted(found ^ wanted)}"
    links = re.findall(r"\]\((?!https?:)[^)]*\)", metadata)
    assert not links, f"links that lead nowhere on an index: {links}"
    with tarfile.open(archive) as file:
        kept = {name.partition("/")[2] for name in file.getnames()}
    assert {
        "README.md",
        "LICENSE",
        "pyproject.toml",
        "docs/guarantees.md",
        "docs/review/index.md",
        "tests/conftest.py",
    } <= kept
    results = sorted(name for name in kept if name.startswith("docs/results/"))
    assert not results, f"measurements in the source archive: {results}"
    for path in (wheel, archive):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")  # noqa: T201


if __name__ == "__main__":
    check(Path(sys.argv[1]))
