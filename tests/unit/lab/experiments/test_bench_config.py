"""Configurations: what they become, and what is said about bad ones."""

import sys

import pytest

from dppl.errors import InputError, MissingExtra, ParameterError
from dppl.kernel.privacy import ZCDP, GaussianDP
from dppl.lab.commands.demo import PRIVATE
from dppl.lab.experiments import config as config_module
from dppl.lab.experiments.cells import Cell
from dppl.lab.experiments.compared_methods import METHODS
from dppl.lab.experiments.config import built_in_names, load_experiment
from dppl.lab.experiments.datasets import ExampleSpec, Pool
from dppl.methods.registry import ENTRIES

POOL = {"name": "near", "file": "blobs/public_x.npy"}
LINES = {"lines": "blobs/lines.txt", "without": ["b"]}


def blobs(**changes):
    return [{"name": "blobs", "encoder": "none", "public": [POOL], **changes}]


def test_the_grid_is_complete_and_methods_without_public_rows_are_not_repeated_over_pools(
    experiment,
):
    cells = experiment(
        datasets=blobs(public=[{**POOL, "rows": [10, 20]}, {**POOL, "name": "again"}]),
        methods=["mean", "public", {"method": "mean", "lattice__center": "public"}],
        budgets=[{"e": [0.5, 1]}, {"mu": [0.5]}, {"epsilon": [2], "delta": "1e-6"}],
        ir=["natural", 1, 10],
        seeds=[4, 7],
    ).cells
    assert len(cells) == len({cell.key for cell in cells}) == 4 * 3 * 2 * (1 + 3 + 3)
    assert {cell.pool for cell in cells if cell.method == "public"} == {
        Pool("near", None, 10),
        Pool("near", None, 20),
        Pool("again"),
    }
    assert {cell.seed for cell in cells} == {4, 7}
    assert {tuple(cell.budget) for cell in cells} == {
        ("rho",),
        ("mu",),
        ("epsilon", "delta"),
    }
    assert cells[0].budget == {"rho": 0.125}


def test_mu_is_gaussian_dp_and_e_the_zcdp_of_as_much_noise_with_selections_of_range_2e(
    experiment,
):
    by_mu, by_e = (
        experiment(methods=["mean"], budgets={name: [0.5, 2]}).cells
        for name in ("mu", "e")
    )
    assert [cell.budget for cell in by_mu] == [{"mu": 0.5}, {"mu": 2.0}]
    assert [cell.make_budget() for cell in by_mu] == [GaussianDP(0.5), GaussianDP(2.0)]
    assert [cell.make_budget() for cell in by_e] == [ZCDP(0.125), ZCDP(2.0)]
    for one, other in zip(by_mu, by_e, strict=True):
        assert (
            one.make_budget().gaussian_allowance()
            == other.make_budget().gaussian_allowance()
        )
    assert [cell.make_budget().selection_epsilon() for cell in by_e] == [1.0, 4.0]


def test_tuning_adds_a_cell_beside_the_untuned_one(experiment):
    cells = experiment(methods=[{"method": "mean", "tune": 5}, "mean"]).cells
    assert [cell.trials for cell in cells] == [0, 5]


def test_a_method_may_have_budgets_of_its_own(experiment):
    cells = experiment(
        methods=["mean", {"method": "coinpress", "budgets": {"rho": [8]}}],
        budgets={"rho": [1, 2]},
    ).cells
    assert [(cell.method, cell.budget["rho"]) for cell in cells] == [
        ("mean", 1),
        ("mean", 2),
        ("coinpress", 8),
    ]


def test_a_method_may_have_seeds_of_its_own(experiment):
    cells = experiment(
        methods=[
            "mean",
            {"method": "coinpress", "seeds": 3},
            {"method": "ncm", "seeds": [7]},
        ],
        seeds=2,
    )
    assert [(cell.seed, cell.method) for cell in cells.cells] == [
        *((seed, method) for seed in (0, 1) for method in ("mean", "coinpress")),
        (2, "coinpress"),
        (7, "ncm"),
    ]


def test_references_without_privacy_take_no_budget(experiment):
    (cell,) = experiment(methods=["ncm"], budgets={"e": [1, 2, 3]}).cells
    assert cell.budget is None
    assert experiment(methods=["ncm"], budgets=None).cells == [cell]


def test_keys_stay_as_they_are():
    """Measured results rest on this hash; another one needs another schema."""
    cell = Cell(
        "public",
        {"pool": 2},
        "blobs",
        "none",
        Pool("near", 5),
        {"rho": 0.5},
        "natural",
        1,
    )
    assert cell.key == "cd153dc2835cb3be1708367c48636cb7"
    assert cell.noise_seed == int(cell.key[:8], 16)


def test_what_a_pool_leaves_out_is_part_of_the_key(experiment, data):
    (data / "blobs" / "lines.txt").write_text("a\nb\n" * 30)
    (whole,), (part,) = (
        experiment(methods=["public"], datasets=blobs(public=[{**POOL, **more}])).cells
        for more in ({}, LINES)
    )
    assert part.pool == Pool("near", without=("b",))
    assert "without" not in whole.to_dict()["pool"]
    assert part.key != whole.key


def test_examples_and_what_they_are_compared_with_are_cells_of_their_own(experiment):
    starts = [
        {"source": source, "wrong": wrong}
        for source in ("names", 5)
        for wrong in (None, "permuted", "half")
    ]
    methods = [
        "softmax",
        {
            "method": "softmax",
            "examples": [*starts, *({"source": k, "used": False} for k in (1, 5))],
        },
        {"method": "mean", "examples": {"source": 5, "used": False}},
    ]
    cells = experiment(
        methods=methods, datasets=blobs(files={"names": "train_x.npy"})
    ).cells
    assert [cell.examples for cell in cells] == [
        None,
        *(
            ExampleSpec(source, wrong)
            for source in ("names", 5)
            for wrong in (None, "permuted", "half")
        ),
        *(ExampleSpec(k, used=False) for k in (1, 5, 5)),
    ]
    assert len({cell.key for cell in cells}) == len(cells)
    assert "examples" not in cells[0].to_dict()
    assert cells[1].to_dict()["examples"] == {
        "source": "names",
        "wrong": None,
        "used": True,
    }


def test_names_are_for_the_data_sets_that_have_them(experiment):
    datasets = [
        *blobs(files={"names": "train_x.npy"}),
        {"name": "again", "folder": "blobs"},
    ]
    cells = experiment(
        methods=["softmax", {"method": "softmax", "examples": "names"}],
        datasets=datasets,
    ).cells
    assert [(cell.dataset, cell.examples) for cell in cells] == [
        ("blobs", None),
        ("blobs", ExampleSpec("names")),
        ("again", None),
    ]


def test_a_data_set_may_have_imbalance_ratios_of_its_own(experiment):
    datasets = [*blobs(ir=[10]), {"name": "again", "folder": "blobs"}]
    cells = experiment(methods=["mean"], datasets=datasets, ir=["natural", 1]).cells
    assert [(cell.dataset, cell.ir) for cell in cells] == [
        ("blobs", 10.0),
        ("again", "natural"),
        ("again", 1.0),
    ]


@pytest.mark.parametrize("n_lines", [59, 61])
def test_a_text_file_has_a_line_for_each_row_of_its_pool(write_config, data, n_lines):
    (data / "blobs" / "lines.txt").write_text("b\n" * n_lines)
    with pytest.raises(
        InputError,
        match=rf"lines\.txt must have a line for each of the 60 rows .*; it has {n_lines}",
    ):
        load_experiment(str(write_config(datasets=blobs(public=[{**POOL, **LINES}]))))


def test_a_text_file_must_be_there_and_be_text(write_config, data):
    path = str(write_config(datasets=blobs(public=[{**POOL, **LINES}])))
    with pytest.raises(InputError, match=r"there is no file .*lines\.txt"):
        load_experiment(path)
    (data / "blobs" / "lines.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"lines\.txt must be UTF-8 text"):
        load_experiment(path)


def test_keys_do_not_depend_on_where_the_data_lies(write_config, data):
    there = load_experiment(str(write_config(data="nowhere")), data)
    assert there.cells == load_experiment(str(write_config())).cells


def test_yaml_numbers_of_any_form_are_the_same_cell(experiment):
    assert experiment(ir=[10]).cells == experiment(ir=[10.0]).cells
    assert (
        experiment(budgets={"rho": [1]}).cells
        == experiment(budgets={"rho": ["1e0"]}).cells
    )


def test_public_rows_are_read_where_named_by_methods_that_can_do_without(experiment):
    methods = ["softmax", "softmax-alone"]
    assert [cell.pool for cell in experiment(methods=methods).cells] == [
        Pool("near"),
        None,
    ]
    assert [
        cell.pool
        for cell in experiment(methods=methods, datasets=blobs(public=[])).cells
    ] == [None, None]


def test_the_configuration_is_remembered_as_typed(write_config, data):
    path = str(write_config())
    loaded = load_experiment(path, data)
    assert (loaded.name, loaded.config, loaded.data) == ("mine", path, str(data))
    assert load_experiment("quick").config == "quick"
    assert load_experiment("quick").data is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"colour": 1}, r"colour is an unknown key; leave it out"),
        ({"datasets": None}, r"datasets is missing; add it"),
        ({"datasets": "sample"}, r"datasets must be a valid list; got 'sample'"),
        ({"datasets": [{"folder": "x"}]}, r"datasets\[0\]\.name is missing"),
        ({"datasets": ["sample", "sample"]}, r"datasets\[1\] names 'sample' .* again"),
        (
            {"datasets": blobs(public=[{"name": "near"}])},
            r"datasets\[0\]\.public\[0\]\.file is missing",
        ),
        (
            {"datasets": blobs(public=[{**POOL, "rows": 0}])},
            r"public\[0\]\.rows\[0\] must be greater than or equal to 1; got 0",
        ),
        *(
            (
                {"datasets": blobs(public=[{**POOL, key: value}])},
                r"public\[0\]: lines and without go together",
            )
            for key, value in LINES.items()
        ),
        (
            {"datasets": blobs(public=[{**POOL, **LINES, "without": "b"}])},
            r"public\[0\]\.without must be a valid list; got 'b'",
        ),
        (
            {"datasets": blobs(public=[{**POOL, **LINES, "without": [1]}])},
            r"without\[0\] must be a valid string; got 1",
        ),
        (
            {"datasets": blobs(public=[])},
            r"methods\[1\]: public needs public rows, and data set 'blobs' names none",
        ),
        (
            {
                "datasets": blobs(public=[]),
                "methods": [{"method": "mean", "lattice__center": "public"}],
            },
            r"methods\[0\]: mean needs public rows",
        ),
        (
            {"datasets": blobs(files={"train": "x"})},
            r"datasets\[0\]: files has an unknown key 'train'",
        ),
        (
            {"methods": ["median"]},
            r"methods\[0\] must be one of softmax, .*; got 'median'",
        ),
        (
            {"methods": [{"method": "mean", "k": 3}]},
            r"methods\[0\]: mean has no parameter 'k' to set; it has adjacency",
        ),
        (
            {"methods": [{"method": "mean", "budget": 3}]},
            r"mean has no parameter 'budget'",
        ),
        (
            {"methods": [{"method": "mean", "lattice__pool": {"a": 1}}]},
            r"methods\[0\]\.lattice__pool must hold numbers",
        ),
        (
            {"methods": [{"method": "mean", "tune": -1}]},
            r"methods\[0\]\.tune must be greater than or equal to 0; got -1",
        ),
        (
            {"methods": [{"method": "ncm", "tune": 3}]},
            r"methods\[0\]\.tune: ncm has no hyper-parameters to search",
        ),
        (
            {"methods": [{"method": "mean", "scatter": True}]},
            r"methods\[0\]\.scatter is for mean-replace-one, coinpress, friendly-core; leave it out",
        ),
        ({"methods": [{"tune": 3}]}, r"methods\[0\]\.method is missing"),
        ({"budgets": None}, r"budgets must hold at least one budget; mean spends one"),
        (
            {"methods": [{"method": "mean", "budgets": []}]},
            r"budgets must hold at least one budget; mean spends one",
        ),
        (
            {"methods": [{"method": "mean", "budgets": {"e": [0]}}]},
            r"methods\[0\]\.budgets\[0\]: e must be",
        ),
        (
            {"budgets": {"e": ["much"]}},
            r"budgets\[0\]\.e\[0\] must be a valid number, .*; got 'much'",
        ),
        (
            {"budgets": {"e": [1, -1]}},
            r"budgets\[0\]: e must be .* greater than 0; got -1",
        ),
        (
            {"budgets": {"rho": [1], "delta": 0.1}},
            r"budgets\[0\] must name one of mu .* got delta, rho",
        ),
        (
            {"budgets": {"mu": [1], "e": [1], "delta": 0.1}},
            r"budgets\[0\] must name one of mu \(Gaussian DP\), e \(sqrt\(2 rho\) in zCDP, .* got delta, e, mu",
        ),
        (
            {"budgets": {"mu": [1], "e": [1]}},
            r"budgets\[0\] must name one of mu .* got e, mu",
        ),
        ({"budgets": {"mu": [1, -1]}}, r"budgets\[0\]: mu must be .* got -1"),
        (
            {"budgets": {"mu": [1, 0]}},
            r"methods\[0\] has no examples, and mu = 0 is for these alone",
        ),
        (
            {
                "methods": [
                    {"method": "softmax", "examples": {"source": 2, "used": False}}
                ],
                "budgets": {"mu": 0},
            },
            r"methods\[0\] has no examples, and mu = 0 is for these alone",
        ),
        (
            {"methods": ["adamix"]},
            r"methods\[0\]: adamix starts from examples; add examples",
        ),
        (
            {"methods": [{"method": "mean", "examples": 2}]},
            r"examples: mean does not start from examples; leave",
        ),
        (
            {"methods": [{"method": "ncm", "examples": 2}]},
            r"examples: ncm does not start from examples; leave",
        ),
        (
            {"methods": [{"method": "softmax", "examples": 0}]},
            r"methods\[0\]\.examples\[0\] must be 'names' or a number .* got 0",
        ),
        (
            {"methods": [{"method": "softmax", "examples": "n"}]},
            r"examples\[0\] must be 'names' or a number .* got 'n'",
        ),
        (
            {"methods": [{"method": "softmax", "examples": "names"}]},
            r"are names, and no data set has files: names",
        ),
        (
            {
                "methods": [
                    {"method": "softmax", "examples": {"source": 2, "wrong": "all"}}
                ]
            },
            r"methods\[0\]\.examples\[0\]\.wrong must be 'permuted' or 'half'; got 'all'",
        ),
        (
            {
                "methods": [
                    {"method": "softmax", "examples": {"source": 2, "left_out": True}}
                ]
            },
            r"methods\[0\]\.examples\[0\]\.left_out is an unknown key; leave it out",
        ),
        ({"datasets": blobs(ir=10)}, r"datasets\[0\]\.ir must be a valid list; got 10"),
        (
            {"budgets": {"mu": ["much"]}},
            r"budgets\[0\]\.mu\[0\] must be a valid number, .*; got 'much'",
        ),
        (
            {"budgets": {"epsilon": [1]}},
            r"methods\[0\] is mean, which cannot spend pure DP .* give delta, mu, e or rho",
        ),
        (
            {"ir": [0.5]},
            r"ir\[0\] must be 'natural' or a number of at least 1; got 0.5",
        ),
        ({"ir": 10}, r"ir must be a valid list; got 10"),
        ({"seeds": 0}, r"seeds must be a valid list; got 0"),
        ({"seeds": [-1]}, r"seeds\[0\] must be greater than or equal to 0; got -1"),
        (
            {"methods": [{"method": "mean", "seeds": 0}]},
            r"methods\[0\]\.seeds must be a valid list; got 0",
        ),
    ],
)
def test_a_bad_configuration_is_named_by_key_rule_and_value(
    write_config, changes, told
):
    path = write_config(**changes)
    with pytest.raises(ParameterError, match=told) as caught:
        load_experiment(str(path))
    assert str(caught.value).startswith(f"{path}: ")


def test_pure_dp_is_for_selections(experiment):
    (cell,) = experiment(methods=["public"], budgets={"epsilon": [2]}).cells
    assert cell.budget == {"epsilon": 2.0}


def test_what_is_no_configuration_at_all(tmp_path):
    with pytest.raises(
        ParameterError,
        match=r"CONFIG must be a YAML file or one of assistant, clusters, .*, quick, text, votes; got 'no'",
    ):
        load_experiment("no")
    path = tmp_path / "broken.yaml"
    path.write_text("methods: [mean\n")
    with pytest.raises(ParameterError, match=r"broken\.yaml must be YAML; .*line 2"):
        load_experiment(str(path))
    path.write_text("- mean\n")
    with pytest.raises(
        ParameterError, match=r"the configuration must be a valid dictionary"
    ):
        load_experiment(str(path))


def test_missing_data_is_named_with_its_place(write_config, tmp_path):
    with pytest.raises(
        InputError,
        match=r"'blobs' \(none\): there is no file .*train_x\.npy, nor 4 more of its files; .*--data\. Ask us",
    ):
        load_experiment(str(write_config(source="Ask us.")), tmp_path / "nowhere")


def test_every_estimator_has_a_method():
    """An estimator is announced in the registry; one that experiments leave out stands here, with a reason."""
    # Of streams: with one task they are MeanPrototypes, LinearProbe or
    # SoftmaxPrototypes. Records have one label.
    left_out = {"MultiLabelPrototypes"} | {
        entry.name for entry in ENTRIES if entry.method is None
    }
    # Networks are in no registry: they have no file of embeddings.
    embedding = [one for one in METHODS.values() if not one.of_images]
    compared = {method.estimator for method in embedding if method.private}
    assert compared == {entry.name for entry in ENTRIES} - left_out
    assert compared >= {METHODS[name].estimator for name in PRIVATE}


@pytest.mark.parametrize(
    "name", [name for name, one in METHODS.items() if not one.of_images]
)
def test_what_a_method_fixes_searches_and_sets_are_parameters_of_its_estimator(name):
    method = METHODS[name]
    assert {*method.space, *method.defaults} <= set(method.parameters)
    model = method.build(None, None, 0, method.defaults)
    assert {**model.get_params(), **method.fixed} == model.get_params()


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"PyYAML.*pip install -e '\.\[lab\]'"):
        load_experiment("quick")


def test_the_quick_configuration_needs_nothing_but_dppl():
    cells = load_experiment("quick").cells
    assert {cell.dataset for cell in cells} == {"sample"}
    assert len({cell.method for cell in cells}) > 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["assistant", "examples", "few", "images", "paper", "text"]
)
def test_built_in_configurations_lack_nothing_but_their_data(
    name, monkeypatch, tmp_path
):
    assert name in built_in_names()
    with pytest.raises(InputError, match="there is no file"):
        load_experiment(name, tmp_path)
    monkeypatch.setattr(config_module.DatasetSpec, "check", lambda self: None)
    cells = load_experiment(name).cells
    assert len({cell.seed for cell in cells}) >= 3
    assert {cell.ir for cell in cells} >= (
        {"natural", 10.0} if name == "assistant" else {1.0, 10.0, 100.0}
    )
    if name == "paper":
        assert len({(cell.dataset, cell.encoder) for cell in cells}) == 16
