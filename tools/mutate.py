"""Plant known faults one by one and see whether the tests notice.

    python tools/mutate.py [--only NAME] [--json FILE]

Each mutant changes one place in a copy of the tree and runs there the test files that should turn red. A survivor is a
promise that no test keeps; then the exit status is 1. `tests/meta/test_mutants.py` holds the list to the sources.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = (".ci", "docs", "src", "tests", "tools", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "justfile")
COPIED += ("pyproject.toml",)
KILLED, SURVIVED, BROKEN = "killed", "SURVIVED", "BROKEN"
# A fault may make a loop endless. That is no test's merit, so such a mutant counts as broken.
LIMIT_S = 600


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault: in `file` the text `old` becomes `new`, and one of `tests` should fail.

    Parameters
    ----------
    name : str
    file : str
        Path of the source below src/dppl.
    old, new : str
        `old` stands in the file exactly once.
    tests : tuple of str
        Test files, as paths below the root.
    keyword : str, default=""
        Part of the names of the tests to run, where the whole files would take long; pytest's -k.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    keyword: str = ""

    def apply(self, source: str) -> str:
        """Return the faulty source.

        Raises
        ------
        ValueError
            If `old` does not stand in it exactly once, or is no different from `new`.
        """
        count = source.count(self.old)
        if count != 1 or self.old == self.new:
            raise ValueError(
                f"{self.name}: its text must stand in {self.file} once and change; it stands {count} times."
            )
        return source.replace(self.old, self.new)


MUTANTS = (
    Mutant(
        name="a-seeded-model-exported-as-fit-for-release",
        file="export/statement.py",
        old='"fit_for_release": guarantee.fit_for_release,',
        new='"fit_for_release": True,',
        tests=("tests/export/test_scorer.py",),
        keyword="statement",
    ),
    Mutant(
        name="an-export-that-nobody-compares",
        file="export/scorer.py",
        old="    _compare(scorer, model)\n",
        new="",
        tests=("tests/export/test_scorer.py",),
        keyword="noticed",
    ),
    Mutant(
        name="an-export-turned-the-wrong-way",
        file="export/scorer.py",
        old="weights=self.weights @ turn.T",
        new="weights=self.weights @ turn",
        tests=("tests/export/test_scorer.py",),
        keyword="scores_are_those",
    ),
    Mutant(
        name="a-hub-folder-overwritten-unasked",
        file="export/hub.py",
        old="if taken is not None and not overwrite:",
        new="if False:",
        tests=("tests/export/test_formats.py",),
        keyword="hub_folder",
    ),
    Mutant(
        name="a-report-with-the-account-of-another-data-set",
        file="report/account.py",
        old="if names_it or (entry is None and",
        new="if book or (entry is None and",
        tests=("tests/report/test_report.py",),
        keyword="account",
    ),
    Mutant(
        name="a-report-with-the-evaluation-of-another-model",
        file="report/evidence.py",
        old="if [name for name, _, _ in each] !=",
        new="if each and [name for name, _, _ in each] ==",
        tests=("tests/report/test_report.py",),
        keyword="evaluation",
    ),
    Mutant(
        name="a-report-with-bounds-rounded-down",
        file="report/view.py",
        old="math.ceil(10_000 * share)",
        new="math.floor(10_000 * share)",
        tests=("tests/report/test_report.py",),
        keyword="bounds",
    ),
    Mutant(
        name="a-report-with-markup-of-others",
        file="pages/templates.py",
        old='select_autoescape(["html"])',
        new="False",
        tests=("tests/report/test_report.py",),
        keyword="markup",
    ),
    Mutant(
        name="a-rehearsal-of-more-records-than-guessed",
        file="planning/rehearsal.py",
        old="own[held_out[c] :][:n]",
        new="own[held_out[c] :][: 2 * n]",
        tests=("tests/planning/test_plan_budget.py",),
        keyword="rehearsal",
    ),
    Mutant(
        name="a-rehearsal-tested-on-what-it-fitted",
        file="planning/rehearsal.py",
        old="tested = np.concatenate([own[: held_out[c]]",
        new="tested = np.concatenate([own[held_out[c] :]",
        tests=("tests/planning/test_plan_budget.py",),
        keyword="rehearsal",
    ),
    Mutant(
        name="a-plan-with-more-budget-than-a-fit-has",
        file="planning/model.py",
        old="else budget.gaussian_allowance().mu",
        new="else 2 * budget.gaussian_allowance().mu",
        tests=("tests/planning/test_plan_budget.py",),
    ),
    Mutant(
        name="check-plans-the-classes-in-another-order",
        file="cli/check.py",
        old='sizes = [entry.get("persons", entry["n"]) for entry in labels["class_sizes"]]',
        new='sizes = sorted(entry["n"] for entry in labels["class_sizes"])',
        tests=("tests/cli/test_cli_plan.py",),
        keyword="check",
    ),
    Mutant(
        name="check-calls-a-class-found-in-part-not-found",
        file="cli/check.py",
        old='if entry["found"] == NO]',
        new='if entry["found"] != "yes"]',
        tests=("tests/cli/test_cli_plan.py",),
        keyword="check",
    ),
    Mutant(
        name="a-winner-of-the-demo-ahead-of-one-rival",
        file="experiments/demo.py",
        old="ahead = all(is_ahead",
        new="ahead = any(is_ahead",
        tests=("tests/cli/test_cli_demo.py",),
    ),
    Mutant(
        name="a-winner-of-the-demo-that-takes-class-sizes",
        file="experiments/demo.py",
        old="if name not in AS_PUBLISHED}",
        new="if name}",
        tests=("tests/cli/test_cli_demo.py",),
    ),
    Mutant(
        name="what-is-left-of-a-budget-rounded-up",
        file="privacy/_shown.py",
        old="if left > 0 and as_typed(float(nearest)) <= left else",
        new="if left > 0 else",
        tests=("tests/cli/test_cli_ledger.py",),
        keyword="left",
    ),
    Mutant(
        name="a-model-keeps-names-of-columns-that-nobody-typed",
        file="cli/train.py",
        old="columns=columns,\n            ledger",
        new='columns=Columns(x or "text", y, identity),\n            ledger',
        tests=("tests/cli/test_cli_train.py",),
    ),
    Mutant(
        name="probabilities-of-rows-that-cannot-be-used",
        file="estimators/base.py",
        old="features.any(axis=1, keepdims=True), self._class_scores(features), np.nan",
        new="features.any(axis=1, keepdims=True), self._class_scores(features), 0.0",
        tests=("tests/laws/test_probabilities.py",),
    ),
    Mutant(
        name="a-loaded-model-is-as-sharp-as-without-noise",
        file="prototypes/mean.py",
        old='known = self.adjacency == "add-remove"',
        new='known = hasattr(self, "prototypes_") and self.random_state is not None',
        tests=("tests/laws/test_probabilities.py",),
    ),
    Mutant(
        name="fits-of-an-array-that-is-gone-count-for-another",
        file="estimators/repeats.py",
        old="if known is None or known.of() is not X:",
        new="if known is None:",
        tests=("tests/estimators/test_repeats.py",),
    ),
    Mutant(
        name="fits-without-a-ledger-cost-what-the-last-one-does",
        file="estimators/repeats.py",
        old="for one in guarantees for cost in one.costs()",
        new="for one in guarantees[-1:] for cost in one.costs()",
        tests=("tests/estimators/test_repeats.py",),
    ),
    Mutant(
        name="gaussian-draws-half-the-noise",
        file="mechanisms/gaussian.py",
        old="exact + source.rounded_gaussian(self.noise_std, exact.shape)",
        new="exact + source.rounded_gaussian(self.noise_std / 2, exact.shape)",
        tests=("tests/mechanisms/test_gaussian.py",),
    ),
    Mutant(
        name="gaussian-plans-half-the-noise",
        file="mechanisms/gaussian.py",
        old="noise_std=gaussian_noise_std(squared_sensitivity, mu))",
        new="noise_std=gaussian_noise_std(squared_sensitivity, mu) / 2)",
        tests=("tests/mechanisms/test_gaussian.py",),
    ),
    Mutant(
        name="gaussian-draws-a-tenth-too-little",
        file="mechanisms/gaussian.py",
        old="exact + source.rounded_gaussian(self.noise_std, exact.shape)",
        new="exact + source.rounded_gaussian(self.noise_std * 0.9, exact.shape)",
        tests=("tests/mechanisms/test_gaussian.py", "tests/audit/test_audit.py"),
    ),
    Mutant(
        name="gaussian-rounds-before-the-noise",
        file="mechanisms/gaussian.py",
        old="exact + source.rounded_gaussian(self.noise_std, exact.shape)",
        new="np.rint(exact / 2).astype(np.int64) * 2 + source.rounded_gaussian(self.noise_std, exact.shape)",
        tests=("tests/mechanisms/test_gaussian.py",),
    ),
    Mutant(
        name="noise-uses-bits-again",
        file="mechanisms/randomness.py",
        old="tails, negative = words >> np.uint64(1), words & np.uint64(1)",
        new="tails, negative = words >> np.uint64(1), words >> np.uint64(63)",
        tests=("tests/mechanisms/test_randomness.py",),
    ),
    Mutant(
        name="noise-of-all-blocks-is-the-same",
        file="mechanisms/randomness.py",
        old='words = np.frombuffer(self._bytes(8 * len(block)), "<u8")',
        new='words = first = np.frombuffer(self._bytes(8 * len(block)), "<u8") if start == 0 else first[: len(block)]',
        tests=("tests/mechanisms/test_randomness.py",),
    ),
    Mutant(
        name="noise-drops-the-low-bit",
        file="mechanisms/randomness.py",
        old="tails, negative = words >> np.uint64(1), words & np.uint64(1)",
        new="tails, negative = words >> np.uint64(2) << np.uint64(1), words & np.uint64(1)",
        tests=("tests/mechanisms/test_randomness.py",),
    ),
    Mutant(
        name="noise-is-never-doubted",
        file="mechanisms/randomness.py",
        old="for place in np.flatnonzero(~certain):",
        new="for place in np.flatnonzero(~certain)[:0]:",
        tests=("tests/mechanisms/test_randomness.py",),
    ),
    Mutant(
        name="noise-takes-floats-for-exact",
        file="mechanisms/randomness.py",
        old="error = noise_std * (_quantile_error() * (1 + z) + 2 / p)",
        new="error = noise_std * 2 / p",
        tests=("tests/mechanisms/test_randomness.py",),
    ),
    Mutant(
        name="noise-forgets-the-bits-not-drawn",
        file="mechanisms/randomness.py",
        old="error = noise_std * (_quantile_error() * (1 + z) + 2 / p)",
        new="error = noise_std * _quantile_error() * (1 + z)",
        tests=("tests/mechanisms/test_randomness.py",),
    ),
    Mutant(
        name="noise-keeps-the-bits-of-the-process",
        file="mechanisms/randomness.py",
        old="return os.urandom(count)",
        new="return _MEMORY.bytes(count)\n\n\n_MEMORY = np.random.default_rng()",
        tests=("tests/mechanisms/test_randomness.py",),
    ),
    Mutant(
        name="gdp-adds-mu-by-the-largest",
        file="privacy/composition.py",
        old="squared_mu += cost.count * Fraction(cost.mu) ** 2",
        new="squared_mu = max(squared_mu, Fraction(cost.mu) ** 2)",
        tests=("tests/privacy/test_composition.py", "tests/privacy/test_ledger.py"),
    ),
    Mutant(
        name="gdp-conversion-forgets-the-second-term",
        file="privacy/tradeoff.py",
        old="_phi(half - middle) - _ball(epsilon).exp() * _phi(-half - middle)",
        new="_phi(half - middle) - 2 * _ball(epsilon).exp() * _phi(-half - middle)",
        tests=("tests/privacy/test_tradeoff.py",),
    ),
    Mutant(
        name="gdp-conversion-rounds-to-the-near-side",
        file="privacy/tradeoff.py",
        old="return math.nextafter(beyond, 0.0)",
        new="return beyond",
        tests=("tests/privacy/test_tradeoff.py",),
    ),
    Mutant(
        name="selection-claims-the-mu-of-half-its-range",
        file="privacy/tradeoff.py",
        old="-2 * _quantile(1 / (1 + (_ball(epsilon) / 2).exp()))",
        new="-2 * _quantile(1 / (1 + (_ball(epsilon) / 4).exp()))",
        tests=("tests/privacy/test_tradeoff.py",),
    ),
    Mutant(
        name="guess-follows-from-the-stated-cost-and-not-the-noise",
        file="privacy/guarantee.py",
        old="        if sampling is not None:\n            return sampled_gaussian_pairs(**sampling)\n",
        new="",
        tests=("tests/privacy/test_guarantee.py",),
    ),
    Mutant(
        name="sums-over-samples-claim-the-noise-of-more",
        file="privacy/guarantee.py",
        old="multiplier = (1 - 1e-9) * noise_std / release.sensitivity",
        new="multiplier = 1.1 * noise_std / release.sensitivity",
        tests=("tests/privacy/test_guarantee.py",),
    ),
    Mutant(
        name="epsilon-and-delta-buy-more-than-they-say",
        file="privacy/budgets.py",
        old="return PureDP(epsilon) if delta is None else ApproxDP(epsilon, delta)\n\n\ndef budget_from_dict",
        new="return PureDP(epsilon) if delta is None else ApproxDP(2 * epsilon, delta)\n\n\ndef budget_from_dict",
        tests=("tests/laws/test_spellings.py",),
        keyword="they_name",
    ),
    Mutant(
        name="epsilon-alone-is-pure-everywhere",
        file="privacy/budgets.py",
        old="if delta is None and not pure:",
        new="if False:",
        tests=("tests/laws/test_spellings.py",),
        keyword="epsilon_alone",
    ),
    Mutant(
        name="budget-and-epsilon-go-together",
        file="privacy/budgets.py",
        old="if epsilon is None and delta is None and isinstance(budget, Budget):",
        new="if isinstance(budget, Budget):",
        tests=("tests/laws/test_spellings.py",),
        keyword="refused_by_the_fit",
    ),
    Mutant(
        name="ledger-upgrade-changes-the-route",
        file="privacy/_storage.py",
        old="route = routes(budget_from_dict(json.loads(row.budget)))[-1]",
        new="route = routes(budget_from_dict(json.loads(row.budget)))[0]",
        tests=("tests/privacy/test_ledger.py",),
    ),
    Mutant(
        name="probe-leaves-the-size-out-of-the-sum",
        file="baselines/probe.py",
        old="if mechanism.size is not None:\n            releases.append(",
        new="if mechanism.size is None:\n            releases.append(",
        tests=("tests/laws/test_costs.py",),
        keyword="cost_the_budget",
    ),
    Mutant(
        name="finetune-lengthens-short-gradients",
        file="finetune/gradients.py",
        old="norm.clamp(min=self._clip)",
        new="norm",
        tests=("tests/finetune/test_gradients.py",),
    ),
    Mutant(
        name="finetune-trusts-the-rounding-of-norms",
        file="finetune/gradients.py",
        old="return [part.mul_(short) for part in rows]",
        new="return rows",
        tests=("tests/finetune/test_gradients.py",),
    ),
    Mutant(
        name="finetune-adds-what-fills-a-block",
        file="finetune/gradients.py",
        old="columns[: len(records)]",
        new="columns",
        tests=("tests/finetune/test_gradients.py",),
        keyword="moves_a_sum",
    ),
    Mutant(
        name="finetune-draws-noise-for-every-block",
        file="finetune/trainer.py",
        old="total += plan.gradients.sum(records[part], codes[part], self.augment)",
        new="total += plan.noise.release(plan.gradients.sum(records[part], codes[part], self.augment), self._source)",
        tests=("tests/finetune/test_trainer.py",),
        keyword="once_a_step",
    ),
    Mutant(
        name="finetune-takes-all-records",
        file="finetune/trainer.py",
        old="taken &= noise.sample(len(codes), self._source)",
        new="taken |= noise.sample(len(codes), self._source)",
        tests=("tests/finetune/test_trainer.py",),
        keyword="samples_are_fresh",
    ),
    Mutant(
        name="finetune-forgets-the-step-that-was-interrupted",
        file="finetune/trainer.py",
        old="file.write(state, step + 1)",
        new="file.write(state, step)",
        tests=("tests/finetune/test_trainer.py",),
        keyword="thirty_kills",
    ),
    Mutant(
        name="ledger-lets-a-step-begin-twice",
        file="privacy/ledger.py",
        old="if begun > step:",
        new="if begun > step + 1:",
        tests=("tests/privacy/test_ledger.py",),
        keyword="begins_once",
    ),
    Mutant(
        name="finetune-counts-no-steps-in-the-ledger",
        file="finetune/trainer.py",
        old="ledger.begin_step(state.entry, step)",
        new="pass",
        tests=("tests/finetune/test_trainer.py",),
        keyword="one_state",
    ),
    Mutant(
        name="finetune-loses-a-paid-run",
        file="finetune/trainer.py",
        old="if begun is not None and begun > state.begun:",
        new="if begun is not None and begun >= state.begun:",
        tests=("tests/finetune/test_trainer.py",),
        keyword="charged_once",
    ),
    Mutant(
        name="finetune-is-paid-by-the-charge-of-another",
        file="privacy/_storage.py",
        old="_RUNS.c.release_id == number, _RUNS.c.run == run",
        new="_RUNS.c.release_id == number",
        tests=("tests/privacy/test_ledger.py",),
        keyword="steps_are_those",
    ),
    Mutant(
        name="finetune-trusts-a-damaged-file",
        file="finetune/tensor_file.py",
        old="fields.pop(_DIGEST) == _digest(fields, tensors)",
        new="bool(fields.pop(_DIGEST))",
        tests=("tests/finetune/test_files.py",),
        keyword="mutations",
    ),
    Mutant(
        name="finetune-goes-on-before-the-first-step",
        file="finetune/checkpoint.py",
        old="type(begun) is not int or begun < 0 or",
        new="type(begun) is not int or",
        tests=("tests/finetune/test_files.py",),
        keyword="forged_checkpoints",
    ),
    Mutant(
        name="finetune-goes-on-from-another-run",
        file="finetune/checkpoint.py",
        old="name not in kept or kept[name] != value",
        new="name not in kept",
        tests=("tests/finetune/test_trainer.py",),
        keyword="other_runs",
    ),
    Mutant(
        name="finetune-makes-a-head-as-large-as-a-file-says",
        file="finetune/model_file.py",
        old="len(classes) * _width(model) > values.size",
        new="len(classes) > values.size",
        tests=("tests/finetune/test_files.py",),
        keyword="small_file",
    ),
    Mutant(
        name="finetune-takes-the-last-of-equal-weights",
        file="finetune/selection.py",
        old="[: count - int(taken.sum())]",
        new="[int(taken.sum()) - count :]",
        tests=("tests/finetune/test_sparse.py",),
        keyword="equal_weights",
    ),
    Mutant(
        name="finetune-takes-frozen-statistics-that-move",
        file="finetune/refusals.py",
        old="if layer.training and layer.track_running_stats:",
        new="if batch and layer.training and layer.track_running_stats:",
        tests=("tests/finetune/test_gradients.py",),
        keyword="are_refused",
    ),
    Mutant(
        name="film-repeats-the-noise-of-the-first-task",
        file="finetune/film.py",
        old="stream.seed_of(seed, n) if n and seed is not None else seed",
        new="seed",
        tests=("tests/finetune/test_film_ensemble.py",),
        keyword="noise_of_no_two",
    ),
    Mutant(
        name="film-lets-the-records-say-which-classes-a-task-may-hold",
        file="finetune/film.py",
        old="np.isin(np.arange(len(classes)), allowed)",
        new="np.isin(np.arange(len(classes)), codes())",
        tests=("tests/finetune/test_film_ensemble.py",),
        keyword="never_predicted",
    ),
    Mutant(
        name="film-takes-the-checkpoint-of-another-task",
        file="finetune/film.py",
        old='"set of earlier tasks": earlier,',
        new='"set of earlier tasks": None,',
        tests=("tests/finetune/test_film_ensemble.py",),
        keyword="checkpoint_is_of_one_task",
    ),
    Mutant(
        name="film-states-the-cost-of-one-task-for-all-that-overlap",
        file="finetune/film.py",
        old="stream.of_tasks(trainer.guarantee_, self._n_earlier + 1, self.tasks)",
        new="trainer.guarantee_",
        tests=("tests/finetune/test_film_ensemble.py",),
        keyword="tasks_that_overlap",
    ),
    Mutant(
        name="film-goes-on-from-the-weights-of-another-network",
        file="finetune/film.py",
        old='"module": model_file.module_digest(self.module),',
        new='"module": "",',
        tests=("tests/finetune/test_film_ensemble.py",),
        keyword="another_network",
    ),
    Mutant(
        name="film-charges-a-partition-where-tasks-overlap",
        file="finetune/film.py",
        old="stream.refuse_partition(partition, self.tasks)",
        new="pass",
        tests=("tests/finetune/test_film_ensemble.py",),
        keyword="tasks_that_overlap",
    ),
    Mutant(
        name="finetune-lets-a-model-file-choose-code",
        file="finetune/workflow.py",
        old="refuse_code(named.uri)",
        new="refuse_code(name)",
        tests=("tests/cli/test_cli_finetune.py",),
        keyword="choose_code",
    ),
    Mutant(
        name="training-lets-a-model-file-choose-code",
        file="training/classifier.py",
        old="refuse_code(named.uri)",
        new="refuse_code(model.encoder_)",
        tests=("tests/cli/test_cli_finetune.py",),
        keyword="choose_code",
    ),
    Mutant(
        name="finetune-takes-any-network",
        file="finetune/workflow.py",
        old="if not found.fingerprint.same_function(named):",
        new="if found.fingerprint.library != named.library:",
        tests=("tests/cli/test_cli_finetune.py",),
        keyword="another_network",
    ),
    Mutant(
        name="finetune-begins-anew-after-an-interruption",
        file="finetune/workflow.py",
        old="checkpoint=checkpoint if model.random_state is None else None",
        new="checkpoint=None",
        tests=("tests/cli/test_cli_finetune.py",),
        keyword="interrupted_command",
    ),
    Mutant(
        name="finetune-shows-less-than-it-spent",
        file="finetune/workflow.py",
        old="math.sqrt(steps / release.times)",
        new="(steps / release.times)",
        tests=("tests/finetune/test_networks.py",),
        keyword="full_batches",
    ),
    Mutant(
        name="projection-forgets-that-a-gradient-may-turn-around",
        file="prototypes/projected.py",
        old="Fraction((2 * EPISODE_STEPS) ** 2)",
        new="Fraction(EPISODE_STEPS**2)",
        tests=("tests/prototypes/test_projected.py",),
        keyword="turn_the_gradient",
    ),
    Mutant(
        name="projection-clips-no-episode",
        file="lattice/projection.py",
        old="min(1 - _CAUTION, largest * norm * unit / clip)",
        new="largest * norm * unit / clip",
        tests=("tests/lattice/test_projection.py",),
        keyword="clipping",
    ),
    Mutant(
        name="projection-trains-towards-exact-prototypes",
        file="prototypes/projected.py",
        old="transform(first.release(exact_sums, source))",
        new="transform(exact_sums)",
        tests=("tests/laws/test_costs.py",),
        keyword="every_draw_has_the_stated_width",
    ),
    Mutant(
        name="projection-counts-records-off-into-episodes",
        file="lattice/projection.py",
        old="self._keys = _keys(self._rows)",
        new="self._keys = np.arange(len(self._rows), 0, -1).astype(np.uint64)",
        tests=("tests/lattice/test_projection.py",),
        keyword="records_alone",
    ),
    Mutant(
        name="projection-forgets-the-offsets",
        file="lattice/projection.py",
        old="direction -= (self._projected * constant)",
        new="direction -= 0 * (self._projected * constant)",
        tests=("tests/lattice/test_projection.py",),
        keyword="chained",
    ),
    Mutant(
        name="adamix-ignores-replacement",
        file="baselines/adamix.py",
        old='(4 if self.adjacency == "replace-one" else 1)',
        new="1",
        tests=("tests/baselines/test_adamix.py",),
    ),
    Mutant(
        name="adamix-clips-at-the-start-alone",
        file="baselines/adamix.py",
        old="            residuals = _residuals(features, examples.codes, descent.coef)\n            clip",
        new="            clip",
        tests=("tests/baselines/test_adamix.py",),
    ),
    Mutant(
        name="adamix-projects-on-rows-of-equal-length",
        file="baselines/adamix.py",
        old="np.linalg.svd(norms * features,",
        new="np.linalg.svd((norms > 0) * features,",
        tests=("tests/baselines/test_adamix.py",),
    ),
    Mutant(
        name="adamix-projects-nothing",
        file="baselines/adamix.py",
        old="return np.asarray(gradient @ axes.T @ axes)",
        new="return gradient",
        tests=("tests/baselines/test_adamix.py",),
    ),
    Mutant(
        name="adamix-starts-from-zero",
        file="baselines/adamix.py",
        old="        descent.coef = start\n",
        new="",
        tests=("tests/baselines/test_adamix.py",),
    ),
    Mutant(
        name="continual-repeats-the-noise-of-the-first-task",
        file="continual/_stream.py",
        old="source = randomness(seed_of(self.random_state, task.earlier.n_tasks_))",
        new="source = randomness(self.random_state)",
        tests=("tests/laws/test_streams.py",),
    ),
    Mutant(
        name="continual-forgets-that-an-earlier-task-was-seeded",
        file="continual/_stream.py",
        old="fit_for_release=earlier.fit_for_release and later.fit_for_release",
        new="fit_for_release=later.fit_for_release",
        tests=("tests/laws/test_streams.py",),
    ),
    Mutant(
        name="continual-states-one-of-several-overlapping-tasks",
        file="continual/_stream.py",
        old='if tasks == "disjoint" or n_tasks == 1:',
        new="if True:",
        tests=("tests/continual/test_overlapping.py",),
    ),
    Mutant(
        name="continual-lets-overlapping-tasks-be-parts",
        file="continual/_stream.py",
        old="if partition is not None and tasks ==",
        new="if False and tasks ==",
        tests=("tests/continual/test_overlapping.py",),
    ),
    Mutant(
        name="continual-forgets-the-column-norm",
        file="continual/prototypes.py",
        old='growth = 1 if self.noise == "independent" else self._factor.squared_norm',
        new='growth = 1 if self.noise == "independent" else self._factor.rows[0].own ** 2',
        tests=("tests/continual/test_noise.py",),
    ),
    Mutant(
        name="continual-takes-the-norm-of-the-last-column",
        file="continual/_factors.py",
        old="max(accumulate(steps))",
        new="list(accumulate(steps))[-2]",
        tests=("tests/continual/test_noise.py",),
    ),
    Mutant(
        name="continual-decodes-with-true-sums",
        file="continual/_state.py",
        old="np.tensordot(row.weights.astype(np.float64), self.noisy, axes=1)",
        new="np.tensordot(row.weights.astype(np.float64), self.exact, axes=1)",
        tests=("tests/continual/test_noise.py",),
    ),
    Mutant(
        name="continual-lets-everybody-read-the-state",
        file="continual/_state.py",
        old="overwrite=self.sums is not None, private=True",
        new="overwrite=self.sums is not None",
        tests=("tests/continual/test_noise.py",),
    ),
    Mutant(
        name="continual-goes-on-from-any-state",
        file="continual/_state.py",
        old='if description["model"] == expected:',
        new="if True:",
        tests=("tests/continual/test_noise.py",),
    ),
    Mutant(
        name="continual-forgets-nothing-but-the-number",
        file="continual/prototypes.py",
        old="later.released_ = later.kept_.together()",
        new="pass",
        tests=("tests/continual/test_forget.py",),
    ),
    Mutant(
        name="continual-learns-in-place",
        file="continual/_stream.py",
        old="later = copy.copy(earlier or self)",
        new="later = self",
        tests=("tests/laws/test_streams.py",),
    ),
    Mutant(
        name="ensemble-speaks-for-the-classes-that-occur",
        file="continual/ensemble.py",
        old="np.isin(np.arange(len(self.classes_)), task.allowed)",
        new="np.isin(np.arange(len(self.classes_)), codes)",
        tests=("tests/laws/test_streams.py",),
    ),
    Mutant(
        name="ensemble-releases-weights-of-the-classes-that-occur",
        file="continual/ensemble.py",
        old='_with_one_more(task, "coef_", head.coef_)',
        new='_with_one_more(task, "coef_", np.isin(np.arange(len(self.classes_)), codes)[:, None] * head.coef_)',
        tests=("tests/laws/test_streams.py",),
    ),
    Mutant(
        name="one-probe-speaks-for-the-classes-that-occur",
        file="continual/_probe.py",
        old="np.isin(np.arange(len(self.classes_)), task.allowed)",
        new="np.isin(np.arange(len(self.classes_)), codes)",
        tests=("tests/laws/test_streams.py",),
    ),
    Mutant(
        name="naive-continual-starts-anew",
        file="continual/naive.py",
        old="descent.coef, descent.intercept = self._task.earlier.coef_, self._task.earlier.intercept_",
        new="pass",
        tests=("tests/continual/test_heads.py",),
    ),
    Mutant(
        name="all-data-pays-for-one-task",
        file="continual/full_data.py",
        old='tasks = "overlapping"',
        new='tasks = "disjoint"',
        tests=("tests/continual/test_heads.py", "tests/laws/test_streams.py"),
    ),
    Mutant(
        name="discriminant-divides-noise-by-next-to-nothing",
        file="continual/_discriminant.py",
        old="trust * exists * noise",
        new="trust * noise",
        tests=("tests/continual/test_discriminant.py",),
    ),
    Mutant(
        name="weighted-sums-of-another-scale",
        file="continual/_sums.py",
        old=" * (weight / squares)[:, None]",
        new="",
        tests=("tests/continual/test_discriminant.py",),
    ),
    Mutant(
        name="continual-keeps-the-evidence-of-noise",
        file="continual/_presence.py",
        old="np.log(x)) - 1)",
        new="np.log(x)) - 0)",
        tests=("tests/continual/test_continual.py",),
    ),
    Mutant(
        name="exponential-spends-twice-epsilon",
        file="mechanisms/exponential.py",
        old="rate = Fraction(epsilon) / sensitivity",
        new="rate = 2 * Fraction(epsilon) / sensitivity",
        tests=("tests/mechanisms/test_exponential.py",),
    ),
    Mutant(
        # So many sets DPPL-v1's released code counts: binom(rank, K) a rank, from 0.
        name="exponential-counts-sets-as-published",
        file="mechanisms/exponential.py",
        old="combinations = [math.comb(end, size) for end in ends]",
        new="combinations = [math.comb(end, size + 1) for end in ends]",
        tests=("tests/mechanisms/test_exponential.py",),
        keyword="set_has_the_exact_law",
    ),
    Mutant(
        name="exponential-accepts-every-proposal",
        file="mechanisms/exponential.py",
        old="if proposal.sure or proposal.is_accepted())",
        new="if proposal.sure or True)",
        tests=("tests/mechanisms/test_exponential.py",),
    ),
    Mutant(
        name="exponential-accepts-by-any-member",
        file="mechanisms/exponential.py",
        old="for pick in self.picks[: self.n_worst])",
        new="for pick in self.picks[:1])",
        tests=("tests/mechanisms/test_exponential.py",),
    ),
    Mutant(
        name="exponential-proposes-below-the-weight",
        file="mechanisms/exponential.py",
        old="((stratum.highest + 1) << scale.shift) - 1",
        new="stratum.highest << scale.shift",
        tests=("tests/mechanisms/test_exponential.py",),
        keyword="enumeration",
    ),
    Mutant(
        name="exponential-is-sure-too-early",
        file="mechanisms/exponential.py",
        old="self.exponent(stratum.lowest << self.scale.shift)",
        new="self.exponent((stratum.lowest + 1) << self.scale.shift)",
        tests=("tests/mechanisms/test_exponential.py",),
    ),
    Mutant(
        name="tally-forgets-how-far-parts-lie-apart",
        file="mechanisms/tally.py",
        old="fall = np.minimum(last - self.best[:, -1:], width)",
        new="fall = 0 * np.minimum(last - self.best[:, -1:], width)",
        tests=("tests/mechanisms/test_tally.py",),
    ),
    Mutant(
        name="tally-forgets-the-best-of-parts",
        file="mechanisms/tally.py",
        old="& (self.best <= last)",
        new="& (self.best > last)",
        tests=("tests/mechanisms/test_tally.py",),
    ),
    Mutant(
        name="public-tallies-damaged-rows",
        file="prototypes/public.py",
        old="few if usable.all() else few[:, usable]",
        new="few",
        tests=("tests/prototypes/test_public.py",),
        keyword="damaged",
    ),
    Mutant(
        name="coinpress-forgets-the-replaced-row",
        file="mechanisms/coinpress.py",
        old="RoundedGaussian.within(each, 4 * bound)",
        new="RoundedGaussian.within(each, bound)",
        tests=("tests/mechanisms/test_coinpress.py",),
    ),
    Mutant(
        name="coinpress-clips-nothing",
        file="mechanisms/coinpress.py",
        old="near = round_within(rows[start : start + _BLOCK] - center, bound)",
        new="near = rows[start : start + _BLOCK] - center",
        tests=("tests/mechanisms/test_coinpress.py",),
    ),
    Mutant(
        name="mean-forgets-the-replaced-row",
        file="prototypes/mean.py",
        old="lattice.squared_norm * (4 if replaces else 1)",
        new="lattice.squared_norm * (1 if replaces else 1)",
        tests=("tests/prototypes/test_mean.py",),
        keyword="replace_one",
    ),
    Mutant(
        name="mean-divides-by-private-counts",
        file="prototypes/mean.py",
        old='sums / self._public_sizes(records)[:, None] if self.adjacency == "replace-one" else sums',
        new="sums / self._public_sizes(records)[:, None]",
        tests=("tests/laws/test_replay.py",),
        keyword="with_the_same_noise",
    ),
    Mutant(
        name="public-selects-too-sharply-under-replace-one",
        file="mechanisms/exponential.py",
        old='epsilon=epsilon if adjacency == "add-remove" else epsilon / 2,',
        new="epsilon=epsilon,",
        tests=("tests/prototypes/test_public.py",),
        keyword="replace_one",
    ),
    Mutant(
        name="rounding-leaves-the-ball",
        file="lattice/rounding.py",
        old="while over.size:",
        new="while False:",
        tests=("tests/lattice/test_lattice.py",),
    ),
    Mutant(
        name="lattice-norm-bound-is-doubled",
        file="lattice/lattice.py",
        old="self.squared_norm = Fraction(LARGEST**2 * self.dim, 16)",
        new="self.squared_norm = Fraction(LARGEST**2 * self.dim, 8)",
        tests=("tests/lattice/test_lattice.py",),
    ),
    Mutant(
        name="lattice-subtracts-the-mean-of-the-block",
        file="lattice/lattice.py",
        old="u = _unit(block, spare)\n",
        new="u = _unit(block) - _unit(block).mean(axis=0)\n",
        tests=("tests/lattice/test_lattice.py",),
    ),
    Mutant(
        name="kernels-add-too-many-rows-in-float32",
        file="lattice/kernels.py",
        old="np.float32: 2**24,",
        new="np.float32: 2**26,",
        tests=("tests/lattice/test_kernels.py",),
    ),
    Mutant(
        name="kernels-add-too-many-rows-in-int32",
        file="lattice/kernels.py",
        old="np.int32: 2**31 - 1}",
        new="np.int32: 2**33 - 1}",
        tests=("tests/lattice/test_int8.py",),
    ),
    Mutant(
        name="int8-kernels-are-believed",
        file="lattice/int8.py",
        old="all(map(_is_exact, _SHAPES)) and ",
        new="",
        tests=("tests/lattice/test_int8.py",),
    ),
    Mutant(
        name="int8-kernels-that-do-nothing-are-believed",
        file="lattice/int8.py",
        old="        if out[-1, -1] == last:\n            return out\n",
        new="        return out\n",
        tests=("tests/lattice/test_int8.py",),
        keyword="without_a_word",
    ),
    Mutant(
        name="overlapping-fits-leave-blas-with-one-thread",
        file="lattice/threads.py",
        old="            if not self._inside:\n                self._outside",
        new="            if True:\n                self._outside",
        tests=("tests/lattice/test_threads.py",),
        keyword="overlapping",
    ),
    Mutant(
        name="kernels-forget-the-lower-clip",
        file="lattice/kernels.py",
        old="return self.high >= lattice.squared_norm and self.low <= -lattice.squared_norm",
        new="return self.high >= lattice.squared_norm",
        tests=("tests/lattice/test_kernels.py",),
    ),
    Mutant(
        name="composition-rounds-to-nearest",
        file="privacy/composition.py",
        old="round_up(float(exact), lambda value: value >= exact)",
        new="float(exact)",
        tests=("tests/privacy/test_composition.py",),
    ),
    Mutant(
        name="conversion-without-margin",
        file="privacy/accounting.py",
        old="return max(epsilon * (1 + _MARGIN), _MARGIN)",
        new="return max(epsilon, _MARGIN)",
        tests=("tests/privacy/test_budgets.py",),
    ),
    Mutant(
        name="conversion-keeps-what-the-search-found",
        file="privacy/accounting.py",
        old="while epsilon_of_zcdp(rho, delta) > epsilon:",
        new="while False:",
        tests=("tests/privacy/test_budgets.py",),
    ),
    Mutant(
        name="records-give-all-labels-one-type",
        file="estimators/reading.py",
        old='labels = np.asarray(y) if hasattr(y, "dtype") or hasattr(y, "__array__") else _as_objects(y, names[1])',
        new="labels = np.asarray(y)",
        tests=("tests/laws/test_labels.py",),
        keyword="odd_label",
    ),
    Mutant(
        name="records-that-cannot-be-used-count",
        file="estimators/reading.py",
        old="codes[kept] = class_codes(y[kept], classes, unknown_labels)",
        new='codes[:] = class_codes(y, classes, "ignore")',
        tests=("tests/laws/test_unusable.py",),
        keyword="never_there",
    ),
    Mutant(
        name="records-that-cannot-be-used-change-a-public-number",
        file="estimators/reading.py",
        old='if adjacency == "replace-one":\n        return class_codes',
        new='if adjacency == "both":\n        return class_codes',
        tests=("tests/laws/test_unusable.py",),
        keyword="replace_one",
    ),
    Mutant(
        name="search-scores-records-that-cannot-be-used",
        file="estimators/search.py",
        old="codes = reading.codes_of_records(rows, labels, classes, unknown, adjacency)",
        new='codes = reading.class_codes(labels, classes, "ignore")',
        tests=("tests/laws/test_unusable.py",),
        keyword="search",
    ),
    Mutant(
        name="verdicts-of-other-kernels-are-believed",
        file="encoders/verdicts.py",
        old='"bits": hashlib.sha256(rows.tobytes()).hexdigest()',
        new='"bits": ""',
        tests=("tests/encoders/test_fixed.py",),
        keyword="choice_of_kernels",
    ),
    Mutant(
        name="records-show-the-unknown-label",
        file="estimators/reading.py",
        old="classes, but at least one is not.",
        new="classes, but {y[codes < 0][0]} is not.",
        tests=("tests/laws/test_labels.py",),
        keyword="unknown_label_is_not_shown",
    ),
    Mutant(
        name="guarantee-forgets-the-seed",
        file="estimators/base.py",
        old="fit_for_release=randomness(self.random_state).fit_for_release,",
        new="fit_for_release=True,",
        tests=("tests/laws/test_files.py",),
        keyword="fit_for_release",
    ),
    Mutant(
        name="model-file-keeps-the-seed",
        file="estimators/model_file.py",
        old='"coinpress_center", "random_state"}',
        new='"coinpress_center"}',
        tests=("tests/laws/test_files.py",),
        keyword="loaded_model",
    ),
    Mutant(
        name="persons-are-not-reduced",
        file="estimators/base.py",
        old="if plan.guarantee.releases and ids is not None:",
        new="if False:",
        tests=("tests/laws/test_persons.py",),
        keyword="moves_releases",
    ),
    Mutant(
        name="records-of-a-person-weigh-as-if-orthogonal",
        file="estimators/whole_persons.py",
        old="    fourth = int(np.square(products).sum())\n",
        new="    fourth = int(np.square(products.diagonal()).sum())\n",
        tests=("tests/estimators/test_whole_persons.py",),
        keyword="longer_than_a_record",
    ),
    Mutant(
        name="records-of-a-person-all-have-the-weight-of-their-class",
        file="estimators/whole_persons.py",
        old="weights[self.codes] // each[self.numbers]",
        new="weights[self.codes]",
        tests=("tests/laws/test_persons.py",),
        keyword="moves_releases",
    ),
    Mutant(
        name="weights-of-records-are-left-out-of-gradients",
        file="estimators/sums.py",
        old="None if self.persons is None else self.persons.gradient_weights(blocks, lattice)",
        new="None",
        tests=("tests/laws/test_persons.py",),
        keyword="moves_releases",
    ),
    Mutant(
        name="persons-of-a-search-are-split",
        file="estimators/search.py",
        old="            if ids is not None:\n",
        new="            if False:\n",
        tests=("tests/laws/test_persons.py",),
        keyword="one_coin",
    ),
    Mutant(
        name="persons-count-in-every-class",
        file="estimators/persons.py",
        old="chosen[ranked[rank < max_classes]] = True",
        new="chosen[ranked] = True",
        tests=("tests/laws/test_persons.py",),
        keyword="moves_releases",
    ),
    Mutant(
        name="persons-of-several-classes-add-up-as-if-apart",
        file="privacy/group.py",
        old="squared = _HEAD_ROOM * (n_rows if apart else n_rows**2)",
        new="squared = _HEAD_ROOM * n_rows",
        tests=("tests/laws/test_persons.py",),
        keyword="several_classes_moves",
    ),
    Mutant(
        name="persons-of-several-classes-cost-more-than-the-budget-by-rounding",
        file="privacy/group.py",
        old="_HEAD_ROOM = 1 + Fraction(1, 2**48)",
        new="_HEAD_ROOM = Fraction(1)",
        tests=("tests/privacy/test_group.py",),
    ),
    Mutant(
        name="weights-of-persons-take-memory-for-every-pair-of-records",
        file="estimators/whole_persons.py",
        old="products = wide.T @ wide if m > len(wide.T) else wide @ wide.T",
        new="products = wide @ wide.T",
        tests=("tests/estimators/test_whole_persons.py",),
        keyword="every_pair",
    ),
    Mutant(
        name="persons-of-several-classes-state-the-cost-of-one",
        file="privacy/group.py",
        old="        return replace(release, sensitivity=math.sqrt(squared) * release.sensitivity, cost=cost)",
        new="        return release",
        tests=("tests/laws/test_persons.py",),
        keyword="several_classes_moves",
    ),
    Mutant(
        name="selections-for-several-classes-share-no-budget",
        file="privacy/group.py",
        old="return PureDP(float_below(Fraction(as_typed(budget.epsilon)) / n_rows))",
        new="return PureDP(budget.epsilon)",
        tests=("tests/laws/test_persons.py",),
        keyword="selections_for_several",
    ),
    Mutant(
        name="persons-choose-the-last-of-several-classes",
        file="estimators/persons.py",
        old="ranked = np.lexsort((codes, -counts, persons))",
        new="ranked = np.lexsort((-codes, -counts, persons))",
        tests=("tests/laws/test_persons.py",),
        keyword="first_of_several",
    ),
    Mutant(
        name="persons-count-in-classes-that-others-choose",
        file="estimators/persons.py",
        old="ranked = np.lexsort((codes, -counts, persons))",
        new="ranked = np.lexsort((codes, -np.bincount(codes, counts, 1)[codes], persons))",
        tests=("tests/estimators/test_person_rows.py",),
        keyword="plain_integers",
    ),
    Mutant(
        name="persons-are-capped-after-the-sum",
        file="estimators/persons.py",
        old="classes, counts, order = classes_of_persons(codes[counted], persons[counted], n_classes, max_classes)",
        new="classes = classes_of_persons(codes[counted], persons[counted], n_classes)[0]\n"
        "    _, counts, order = classes_of_persons(0 * codes[counted], persons[counted], 1)",
        tests=("tests/estimators/test_person_rows.py",),
        keyword="plain_integers",
    ),
    Mutant(
        name="persons-of-many-records-lose-the-start",
        file="estimators/persons.py",
        old="sums[begun] += held.taken(here[begun])",
        new="held.taken(here[begun])",
        tests=("tests/laws/test_persons.py",),
        keyword="keeps_its_direction",
    ),
    Mutant(
        name="persons-of-many-records-overflow",
        file="estimators/persons.py",
        old="np.min_scalar_type(-LARGEST * int(counts.max(initial=1)))",
        new="np.int16",
        tests=("tests/estimators/test_person_rows.py",),
        keyword="stay_exact",
    ),
    Mutant(
        name="persons-are-shrunk-before-their-last-row",
        file="estimators/persons.py",
        old="last[here] >= stop",
        new="last[here] >= stop + 1",
        tests=("tests/estimators/test_person_rows.py",),
        keyword="plain_integers",
    ),
    Mutant(
        name="persons-are-cut-off-where-sums-are-long",
        file="estimators/persons.py",
        old="    out[long] = lattice.transform(sums[long])\n",
        new="",
        tests=("tests/laws/test_persons.py",),
        keyword="keeps_its_direction",
    ),
    Mutant(
        name="sorted-tables-are-for-everyone",
        file="embedding/sorting.py",
        old="atomic_file(target, overwrite=True, private=True)",
        new="atomic_file(target, overwrite=True)",
        tests=("tests/embedding/test_sorting.py",),
        keyword="only_the_owner",
    ),
    Mutant(
        name="sorting-leaves-its-parts-behind",
        file="embedding/sorting.py",
        old="tempfile.TemporaryFile(dir=target.parent)",
        new="tempfile.NamedTemporaryFile(dir=target.parent)",
        tests=("tests/embedding/test_sorting.py",),
        keyword="killed",
    ),
    Mutant(
        name="sorting-quotes-what-it-cannot-read",
        file="embedding/sorting.py",
        old="        with converting(promise, _HINT):\n            batch = next(batches, None)\n",
        new="        if True:\n            batch = next(batches, None)\n",
        tests=("tests/embedding/test_sorting.py",),
        keyword="damaged",
    ),
    Mutant(
        name="persons-with-ids-of-other-types-are-one",
        file="estimators/persons.py",
        old="reading._key(one) if type(one) in (str, int, float) else one",
        new="reading._key(one)",
        tests=("tests/laws/test_persons.py",),
        keyword="apart",
    ),
    Mutant(
        name="persons-with-long-ids-are-one-beside-a-null",
        file="estimators/persons.py",
        old="        groups = _items(groups)\n",
        new="        pass\n",
        tests=("tests/laws/test_persons.py",),
        keyword="apart",
    ),
    Mutant(
        name="costs-to-records-and-persons-add",
        file="privacy/composition.py",
        old="if len(units) > 1:",
        new="if False:",
        tests=("tests/privacy/test_composition.py",),
        keyword="records_and_to_persons",
    ),
    Mutant(
        name="persons-without-an-id-are-one",
        file="estimators/persons.py",
        old="    if missing:\n        return object()\n",
        new="    if missing:\n        return None\n",
        tests=("tests/laws/test_persons.py",),
        keyword="one_by_one",
    ),
    Mutant(
        name="persons-by-identity-are-apart",
        file="estimators/persons.py",
        old='if getattr(type(one), "__hash__", None) in (None, object.__hash__):',
        new="if False:",
        tests=("tests/laws/test_persons.py",),
        keyword="errors_show_no_id",
    ),
    Mutant(
        name="persons-are-shown-by-the-error-of-their-id",
        file="estimators/persons.py",
        old="    codes = None\n    with suppress(Exception):",
        new="    codes = None\n    with suppress(TypeError):",
        tests=("tests/laws/test_persons.py",),
        keyword="errors_show_no_id",
    ),
    Mutant(
        name="persons-are-promised-under-replace-one",
        file="estimators/persons.py",
        old='if guarantee.adjacency != "add-remove":',
        new="if False:",
        tests=("tests/laws/test_persons.py",),
        keyword="refused",
    ),
    Mutant(
        name="persons-are-on-both-sides-of-a-split",
        file="experiments/splits.py",
        old="    if groups is not None:\n",
        new="    if False:\n",
        tests=("tests/experiments/test_bench_cells.py",),
        keyword="validation_split",
    ),
    Mutant(
        name="persons-of-a-long-tail-are-torn",
        file="data/longtail.py",
        old="    if groups is None:\n",
        new="    if True:\n",
        tests=("tests/data/test_longtail.py",),
        keyword="whole",
    ),
    Mutant(
        name="persons-of-examples-stay-private",
        file="experiments/datasets.py",
        old="drawn if self.groups is None else",
        new="drawn if True else",
        tests=("tests/experiments/test_bench_persons.py",),
        keyword="examples",
    ),
    Mutant(
        name="persons-of-an-experiment-are-not-protected",
        file="experiments/cells.py",
        old="if cell.unit == PERSON and method.private else {}",
        new="if False else {}",
        tests=("tests/experiments/test_bench_persons.py",),
        keyword="whom_it_protects",
    ),
    Mutant(
        name="promises-to-records-and-persons-share-a-line",
        file="experiments/series.py",
        old="private and len(units) > 1",
        new="private and len(units) > 2",
        tests=("tests/experiments/test_bench_persons.py",),
        keyword="which_is_which",
    ),
    Mutant(
        name="promises-to-records-and-persons-share-a-table",
        file="experiments/series.py",
        old="(dataset_name(result[",
        new="(population_name(result[",
        tests=("tests/experiments/test_bench_persons.py",),
        keyword="promises_apart",
    ),
    Mutant(
        name="audits-of-persons-see-one-class",
        file="audit/canaries.py",
        old="        canary = replace(canary, statistic=statistic)\n",
        new="        pass\n",
        tests=("tests/audit/test_persons.py",),
        keyword="planted",
    ),
    Mutant(
        name="audits-of-persons-give-no-ids",
        file="audit/audit.py",
        old=".fit(rows.view(), labels, **data.public, **groups)",
        new=".fit(rows.view(), labels, **data.public)",
        tests=("tests/audit/test_persons.py",),
        keyword="what_was_promised",
    ),
    Mutant(
        name="persons-weigh-by-their-records",
        file="experiments/metrics.py",
        old="np.bincount(persons, truth == predicted) / np.bincount(persons)",
        new="(truth == predicted)[persons >= 0] * 1.0",
        tests=("tests/experiments/test_metrics.py",),
        keyword="counts_once",
    ),
    Mutant(
        name="ledger-adds-records-to-persons",
        file="privacy/_account.py",
        old="if unit != self.unit:",
        new="if False:",
        tests=("tests/privacy/test_ledger.py",),
        keyword="unit_alone",
    ),
    Mutant(
        name="ids-that-cannot-be-decoded-are-one",
        file="data/person_ids.py",
        old='one.decode("utf-8", "surrogateescape")',
        new='one.decode("utf-8", "replace")',
        tests=("tests/cli/test_cli_persons.py",),
        keyword="as_they_are",
    ),
    Mutant(
        name="check-plans-records-in-place-of-persons",
        file="cli/check.py",
        old='entry.get("persons", entry["n"])',
        new='entry["n"]',
        tests=("tests/cli/test_cli_persons.py",),
        keyword="as_a_fit_does",
    ),
    Mutant(
        name="check-keeps-one-class-of-a-person",
        file="cli/_persons_check.py",
        old="classes_of_persons(codes, persons, n_classes, k)",
        new="classes_of_persons(codes, persons, n_classes)",
        tests=("tests/cli/test_cli_persons.py",),
        keyword="k_classes",
    ),
    Mutant(
        name="check-says-that-gradients-cost-what-sums-do",
        file="cli/_persons_check.py",
        old='"gradients_and_others": float(k)',
        new='"gradients_and_others": sqrt(k)',
        tests=("tests/cli/test_cli_persons.py",),
        keyword="k_classes",
    ),
    Mutant(
        name="train-forgets-persons",
        file="training/workflow.py",
        old="of_persons = source.person_type is not None",
        new="of_persons = False",
        tests=("tests/cli/test_cli_persons.py",),
        keyword="embed_and_fit",
    ),
    Mutant(
        name="train-refuses-several-classes-without-persons-too-late",
        file="training/workflow.py",
        old="ids_of_fit([] if of_persons else None, np.empty((0, 1)), max_classes_per_person)",
        new="pass",
        tests=("tests/cli/test_cli_persons.py",),
        keyword="several_classes",
    ),
    Mutant(
        name="train-asks-the-ledger-for-records-in-place-of-persons",
        file="training/workflow.py",
        old="plan.guarantee_on(None, () if of_persons else None)",
        new="plan.guarantee_on(None)",
        tests=("tests/cli/test_cli_persons.py",),
        keyword="no_id",
    ),
    Mutant(
        name="a-model-keeps-the-column-of-persons",
        file="training/workflow.py",
        old="asdict(replace(columns or Columns(), person=None))",
        new="asdict(columns or Columns())",
        tests=("tests/cli/test_cli_persons.py",),
        keyword="no_id",
    ),
    Mutant(
        name="persons-of-a-source-change-unnoticed",
        file="embedding/pipeline.py",
        old="seen += repr(record.person)",
        new="pass",
        tests=("tests/embedding/test_persons.py",),
        keyword="changed",
    ),
    Mutant(
        name="persons-who-come-after-a-record-left-out-are-others",
        file="embedding/pipeline.py",
        old="                found.persons.append(item.person)\n",
        new="                found.persons.append(window[len(found.persons)].person)\n",
        tests=("tests/embedding/test_persons.py",),
        keyword="stay_with_their_records",
    ),
    Mutant(
        name="the-list-of-what-is-left-out-names-persons",
        file="embedding/pipeline.py",
        old="LeftOut(item.id, item.reference, item.reason)",
        new="LeftOut(item.id, str(item.person), item.reason)",
        tests=("tests/cli/test_cli_persons.py",),
        keyword="no_id",
    ),
    Mutant(
        name="an-id-that-is-not-utf-8-is-shown-by-its-error",
        file="embedding/records.py",
        old="if isinstance(person, str):",
        new="if False:",
        tests=("tests/embedding/test_persons.py",),
        keyword="not_utf_8",
    ),
    Mutant(
        name="json-lines-without-the-field-are-a-person-each",
        file="embedding/lines.py",
        old='            raise Unusable("it has no field for the id of its person")\n',
        new="            return None\n",
        tests=("tests/embedding/test_persons.py",),
        keyword="json",
    ),
    Mutant(
        name="ids-of-records-pass-for-those-of-persons",
        file="data/person_ids.py",
        old="if name in (_ID, _REFERENCE) and {_ID, _REFERENCE} <= set(names):",
        new="if False:",
        tests=("tests/cli/test_cli_persons.py",),
        keyword="ids_of_records",
    ),
    Mutant(
        name="a-converted-table-loses-persons",
        file="embedding/convert.py",
        old='"reference": "reference", PERSON: PERSON}',
        new='"reference": "reference"}',
        tests=("tests/embedding/test_persons.py",),
        keyword="converted",
    ),
    Mutant(
        name="fit-charges-nothing",
        file="estimators/base.py",
        old="guarantee, charge = self._charge(guarantee, ledger, partition)",
        new="charge = None",
        tests=("tests/laws/test_charge.py",),
        keyword="dies",
    ),
    Mutant(
        name="engines-are-tried-after-the-charge",
        file="estimators/base.py",
        old="        engine.check()\n",
        new="",
        tests=("tests/test_engines.py",),
        keyword="missing_ray",
    ),
    Mutant(
        name="nobody-is-told-that-the-cluster-is-trusted",
        file="estimators/base.py",
        old="if engine.assumption is not None and guarantee.releases:",
        new="if False:",
        tests=("tests/test_engines.py",),
        keyword="says_who_saw",
    ),
    Mutant(
        name="threads-map-blocks-that-have-become-others",
        file="lattice/lattice.py",
        old="block.copy() if block.flags.writeable else block for block in blocks",
        new="block for block in blocks",
        tests=("tests/lattice/test_threads.py",),
        keyword="memory_again",
    ),
    Mutant(
        name="a-file-of-two-names-counts-twice",
        file="data/_places.py",
        old="if len(set(seen)) < len(seen):",
        new="if False:",
        tests=("tests/data/test_pools.py",),
        keyword="of_two_names",
    ),
    Mutant(
        name="a-part-that-an-engine-yields-twice-counts-twice",
        file="estimators/sums.py",
        old="        if place not in missing:",
        new="        missing.add(place)\n        if False:",
        tests=("tests/test_engines.py",),
        keyword="counts_a_part_twice",
    ),
    Mutant(
        name="a-selection-looks-at-another-pool-again",
        file="prototypes/public.py",
        old="if any(hashes.found[part].digest() != before[part] for part in wanted):",
        new="if False:",
        tests=("tests/prototypes/test_public.py",),
        keyword="second_look",
    ),
    Mutant(
        name="passwords-with-a-slash-are-shown",
        file="data/_places.py",
        old="if _SECRET.match(rest):",
        new="if False:",
        tests=("tests/data/test_pools.py",),
        keyword="form_of_a_password",
    ),
    Mutant(
        name="a-selection-is-by-the-first-part",
        file="estimators/sums.py",
        old="held = [read(part) for part in parts]",
        new="held = [read(part) for part in parts[:1]]",
        tests=("tests/test_engines.py",),
        keyword="no_selection_depends_on_the_parts",
    ),
    Mutant(
        name="positions-are-those-within-a-piece",
        file="prototypes/public.py",
        old="positions + self._first_rows[place]",
        new="positions",
        tests=("tests/test_engines.py",),
        keyword="no_selection_depends_on_the_parts",
    ),
    Mutant(
        name="what-is-not-sought-is-counted-away",
        file="mechanisms/exponential.py",
        old="sought |= (own >= lowest) & (own <= highest)",
        new="sought |= (own > lowest) & (own <= highest)",
        tests=("tests/test_engines.py",),
        keyword="no_selection_depends_on_the_parts",
    ),
    Mutant(
        name="labels-of-a-cut-are-the-first-of-its-file",
        file="data/_npy.py",
        old="found[self.start : self.start + self.rows]",
        new="found[: self.rows]",
        tests=("tests/test_engines.py",),
        keyword="labels_beside_them_are_cut",
    ),
    Mutant(
        name="the-rows-of-an-archive-travel",
        file="data/parts.py",
        old='_by_path(outline, place, x) if place.suffix == ".npz" else outline.fragments(rows)',
        new="outline.fragments(rows)",
        tests=("tests/test_engines.py",),
        keyword="travels_as_a_path",
    ),
    Mutant(
        name="rows-one-after-another-are-spread",
        file="estimators/base.py",
        old="if not self._sums_alone:",
        new="if False:",
        tests=("tests/test_engines.py",),
        keyword="cannot_be_spread",
    ),
    Mutant(
        name="the-last-part-is-all",
        file="estimators/sums.py",
        old="tuple(a + b for a, b in zip(total, of_part, strict=True))",
        new="of_part",
        tests=("tests/test_engines.py",),
        keyword="no_bit",
    ),
    Mutant(
        name="rows-of-an-earlier-fit-are-kept",
        file="estimators/sums.py",
        old="field(default_factory=lambda: uuid4().hex, init=False, repr=False)",
        new="field(default='one', init=False, repr=False)",
        tests=("tests/test_engines.py",),
        keyword="no_other_fit",
    ),
    Mutant(
        name="tasks-quote-other-libraries",
        file="engines.py",
        old='f"a task stopped with {type(error).__name__}."',
        new='f"a task stopped with {error!r}."',
        tests=("tests/test_engines.py",),
        keyword="no_word_of_another",
    ),
    Mutant(
        name="shards-are-taken-as-they-come",
        file="embedding/pipeline.py",
        old="while (number := len(table.done) - begun) in written:",
        new="for number in list(written):",
        tests=("tests/embedding/test_spread.py",),
        keyword="one_process",
    ),
    Mutant(
        name="fit-releases-before-it-charges",
        file="estimators/base.py",
        old="guarantee, charge = self._charge(guarantee, ledger, partition)",
        new="self.classes_, self.lattice_ = plan.classes, plan.lattice\n"
        "        release(plan)\n"
        "        guarantee, charge = self._charge(guarantee, ledger, partition)",
        tests=("tests/laws/test_charge.py",),
        keyword="the_charge_is_on_record",
    ),
    Mutant(
        name="files-have-their-name-before-they-are-on-disk",
        file="_files.py",
        old="                os.fsync(file.fileno())\n                if nameless:\n",
        new="                if nameless:\n",
        tests=("tests/test_files.py",),
        keyword="all_or_nothing",
    ),
    Mutant(
        name="private-files-can-be-read",
        file="_files.py",
        old="mode = 0o600 if private else 0o666",
        new="mode = 0o666",
        tests=("tests/test_files.py",),
        keyword="private",
    ),
    Mutant(
        name="the-lock-can-be-shared",
        file="_files.py",
        old="fcntl.LOCK_EX | fcntl.LOCK_NB",
        new="fcntl.LOCK_SH | fcntl.LOCK_NB",
        tests=("tests/test_files.py",),
        keyword="lock",
    ),
    Mutant(
        name="ledger-takes-no-lock",
        file="privacy/_storage.py",
        old='"sqlite": ("BEGIN IMMEDIATE",),',
        new='"sqlite": (),',
        tests=("tests/privacy/test_ledger.py",),
        keyword="at_once",
    ),
    Mutant(
        name="ledger-counts-parts-that-look-alike-apart",
        file="privacy/_account.py",
        old="if partition is not None and partition not in parts:",
        new="if False:",
        tests=("tests/privacy/test_ledger.py",),
        keyword="part",
    ),
    Mutant(
        name="compose-mixes-relations",
        file="privacy/composition.py",
        old="if len(relations) > 1:",
        new="if len(relations) > 2:",
        tests=("tests/privacy/test_composition.py",),
        keyword="relations",
    ),
    Mutant(
        name="encoder-tries-usual-shapes-only",
        file="encoders/fixed.py",
        old="if network.rows(shape, self.batch_rows) > 1]",
        new="if network.rows(shape, self.batch_rows) < 1]",
        tests=("tests/encoders/test_fixed.py",),
    ),
    Mutant(
        name="encoder-believes-what-is-kept",
        file="encoders/fixed.py",
        old="row_independent=found.row_independent and known.row_independent)",
        new="row_independent=known.row_independent)",
        tests=("tests/encoders/test_fixed.py",),
    ),
    Mutant(
        name="fit-computes-short-batches",
        file="encoders/fixed.py",
        old="if not self._sparing or count == full:",
        new="if count == full:",
        tests=("tests/encoders/test_fixed.py",),
    ),
    Mutant(
        name="short-batches-are-not-tried",
        file="encoders/fixed.py",
        old="self._short = found.short and known.short",
        new="self._short = True",
        tests=("tests/encoders/test_fixed.py",),
    ),
    Mutant(
        name="ledger-looks-at-the-past-only",
        file="privacy/_account.py",
        old="total = self.total([*paid, new])",
        new="total = self.total(paid)",
        tests=("tests/privacy/test_ledger.py",),
        keyword="fit",
    ),
    Mutant(
        name="ledger-refuses-the-exact-sum",
        file="privacy/_account.py",
        old="if total[name] > budget:",
        new="if total[name] >= budget:",
        tests=("tests/privacy/test_ledger.py",),
        keyword="exact_sum",
    ),
    Mutant(
        name="search-counts-half-the-selection",
        file="privacy/search.py",
        old="+ 2 * other",
        new="+ other",
        tests=("tests/privacy/test_search.py",),
        keyword="dp_accounting",
    ),
    Mutant(
        name="search-forgets-the-number-of-runs",
        file="privacy/search.py",
        old="rho * order + log_runs / (order - 1)",
        new="rho * order",
        tests=("tests/privacy/test_search.py",),
        keyword="dp_accounting",
    ),
    Mutant(
        name="search-runs-a-fixed-number-of-times",
        file="estimators/search.py",
        old="while source.below(int(self.mean_runs)):",
        new="for _ in range(int(self.mean_runs) - 1):",
        tests=("tests/estimators/test_search.py",),
        keyword="geometric",
    ),
    Mutant(
        name="search-scores-with-half-the-sensitivity",
        file="estimators/search.py",
        old='return Fraction(4 if self.estimator.adjacency == "replace-one" else 2)',
        new="return Fraction(1)",
        tests=("tests/estimators/test_search.py",),
        keyword="stated_sensitivity",
    ),
    Mutant(
        name="search-trains-on-what-it-holds-out",
        file="estimators/search.py",
        old="training = np.flatnonzero(~held_out)",
        new="training = np.arange(len(labels))",
        tests=("tests/estimators/test_search.py",),
        keyword="never_sees",
    ),
    Mutant(
        name="examples-are-no-public-input",
        file="estimators/base.py",
        old="inputs.append(_EXAMPLES)",
        new="pass",
        tests=("tests/training/test_descriptions.py",),
        keyword="every_form",
    ),
    Mutant(
        name="private-items-describe-classes",
        file="training/classifier.py",
        old='refuse_private_as_public(X, self.descriptions, "descriptions")',
        new="pass",
        tests=("tests/training/test_descriptions.py",),
        keyword="private_items",
    ),
    Mutant(
        name="private-records-describe-classes",
        file="cli/train.py",
        old='refuse_private(examples_in, (data, labels, folder / "private"), "--describe")',
        new="pass",
        tests=("tests/cli/test_cli_train.py",),
        keyword="mistake_gets_one_line",
    ),
    Mutant(
        name="private-table-as-examples",
        file="cli/fit.py",
        old='refuse_private(examples, (table, labels), "--examples")',
        new="pass",
        tests=("tests/cli/test_cli_fit.py",),
        keyword="mistake_gets_one_line",
    ),
    Mutant(
        name="ledger-settles-the-order-late",
        file="privacy/_account.py",
        old="first = costs[0]",
        new="first = costs[-1]",
        tests=("tests/estimators/test_search.py",),
        keyword="settled",
    ),
    Mutant(
        name="delta-may-publish-a-record",
        file="privacy/accounting.py",
        old="if delta * max_records >= 1:",
        new="if delta * max_records > 1:",
        tests=("tests/privacy/test_budgets.py",),
        keyword="publishing",
    ),
    Mutant(
        name="symmetric-noise-counts-pairs-once",
        file="mechanisms/symmetric.py",
        old="lambda std: 2 * std**2 >= squared",
        new="lambda std: 2 * std**2 >= squared / 2",
        tests=("tests/mechanisms/test_symmetric.py",),
    ),
    Mutant(
        name="softmax-counts-by-the-true-size",
        file="prototypes/softmax.py",
        old="sizes = ClassSizes.of(size, counts,",
        new="sizes = ClassSizes.of(float(exact_counts.sum()), counts,",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="softmax-uses-true-counts",
        file="prototypes/softmax.py",
        old="sizes = ClassSizes.of(size, counts,",
        new="sizes = ClassSizes.of(size, exact_counts,",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="softmax-weighs-above-one",
        file="prototypes/softmax.py",
        old="np.floor(np.clip(np.nan_to_num(weights), 0, 1) * _WEIGHT_STEPS)",
        new="np.floor(2 * np.clip(weights, 0, 1) * _WEIGHT_STEPS)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="at_most_one",
    ),
    Mutant(
        name="softmax-plans-half-the-gradient-noise",
        file="prototypes/softmax.py",
        old="RepeatedGaussian.within(gradients, SoftmaxGradient(lattice).squared_sensitivity, STEPS)",
        new="RepeatedGaussian.within(gradients, SoftmaxGradient(lattice).squared_sensitivity / 4, STEPS)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="softmax-plans-the-mean-for-short-rows",
        file="prototypes/softmax.py",
        old="_WEIGHT_STEPS**2 * lattice.squared_norm)",
        new="_WEIGHT_STEPS**2 * lattice.squared_norm / 4)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="softmax-steps-along-the-true-gradient",
        file="prototypes/softmax.py",
        old="ascent.move(mechanism.gradients.release(exact, source) / unit @ basis)",
        new="mechanism.gradients.release(exact, source)\n            ascent.move(exact / unit @ basis)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="softmax-uses-its-noise-again",
        file="prototypes/softmax.py",
        old="ascent.move(mechanism.gradients.release(exact, source) / unit @ basis)",
        new="again = again if ascent._moves else mechanism.gradients.release(0 * exact, source)\n            "
        "ascent.move((exact + again) / unit @ basis)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="softmax-pays-for-too-few-gradients",
        file="prototypes/softmax.py",
        old="SoftmaxGradient(lattice).squared_sensitivity, STEPS)",
        new="SoftmaxGradient(lattice).squared_sensitivity, STEPS - 1)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="softmax-states-no-gradients",
        file="prototypes/softmax.py",
        old='return (*releases, mechanism.gradients.describe(f"sum of clipped gradients ({n_classes} x {dim})"))',
        new="return tuple(releases)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="examples-are-counted-without-noise",
        file="prototypes/softmax.py",
        old="hits = mechanism.hits.release(exact_hits, source)",
        new="hits = exact_hits",
        tests=("tests/laws/test_costs.py",),
        keyword="stated_width",
    ),
    Mutant(
        name="examples-are-trusted-by-the-true-count",
        file="prototypes/softmax.py",
        old="noise_std, examples, float(hits[0]), mechanism",
        new="noise_std, examples, float(exact_hits[0]), mechanism",
        tests=("tests/laws/test_replay.py",),
        keyword="same_noise",
    ),
    Mutant(
        name="examples-are-counted-unstated",
        file="prototypes/softmax.py",
        old="if mechanism.hits is not None:\n            releases.append(",
        new="if False:\n            releases.append(",
        tests=("tests/laws/test_costs.py",),
        keyword="cost_the_budget",
    ),
    Mutant(
        name="hits-depend-on-company",
        file="lattice/residuals.py",
        old="as_numpy(own >= xp.amax(logits, axis=0)[kept])",
        new="as_numpy(own >= xp.amax(logits))",
        tests=("tests/prototypes/test_examples.py",),
        keyword="hit",
    ),
    Mutant(
        name="private-rows-pass-for-examples",
        file="estimators/public_data.py",
        old='for name in ("X_public", "X_examples"):',
        new='for name in ("X_public",):',
        tests=("tests/prototypes/test_examples.py",),
        keyword="private_rows",
    ),
    Mutant(
        name="softmax-rotates-nothing",
        file="prototypes/_softmax.py",
        old="np.full(n_features, 1 / n_features), _ROTATION)",
        new="np.full(n_features, 1 / n_features), None)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="small_coordinates",
    ),
    Mutant(
        name="repeated-noise-is-planned-for-one-release",
        file="estimators/descent.py",
        old="RoundedGaussian.within(budget, times * squared_sensitivity)",
        new="RoundedGaussian.within(budget, squared_sensitivity)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="repeated-noise-states-the-sensitivity-of-all",
        file="estimators/descent.py",
        old="math.sqrt(self.together.squared_sensitivity / self.times)",
        new="math.sqrt(self.together.squared_sensitivity)",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="in_one_entry",
    ),
    Mutant(
        name="size-is-released-without-its-noise",
        file="estimators/descent.py",
        old="return max(float(mechanism.release(exact, source)[0]), mechanism.noise_std",
        new="mechanism.release(exact, source)\n    return max(float(exact[0]), mechanism.noise_std",
        tests=("tests/prototypes/test_softmax.py",),
        keyword="accepts",
    ),
    Mutant(
        name="lattice-rows-of-another-map-are-taken",
        file="estimators/reading.py",
        old="if found is not None and (lattice is None or found != lattice.name()):",
        new="if False:",
        tests=("tests/data/test_pools.py",),
        keyword="another_map",
    ),
    Mutant(
        name="lattice-rows-are-believed",
        file="lattice/lattice.py",
        old="if not wrong.any():",
        new="if True:",
        tests=("tests/data/test_pools.py",),
        keyword="bound_on_norms",
    ),
    Mutant(
        name="lattice-rows-may-hold-what-no-row-of-it-holds",
        file="lattice/lattice.py",
        old=" | (rows.min(axis=1) < -LARGEST)",
        new="",
        tests=("tests/lattice/test_lattice.py",),
        keyword="int8",
    ),
    Mutant(
        name="metadata-of-other-rows-are-taken",
        file="data/_layouts.py",
        old="if file.metadata.num_rows != shard.rows:",
        new="if False:",
        tests=("tests/data/test_pools.py",),
        keyword="fit_together",
    ),
    Mutant(
        name="shards-come-in-the-order-of-texts",
        file="data/_places.py",
        old='[(int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts)], name',
        new="[], name",
        tests=("tests/data/test_pools.py",),
        keyword="order_does_not_depend",
    ),
    Mutant(
        name="messages-show-passwords",
        file="data/_places.py",
        old="{scheme}://{_without_secrets(rest)}",
        new="{scheme}://{rest}",
        tests=("tests/data/test_pools.py",),
        keyword="passwords",
    ),
    Mutant(
        name="bounds-depend-on-how-the-pool-is-stored",
        file="prototypes/public.py",
        old="Lattice(lattice.dim).features(lattice.transform(take_rows(public, looked_at)))",
        new="lattice.features(take_rows(public, looked_at))",
        tests=("tests/laws/test_forms.py",),
        keyword="lattice_rows_give",
    ),
    Mutant(
        name="tables-are-read-again-from-the-wrong-row",
        file="lattice/residuals.py",
        old="done, end = self._n_kept, 0",
        new="done, end = max(0, self._n_kept - 1), 0",
        tests=("tests/lattice/test_residuals.py",),
        keyword="kept_are_mapped",
    ),
    Mutant(
        name="gradients-leave-residuals-unclipped",
        file="lattice/residuals.py",
        old="/ xp.clip(norms, np.float32(clip), None)",
        new="/ np.float32(clip)",
        tests=("tests/lattice/test_residuals.py",),
    ),
    Mutant(
        name="streams-tell-the-classes-of-tasks-unasked",
        file="experiments/cells.py",
        old="told = task.classes if cell.stream.told else None",
        new="told = task.classes",
        tests=("tests/experiments/test_streams.py",),
    ),
    Mutant(
        name="streams-compare-with-the-noise-of-the-first-task",
        file="experiments/cells.py",
        old="cell.noise_seed + 1",
        new="cell.noise_seed",
        tests=("tests/experiments/test_streams.py",),
    ),
    Mutant(
        name="serve-listens-everywhere",
        file="serve/server.py",
        old="if not has_token and not ",
        new="if not has_token and False and not ",
        tests=("tests/serve/test_guard.py",),
        keyword="addresses",
    ),
    Mutant(
        name="serve-takes-any-token",
        file="serve/guard.py",
        old="hmac.compare_digest(self._token, _digest(one))",
        new="len(_digest(one)) == len(self._token)",
        tests=("tests/serve/test_guard.py",),
        keyword="token",
    ),
    Mutant(
        name="serve-answers-names-of-other-sites",
        file="serve/guard.py",
        old="if _hostname(host) not in _LOOPBACK:",
        new="if _hostname(host) is None:",
        tests=("tests/serve/test_guard.py",),
        keyword="names",
    ),
    Mutant(
        name="serve-answers-pages-of-other-sites",
        file="serve/guard.py",
        old="if origin is not None and ",
        new="if origin is None and ",
        tests=("tests/serve/test_guard.py",),
        keyword="pages",
    ),
    Mutant(
        name="serve-logs-what-a-bug-says",
        file="serve/guard.py",
        old="error=type(error).__name__, where",
        new="error=repr(error), where",
        tests=("tests/serve/test_logs.py",),
    ),
    Mutant(
        name="serve-logs-paths",
        file="serve/guard.py",
        old='scope["path"] if scope["path"] in self._routes else "other"',
        new='scope["path"]',
        tests=("tests/serve/test_logs.py",),
    ),
    Mutant(
        name="serve-classifies-rows-together",
        file="serve/models.py",
        old="label, values = self.classify(row[None])",
        new="label, values = self.classify(np.stack([row, row]))",
        tests=("tests/serve/test_predictions.py",),
        keyword="embeddings",
    ),
    Mutant(
        name="serve-batches-for-encoders-that-mix",
        file="serve/batches.py",
        old=" if encoder.fingerprint.row_independent else 1",
        new="",
        tests=("tests/serve/test_batches.py",),
    ),
    Mutant(
        name="serve-lets-one-item-fail-a-batch",
        file="serve/batches.py",
        old="return [None] if len(items) == 1 else [self._encode([item])[0] for item in items]",
        new="return [None] * len(items)",
        tests=("tests/serve/test_batches.py",),
    ),
    Mutant(
        name="serve-decodes-any-image",
        file="serve/models.py",
        old="decode(payload, self.encoder.modality, most_pixels)",
        new="decode(payload, self.encoder.modality)",
        tests=("tests/serve/test_guard.py",),
        keyword="large",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a mutant; `by` is the test that failed, or what went wrong without one."""

    name: str
    file: str
    verdict: str
    by: str
    seconds: float


def judge(status: int, output: str) -> tuple[str, str]:
    """Return the verdict and the test that failed, from pytest's exit status and output.

    Only a test that ran and failed kills a mutant: a module that no longer imports, or a keyword that picks no test,
    proves nothing.
    """
    if status == 0:
        return SURVIVED, ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", output, re.MULTILINE)
    if status == 1 and failed:
        return KILLED, failed[1]
    return BROKEN, f"pytest ended with status {status}: {(output.strip().splitlines() or [''])[-1]}"


def copy_tree(folder: Path) -> None:
    """Copy what the tests need; the checkout itself is never changed."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)


def run_tests(folder: Path, tests: Iterable[str], keyword: str = "") -> tuple[int, str]:
    """Return the exit status and output of pytest in the copy; status 124 is the time limit."""
    # No bytecode: a fault of the same length within the same second would run the old one.
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no"]
    command += [*(("-k", keyword) if keyword else ()), *tests]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no end within {LIMIT_S} s"
    return done.returncode, done.stdout


def try_out(mutant: Mutant, folder: Path) -> Outcome:
    """Plant one fault in the copy, run its tests and take it out again."""
    path = folder / "src" / "dppl" / mutant.file
    source = path.read_text(encoding="utf-8")
    started = time.perf_counter()
    path.write_text(mutant.apply(source), encoding="utf-8")
    try:
        verdict, by = judge(*run_tests(folder, mutant.tests, mutant.keyword))
    finally:
        path.write_text(source, encoding="utf-8")
    seconds = round(time.perf_counter() - started, 1)
    return Outcome(name=mutant.name, file=mutant.file, verdict=verdict, by=by, seconds=seconds)


def say(text: str, end: str = "\n") -> None:
    """Write progress at once, also into a pipe."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def main() -> int:
    """Run the command line; return 1 if a mutant survived or the tests fail without one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [mutant.name for mutant in MUTANTS]
    parser.add_argument("--only", metavar="NAME", action="append", choices=names, help="this mutant; may be repeated")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the outcomes here")
    options = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    width = max(len(mutant.name) for mutant in mutants)
    outcomes = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dppl-mutate-") as name:
        folder = Path(name)
        copy_tree(folder)
        if not options.only:
            tests = sorted({test for mutant in mutants for test in mutant.tests})
            say(f"{len(tests)} test files without a fault ... ", end="")
            status, output = run_tests(folder, tests)
            if status:
                say(f"FAIL, so no mutant was tried.\n{output}")
                return 1
            say(f"pass ({time.perf_counter() - started:.1f} s)")
        for number, mutant in enumerate(mutants, 1):
            say(f"{number:2}/{len(mutants)}  {mutant.name:{width}}  ", end="")
            outcomes.append(outcome := try_out(mutant, folder))
            by = f" by {outcome.by}" if outcome.verdict == KILLED else f" {outcome.by}".rstrip()
            say(f"{outcome.verdict}{by} ({outcome.seconds} s)")
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=2) + "\n")
    left = [outcome.name for outcome in outcomes if outcome.verdict != KILLED]
    summary = f"{len(outcomes) - len(left)} of {len(outcomes)} mutants killed in {time.perf_counter() - started:.0f} s"
    say(summary + (f"; not killed: {', '.join(left)}" if left else ""))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
