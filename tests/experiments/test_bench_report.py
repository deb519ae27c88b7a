"""The report: every figure that results allow, marks for what was tuned, and no word that the results do not carry."""

import math
import re
import sys

import pytest

from dppl.errors import InputError, MissingExtra
from dppl.experiments import figures
from dppl.experiments.config import Cell
from dppl.experiments.datasets import Pool
from dppl.experiments.figures import _styles
from dppl.experiments.report import write_report
from dppl.experiments.results import ResultsFile
from dppl.experiments.summary import TUNED, default_settings, series

NEAR, FAR = Pool("near"), Pool("far")
SIZES = {1: [9] * 8, 100.0: [100, 52, 27, 14, 7, 4, 2, 1], "natural": [9, 8, 7, 6, 5, 4, 3, 2]}


def record(
    method="mean", accuracy=0.5, *, e=1.0, ir=1, seed=0, pool=None, trials=0, encoder="one", data="blobs", **more
):
    """A finished cell whose metrics are made up."""
    private = method not in ("ncm", "lda", "logistic")
    budget = {"rho": e * e / 2} if private else None
    cell = Cell(method, more.pop("parameters", {}), data, encoder, pool, budget, ir, seed, trials)
    return {
        "schema": 1,
        "key": cell.key,
        "status": "done",
        "config": "mine",
        "cell": cell.to_dict(),
        "software": {"dppl": "0.1.0"},
        "e": e if private else None,
        "notion": "zCDP" if private else "none",
        "adjacency": "add-remove" if private else None,
        "exact": True if private else None,
        "tuned": trials > 0,
        "data": {"n_public": None if pool is None else pool.rows or 500, "class_sizes": SIZES[ir]},
        "metrics": {"balanced_accuracy": accuracy, "minority_accuracy": None if ir == 1 else accuracy / 2},
        "seconds": {"fit_wall": 0.25, "fit_cpu": 0.125, "predict_wall": 0.01, "predict_cpu": 0.01},
        "peak_memory_mib": 100.0,
        **more,
    }


@pytest.fixture
def report(tmp_path):
    """Write records to a results file and report on them; return folder, Markdown and HTML."""

    def write(records):
        path = tmp_path / "r.jsonl"
        with ResultsFile(path) as results:
            for one in records:
                results.append(one)
        folder = tmp_path / "report"
        files = write_report(path, folder)
        assert sorted(files) == sorted(folder.iterdir())
        return folder, (folder / "report.md").read_text("utf-8"), (folder / "report.html").read_text("utf-8")

    return write


def everything():
    """Two budgets of all that a report can show."""
    for e in (0.5, 2.0):
        accuracy = e / 4
        for ir in (1, 100.0):
            yield record("mean", accuracy, e=e, ir=ir)
            yield record(
                "mean", accuracy, e=e, ir=ir, trials=5, seconds={**record()["seconds"], "tune_wall": 1, "tune_cpu": 1}
            )
            yield record("public", accuracy, e=e, ir=ir, pool=NEAR)
            yield record("public", accuracy, e=e, ir=ir, pool=FAR)
            yield record("public", accuracy, e=e, ir=ir, pool=Pool("near", rows=50))
            yield record("public-topk", accuracy, e=e, ir=ir, pool=NEAR, parameters={"n_prototypes": 2})
            yield record("public-topk", accuracy, e=e, ir=ir, pool=NEAR, parameters={"n_prototypes": 5})
            steps = {"radius": [4.0, 3.0, 2.0, 1.0], "norm": [1.0, 1.1, 1.2]}
            yield record("coinpress", accuracy, e=e, ir=ir, coinpress=steps)
            yield record("mean", accuracy, e=e, ir=ir, encoder="two", parameters={"projection": True})
            yield record("mean", accuracy, e=e, ir=ir, encoder="two")
            yield record("mean", accuracy, e=e, ir=ir, data="rings")
            yield record("ncm", 0.9, ir=ir)


def test_every_figure_that_the_results_allow_is_drawn(report):
    folder, text, page = report(everything())
    stems = {
        *(f"{kind}-{task}" for kind in ("accuracy", "minority") for task in ("blobs-one", "blobs-two", "rings-one")),
        *(f"class-sizes-{task}" for task in ("blobs-one", "blobs-two", "rings-one")),
        "datasets-one",
        "encoders-blobs-ir-1",
        "encoders-blobs-ir-100",
        "projection-blobs-two",
        "pools-blobs-one",
        "pool-size-blobs-one-dppl-public",
        "top-k-blobs-one",
        "best-k-blobs-one",
        "coinpress-blobs-one",
    }
    assert {path.name for path in folder.iterdir()} == {
        "report.md",
        "report.html",
        *(f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")),
    }
    assert set(re.findall(r"\]\(([^)]+)\.png\)", text)) == stems
    assert page.count("data:image/png;base64,") == len(stems)
    assert not re.search(r'(src|href)="(?!data:)', page)  # one file with everything inside
    # Every table and figure names its command and its results file.
    made_by = f"Made by `dppl bench report {folder.parent / 'r.jsonl'} --out {folder}`"
    assert text.count(made_by) == len(stems) + text.count("\n| --- |")
    assert f"`dppl bench run mine --out {folder.parent / 'r.jsonl'}`" in text
    assert "sqrt(2ρ)" in (folder / "accuracy-blobs-one.svg").read_text("utf-8")


def test_steps_of_coinpress_are_drawn_for_the_largest_classes_from_old_results_too(report, monkeypatch):
    drawn, lines = [], figures.lines

    def spy(panels, *labels, **options):
        drawn.append(panels)
        return lines(panels, *labels, **options)

    monkeypatch.setattr(figures, "lines", spy)
    steps, old = {"radius": [4.0, 3.0, 1.0], "norm": [1.0, 1.2]}, {"norm": [3.0, 1.2]}
    cells = [record("coinpress", 0.5, seed=s, ir=1, coinpress=traced) for s, traced in enumerate((steps, old))]
    _, text, _ = report(
        [*cells, record("coinpress", 0.5, ir=100.0, coinpress={"radius": [9.0] * 3, "norm": [9.0] * 2})]
    )
    ((radius, norm),) = [panels for panels in drawn if "radius" in panels[0][0]]
    assert radius[1] == {"e 1": {0.0: 4.0, 1.0: 3.0, 2.0: 1.0}}
    assert norm[1] == {"e 1": {1.0: 2.0, 2.0: 1.2}}
    assert "Means over classes and seeds (IR = 1)" in text


def test_what_was_tuned_is_marked_everywhere(report):
    folder, text, page = report([record(), record(trials=5), record(e=2), record(e=2, trials=5)])
    rows = [line for line in text.splitlines() if line.startswith("| DPPL-Mean")]
    assert sorted(TUNED in row for row in rows) == [False, True]
    for content in (page, (folder / "accuracy-blobs-one.svg").read_text("utf-8")):
        assert f"DPPL-Mean ({TUNED})" in content
    styles = _styles(series([record(), record(trials=5)]))
    plain, tuned = styles["DPPL-Mean"], styles[f"DPPL-Mean ({TUNED})"]
    assert tuned["color"] == plain["color"]
    assert tuned["linestyle"] not in (None, "-", plain.get("linestyle"))


def test_tables_hold_means_and_deviations_over_seeds_and_say_how_many(report):
    cells = [record(accuracy=a, seed=s) for s, a in enumerate((0.4, 0.5, 0.6))]
    cells += [record(accuracy=0.7, e=4.0), record("ncm", 0.9)]
    _, text, _ = report(cells)
    assert "| method | guarantee | e 1 | e 4 |" in text
    assert "| DPPL-Mean | zCDP, add-remove, exact | 0.500 ± 0.100 | 0.700 (1) |" in text
    assert "| Nearest class mean (not private) | none | 0.900 (1) | 0.900 (1) |" in text
    assert "| blobs | DPPL-Mean | – | 0.25 (0.125) | 0.01 (0.01) | 100 |" in text


def test_sizes_of_classes_are_those_of_the_first_seed(report):
    _, text, _ = report([record(ir=100.0)])
    assert "| blobs | one | IR = 100 | 8 | 207 | 10.5 | 25.9 | 1 | 100 |" in text


def test_a_partial_file_makes_a_report_and_failures_are_listed(report):
    failed = {**record(seed=7), "status": "failed", "error": "MemoryError", "message": "no | memory\n<b>"}
    _, text, page = report([record("public", pool=NEAR, ir="natural"), failed])
    assert "1 cells done, 0 of them" in text
    assert r"| mean | blobs | 1 | 7 | MemoryError | no \| memory <b> |" in text
    assert "<b></td>" not in page
    assert "&lt;b&gt;" in page


def test_a_file_without_a_finished_cell_makes_none(report):
    with pytest.raises(InputError, match="holds no finished cell yet"):
        report([{**record(), "status": "failed", "error": "E", "message": ""}])


def test_figures_that_compare_methods_show_one_pool_and_one_k():
    kept = default_settings(list(everything()))
    assert {one["cell"]["pool"]["name"] for one in kept if one["cell"]["pool"]} == {"near"}
    assert {one["cell"]["pool"]["rows"] for one in kept if one["cell"]["pool"]} == {None}
    assert {one["cell"]["parameters"].get("n_prototypes") for one in kept} == {None, 5}


def test_no_two_lines_of_a_figure_look_alike():
    names = ["mean", "coinpress", "public", "discriminant", "newton", "linear-probe", "global-adapt"]
    cells = [record(name) for name in names]
    cells += [record("public-topk", parameters={"n_prototypes": k}) for k in range(1, 30)]
    cells += [record(name, trials=3) for name in names] + [record("ncm"), record("lda"), record("logistic")]
    looks = [tuple(map(str, style.items())) for style in _styles(series(cells)).values()]
    assert len(looks) == len(set(looks)) == len(names) * 2 + 29 + 3


def test_series_hold_quantiles_over_seeds():
    (one,) = series([record(accuracy=a, seed=s, e=math.sqrt(0.5)) for s, a in enumerate((0.0, 0.5, 1.0))])
    assert one.quantile(0.25) == ([pytest.approx(math.sqrt(0.5))], [0.25])


def test_without_matplotlib_a_report_says_what_to_install(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"Matplotlib.*dppl\[bench\]"):
        report([record()])
