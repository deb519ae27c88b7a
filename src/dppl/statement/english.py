"""What each code of a guarantee says in English: a text with the names of its values, for people alone.

``{records}`` stands for records or persons, by the unit of the guarantee. Somebody who
translates dppl translates this file.
"""

from collections.abc import Mapping

from dppl.kernel.privacy.terms import (
    Assumption,
    Caveat,
    Code,
    Mechanism,
    Neighbours,
    Norm,
    PublicInput,
    Statistic,
    Unit,
)

_ADDED = "two data sets are neighbours when one record is"
_PERSON = (
    "two data sets are neighbours when one person, with all of their records, is added or removed; a person counts "
    "as"
)
_ALONE = "each prediction is a function of its record alone"
_BY_COPIES = (
    f"{_ALONE}: records are predicted one at a time, each rebuilt from its values and by a fresh copy of the model; "
    "that nothing outside of the copy remembers a record is assumed, and the form of the table (width, names of "
    "columns, and which are numbers) is public"
)
_WEAKENS = "the guarantee weakens with their number"

STATISTICS: Mapping[Code, str] = {
    Statistic.STATED: "{text}",
    Statistic.OF_ONE_TASK: "{of}, of one task",
    Statistic.BEFORE_TRAINING: "{of}, before the training",
    Statistic.AFTER_TRAINING: "{of}, after the training",
    Statistic.PROJECTED: "{of}, projected",
    Statistic.WITH_CONSTANT: "{of}, with a constant column",
    Statistic.NUMBER_OF_RECORDS: "number of {records}",
    Statistic.RECORDS_OF_CLASSES: "number of {records} in each class",
    Statistic.CLASS_COUNTS: "size of each class, in steps of 1/{steps}",
    Statistic.LABEL_COUNTS: "size of each label, in steps of 1/{steps}, at most {max_labels} labels a record",
    Statistic.CLASS_SUMS: "class sums of lattice rows ({n_classes} x {dim})",
    Statistic.CORRELATED_CLASS_SUMS: (
        "class sums of lattice rows of all tasks ({n_classes} x {dim} each), weighted by the public matrix '{noise}' "
        "for at most {max_tasks} tasks"
    ),
    Statistic.CLASS_MEANS: "class means of lattice rows ({n_classes} x {dim})",
    Statistic.WEIGHTED_SUM: "sum of lattice rows, weighted by class ({dim})",
    Statistic.GRAM_MATRIX: "Gram matrix of lattice rows ({dim} x {dim})",
    Statistic.CLASS_GRAM_MATRICES: "Gram matrices of each class ({n_classes} x {dim} x {dim})",
    Statistic.CLIPPED_GRADIENTS: "sum of clipped gradients ({n_classes} x {dim})",
    Statistic.CLIPPED_LABEL_GRADIENTS: "sum of clipped gradients of all labels ({n_classes} x {dim})",
    Statistic.SCALED_GRADIENTS: "sum of scaled gradients ({n_classes} x {dim})",
    Statistic.NETWORK_GRADIENTS: "sum of clipped gradients ({n_weights} trained weights)",
    Statistic.LONG_GRADIENTS: "number of long gradients",
    Statistic.HESSIANS: "Hessians of each class ({n_classes} x {dim} x {dim})",
    Statistic.HITS_OF_EXAMPLES: "number of {records} whose own class the examples rank first",
    Statistic.SHORTFALLS: "how much less often than others each class is predicted ({n_classes})",
    Statistic.LABEL_SHORTFALLS: "how many more records have each label than it is predicted for ({n_classes})",
    Statistic.PUBLIC_POSITIONS: "positions of {n_selected} public rows for each of {n_classes} classes",
    Statistic.RIGHT_ANSWERS: "right answers",
    Statistic.RIGHT_ANSWERS_OF_CLASSES: "right answers and records of each class",
    Statistic.BEST_CANDIDATE: "best of {n_candidates} candidates of {estimator} in held-out {scoring}",
    Statistic.TOTALS: "right answers, labels among the likeliest classes, and other records, in steps of 1/{steps}",
    Statistic.CLASS_OUTCOMES: "right and wrong answers of each class, in steps of 1/{steps}",
    Statistic.BAND_OUTCOMES: "right and wrong answers in each band of classes, weighted by class, in steps of 1/{steps}",
    Statistic.FALSE_ALARMS: "wrong answers by predicted class, in steps of 1/{steps}",
    Statistic.CONFUSIONS: "wrong answers by class and predicted class, in steps of 1/{steps}",
    Statistic.CALIBRATION_SUMS: "confidence minus accuracy at {n_temperatures} temperatures, in steps of 1/{steps}",
    Statistic.RELIABILITY_BINS: "right and wrong answers by confidence, in steps of 1/{steps}",
    Statistic.SCORE_HISTOGRAM: "records of each class by score, in steps of 1/{steps}",
    Statistic.WHOLE_LABEL_SETS: "records whose labels are all right, and other records, in steps of 1/{steps}",
    Statistic.LABEL_OUTCOMES: "found, missed and falsely predicted labels, {max_labels} a record, in steps of 1/{steps}",
    Statistic.SIGNED_HITS: (
        "records that only the first model is right about, minus those that only the second is right about"
    ),
    Statistic.DISAGREEMENTS: "records that exactly one of two models is right about, and others",
    Statistic.MOST_HITS: "which of {n_models} models is right most often, in steps of 1/{steps}",
}

# What the integers of a count are, one and several; the integers of all else are steps of a
# grid.
RECORDS: Mapping[Code, tuple[str, str]] = {
    Unit.RECORD: ("record", "records"),
    Unit.PERSON: ("person", "persons"),
    Unit.PERSON_IN_TASKS: ("record", "records"),
}
COUNTED: Mapping[Code, tuple[str, str]] = {
    Statistic.NUMBER_OF_RECORDS: ("{record}", "{records}"),
    Statistic.RECORDS_OF_CLASSES: ("{record}", "{records}"),
    Statistic.HITS_OF_EXAMPLES: ("{record}", "{records}"),
    Statistic.LONG_GRADIENTS: ("gradient", "gradients"),
}
STEPS = ("grid step", "grid steps")

MECHANISMS: Mapping[Code, str] = {
    Mechanism.STATED: "{text}",
    Mechanism.ROUNDED_GAUSSIAN: "rounded Gaussian",
    Mechanism.SYMMETRIC_ROUNDED_GAUSSIAN: "rounded Gaussian on symmetric matrices",
    Mechanism.SAMPLED_ROUNDED_GAUSSIAN: "rounded Gaussian on Poisson samples",
    Mechanism.FRIENDLY_CORE: (
        "FriendlyCore mechanism (four steps of rounded Gaussian noise)"
    ),
    Mechanism.COINPRESS: "CoinPress mechanism ({n_steps} steps of rounded Gaussian noise)",
    Mechanism.EXPONENTIAL: "exponential mechanism",
    Mechanism.JOINT_EXPONENTIAL: "joint exponential mechanism (top-{n_selected})",
    Mechanism.REPEAT_AND_SELECT: "repeat-and-select mechanism (a geometric number of runs)",
}

NORMS: Mapping[Code, str] = {
    Norm.L2: "L2",
    Norm.FROBENIUS: "Frobenius",
    Norm.L2_IN_RADII: "L2 in radii of each step's ball",
    Norm.L2_IN_RADII_OF_A_CORE: "L2 in radii, of the sum over a core",
    Norm.MONOTONE_UTILITY: "monotone utility",
}

UNITS: Mapping[Code, str] = {
    Unit.RECORD: "one record",
    Unit.PERSON: "one person with all of their records",
    Unit.PERSON_IN_TASKS: "a person with at most one record in each task",
}

NEIGHBOURS: Mapping[Code, str] = {
    Neighbours.RECORD_ADDED: f"{_ADDED} added or removed",
    Neighbours.RECORD_REPLACED: f"{_ADDED} replaced by another",
    Neighbours.RECORD_REPLACED_IN_CLASS: f"{_ADDED} replaced by another of the same class",
    Neighbours.RECORD_OF_A_TASK: f"{_ADDED} added to or removed from one task",
    Neighbours.RECORD_OF_EACH_TASK: (
        "two data sets are neighbours when any number of tasks differ by one record each, added or removed"
    ),
    Neighbours.RECORD_OF_LATER_TASKS: (
        f"{_ADDED} added to or removed from the records of one task, which all later tasks are given again"
    ),
    Neighbours.WHOLE_PERSON: f"{_PERSON} much as one record, whatever their number",
    Neighbours.PERSON_IN_A_CLASS: f"{_PERSON} one record, of one class",
    Neighbours.PERSON_IN_CLASSES: f"{_PERSON} at most {{max_classes}} records, each of another class",
    Neighbours.IN_EACH_TASK: "{of}, in each task",
}

PUBLIC_INPUTS: Mapping[Code, str] = {
    PublicInput.CLASSES: "the list of classes",
    PublicInput.ENCODER: "the encoder",
    PublicInput.N_FEATURES: "the number of features",
    PublicInput.FORM_OF_FILES: "the form of the files of records: their format, encoding and header",
    PublicInput.PARAMETERS: "all parameters",
    PublicInput.PUBLIC_ROWS: "the public rows",
    PublicInput.EXAMPLES: (
        "the examples or descriptions of the classes, which nobody may have written or chosen by looking at private "
        "records"
    ),
    PublicInput.N_RECORDS: "the number of records",
    PublicInput.CLASS_SIZES: "the number of records in each class",
    PublicInput.COLUMNS: "the names of columns that the model keeps, as they were typed",
    PublicInput.CLASSES_OF_A_PERSON: "the number of classes that a person counts in ({max_classes})",
    PublicInput.ALL_CLASSES_OF_A_PERSON: "the number of classes that a person counts in (all)",
    PublicInput.PARTIES: "the names of the institutions, and what they state of their tables",
    PublicInput.PLAN: "the plan",
    PublicInput.TASKS: "the boundaries of the tasks and the classes that each may hold",
    PublicInput.CANDIDATES: "the candidates of the search",
    PublicInput.MODEL: "the model and its encoder",
    PublicInput.MODULE: "the module before the training",
    PublicInput.TRAINED_WEIGHTS: "which weights are trained",
    PublicInput.SHAPE: "the shape of a record",
}

ASSUMPTIONS: Mapping[Code, str] = {
    Assumption.STATED: "{text}",
    Assumption.EMBEDDED_ALONE: "each embedding is a function of its record alone",
    Assumption.PUBLIC_MADE_APART: "the encoder and all public inputs were made without the private records",
    Assumption.MODULE_MADE_APART: "the module and all public inputs were made without the private records",
    Assumption.MODULE_KEEPS_NOTHING: "the module keeps nothing of a record that it has seen, nor counts them",
    Assumption.DISJOINT_TASKS: "tasks are disjoint: a record is in one task",
    Assumption.DISJOINT_TASKS_OF_PERSONS: "tasks are disjoint: a person is in one task, with all records",
    Assumption.ONCE_IN_EACH_TASK: "a person, or a record, is in a task at most once",
    Assumption.ONCE_IN_WHAT_IS_GIVEN: "what a task is given holds a record at most once",
    Assumption.ONE_ID: "each person has one id",
    Assumption.OWN_NOISE: (
        "the computer of an institution, which alone protects its records, ran dppl unchanged; neither the coordinator "
        "nor other institutions need to be trusted"
    ),
    Assumption.CLUSTER: (
        "the machines of the cluster, which read the private records and saw sums and scores of them before noise was "
        "added, keep these to themselves"
    ),
    Assumption.PREDICTED_EXACTLY: (
        f"{_ALONE}: its scores are sums of whole numbers, which computers add without rounding"
    ),
    Assumption.PREDICTED_ONE_BY_ONE: f"{_ALONE}: records are predicted one at a time",
    Assumption.PREDICTED_BY_COPIES: _BY_COPIES,
    Assumption.PREDICTED_BY_TRIED_COPIES: (
        f"{_BY_COPIES}, and no violation was seen on public rows"
    ),
    Assumption.PREDICTED_ELSEWHERE: f"{_ALONE}, as whoever made the table of predictions has to know",
}

CAVEATS: Mapping[Code, str] = {
    Caveat.STATED: "{text}",
    Caveat.TUNED_ELSEWHERE: "hyper-parameters and models chosen by looking at private data",
    Caveat.LOOK: "what the owner decided after a look at the records, such as whether to go on (check, review)",
    Caveat.TIME_AND_MEMORY: "running time and memory use",
    Caveat.SEVERAL_RECORDS: f"several records of one person ({_WEAKENS})",
    Caveat.OTHER_RELEASES: "other releases from the same records, whose costs add up",
    Caveat.PREPROCESSING: "preprocessing that was fitted on private records",
    Caveat.CHANGED_RECORD: "a changed label or record, which counts as one removed and one added",
    Caveat.CHANGED_LABEL: "a changed label, since class sizes are public",
    Caveat.UNKNOWN_LABEL_STOP: (
        "whether the fit stopped at a label outside the class list (unknown_labels='error')"
    ),
    Caveat.STRICT_STOP: "whether the run stopped because a record could not be used (strict): one bit",
    Caveat.ROWS_MIX: "rounding by which an embedding may depend on the records embedded beside it",
    Caveat.WRONG_IDS: (
        "wrong person ids, a person with several ids, and missing ids, each of which counts as a person of its own"
    ),
    Caveat.CHANGED_RECORD_OF_A_PERSON: (
        "a changed record of a person, which counts as one person removed and one added"
    ),
    Caveat.OTHER_RELEASES_OF_PERSONS: (
        "other releases from records of the same persons, here or in other data sets, whose costs add up"
    ),
    Caveat.ID_STOP: "whether the fit stopped at an id that cannot be compared by value",
    Caveat.PERSON_AT_SEVERAL_PARTIES: (
        "a person with records at several institutions, for whom squares of mu add up"
    ),
    Caveat.PERSON_AT_ALL_PARTIES: (
        "a person with records at several institutions, for whom squares of mu add up, to at most mu = {mu}"
    ),
    Caveat.PARTICIPATION: "which institutions took part, and when each of them answered",
    Caveat.PARTLY_CHARGED: (
        "the account of the ledger: some tasks were charged to one, and others were not"
    ),
    Caveat.PRIVATE_BOUNDARIES: "boundaries of tasks that depend on private records, such as their number",
    Caveat.RECORD_IN_SEVERAL_TASKS: "a record or a person in several tasks, whose costs add up",
    Caveat.SEVERAL_RECORDS_IN_A_TASK: f"several records of one person in one task ({_WEAKENS})",
    Caveat.SEVERAL_RECORDS_IN_TASKS: (
        f"several records of one person, in one task or in different ones ({_WEAKENS})"
    ),
    Caveat.STREAM_STATE: (
        "the private state of the stream, a file with true sums of earlier tasks: who may read it, that it is deleted "
        "when the stream ends, and that the stream never goes on twice, from copies of it"
    ),
    Caveat.CHOICES_BEYOND_SEARCH: "choices by private data other than this search",
    Caveat.NUMBER_OF_RUNS: (
        "the number of runs of the search, which its running time reveals, and so do the times of files written after "
        "it (the model, the ledger)"
    ),
    Caveat.STOPPED_TRAINING: (
        "whether a record stopped the training (a token that the module does not know, a code beyond its logits)"
    ),
    Caveat.COPIED_CHECKPOINTS: (
        "several runs that went on from copies of one checkpoint without a ledger"
    ),
    Caveat.COMPUTED_TOGETHER: (
        "rounding by which what is computed of a record may depend on the records computed with it; block=1 rules it "
        "out"
    ),
    Caveat.CHOSEN_BY_NUMBERS: (
        "choices made from these numbers: what is chosen by them is reported from other records"
    ),
    Caveat.RECORDS_OF_TRAINING: (
        "what the model itself reveals of its training records, and records that are also among these"
    ),
    Caveat.CHOSEN_BY_THESE_RECORDS: (
        "how good a model is that was chosen by these records ({dataset}, release {number}): on them it looks better than it is"
    ),
    Caveat.CHOSEN_MODEL: (
        "how good the chosen model is: on the records of the choice it looks better than it is, so evaluate it on "
        "others"
    ),
}

TEXTS: Mapping[type[Code], Mapping[Code, str]] = {
    Statistic: STATISTICS,
    Mechanism: MECHANISMS,
    Norm: NORMS,
    Unit: UNITS,
    Neighbours: NEIGHBOURS,
    PublicInput: PUBLIC_INPUTS,
    Assumption: ASSUMPTIONS,
    Caveat: CAVEATS,
}
