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
from dppl.reasons import NoLabel, NoSum, SkipReason

_ADDED = "two data sets are neighbours when one record is"
_PERSON = (
    "two data sets are neighbours when one person, with all of their records, is added or removed; a person counts "
    "as"
)
_ALONE = "each prediction is a function of its record alone"
_BY_COPIES = (
    f"{_ALONE}: records are predicted one at a time, each rebuilt from its values and by a fresh copy of the model; "
    "it is assumed that the model looks at nothing else, such as the time or what runs it, that nothing outside of the "
    "copy remembers a record, and that whatever read the table changed no value because of another record; width and "
    "names of columns are public"
)
_WEAKENS = "the guarantee weakens with their number"

STATISTICS: Mapping[Code, str] = {
    Statistic.STATED: "{text}",
    Statistic.OF_ONE_TASK: "{of}, of one task",
    Statistic.BEFORE_TRAINING: "{of}, before the training",
    Statistic.AFTER_TRAINING: "{of}, after the training",
    Statistic.PROJECTED: "{of}, projected",
    Statistic.EPISODE_GRADIENTS: (
        "clipped gradient of a batch, of {episodes} splits in two ({n_components} x {dim})"
    ),
    Statistic.WITH_CONSTANT: "{of}, with a constant column of {constant}",
    Statistic.NUMBER_OF_RECORDS: "number of {records}",
    Statistic.RECORDS_OF_CLASSES: "number of {records} in each class",
    Statistic.CLASS_COUNTS: "size of each class, in steps of 1/{steps}",
    Statistic.LABEL_COUNTS: "size of each of {n_classes} labels, in steps of 1/{steps}, at most {max_labels} labels a record",
    Statistic.CLASS_SUMS: "class sums of lattice rows ({n_classes} x {dim})",
    Statistic.CORRELATED_CLASS_SUMS: (
        "class sums of lattice rows of all tasks ({n_classes} x {dim} each), weighted by a public matrix "
        "for at most {max_tasks} tasks"
    ),
    Statistic.CLASS_MEANS: "class means of lattice rows ({n_classes} x {dim})",
    Statistic.WEIGHTED_SUM: "sum of lattice rows, weighted by class ({dim})",
    Statistic.GRAM_MATRIX: "Gram matrix of lattice rows ({dim} x {dim})",
    Statistic.CLASS_GRAM_MATRICES: "Gram matrices of each class ({n_classes} x {dim} x {dim})",
    Statistic.SECOND_MOMENT: "second moment of centred lattice rows ({dim} x {dim})",
    Statistic.CLIPPED_GRADIENTS: "sum of clipped gradients ({n_classes} x {dim})",
    Statistic.CLIPPED_LABEL_GRADIENTS: "sum of clipped gradients of all labels ({n_classes} x {dim})",
    Statistic.SCALED_GRADIENTS: "sum of scaled gradients ({n_classes} x {dim})",
    Statistic.COUNTED_GRADIENTS: (
        "sum of scaled gradients ({n_classes} x {dim}), and the number of long ones times {weight}"
    ),
    Statistic.NETWORK_GRADIENTS: "sum of clipped gradients ({n_weights} trained weights)",
    Statistic.LONG_GRADIENTS: "number of long gradients",
    Statistic.HESSIANS: "Hessians of each class ({n_classes} x {dim} x {dim})",
    Statistic.HITS_OF_EXAMPLES: "numbers of {records} whose own class is and is not ranked first by what the fit starts from",
    Statistic.HITS_OF_LABELS: "numbers of {records} with and without a label that is ranked first by what the fit starts from",
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
    Statistic.LABEL_OUTCOMES: (
        "found, missed and falsely predicted of {n_classes} labels, {max_labels} a record, in steps of 1/{steps}"
    ),
    Statistic.SIGNED_HITS: (
        "records that only the first model is right about, minus those that only the second is right about"
    ),
    Statistic.DISAGREEMENTS: "records that exactly one of two models is right about, and others",
    Statistic.MOST_HITS: "which of {n_models} models is right most often, in steps of 1/{steps}",
    Statistic.CORE_MEANS: "means of the rows of each class that are close to most of it ({n_classes} x {dim})",
    Statistic.TEACHER_VOTES: "votes of {n_teachers} teachers on {n_rows} public rows ({n_rows} x {n_classes})",
    Statistic.NEIGHBOUR_VOTES: "classes of the {n_neighbours} nearest records of a public row ({n_classes})",
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
    Statistic.HITS_OF_LABELS: ("{record}", "{records}"),
    Statistic.LONG_GRADIENTS: ("gradient", "gradients"),
    Statistic.TEACHER_VOTES: ("vote", "votes"),
    Statistic.NEIGHBOUR_VOTES: ("vote", "votes"),
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
    Mechanism.PUBLISHED_TOP_K: "top-K by DPPL-v1's law, in which ranks of public rows count",
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
    PublicInput.FORM_OF_FILES: (
        "the form of the records: format, encoding and header of files, types of columns, arrays and lists"
    ),
    PublicInput.PARAMETERS: "all parameters",
    PublicInput.PUBLIC_ROWS: "the public rows",
    PublicInput.EXAMPLES: (
        "the examples or descriptions of the classes, which nobody may have written or chosen by looking at private "
        "records"
    ),
    PublicInput.START: (
        "the released model with the sha256 {sha256} (mu = {mu}), from which it starts, or from which its start did"
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
    Caveat.LOOK: "what the owner decided after seeing the records, such as whether to train at all (check, review)",
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
    Caveat.ALSO_IN_STARTS: (
        "records or persons that are also in the data of the models that it starts from, for which squares of mu add "
        "up, to at most mu = {mu} for one in the data of all"
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

SKIP_REASONS: Mapping[Code, str] = {
    SkipReason.UNREADABLE_CELL: "one of its cells cannot be read",
    SkipReason.OTHER_WIDTH: "its row and the header have different numbers of cells: {n_cells} and {n_columns}",
    SkipReason.OPEN_QUOTE: (
        "its row opens a quote that never closes (lines lost after it: {n_lines_after})"
    ),
    SkipReason.MISPLACED_QUOTE: (
        "its row has a misplaced quote (lines lost after it: {n_lines_after})"
    ),
    SkipReason.LONG_ROW: "its row is too long",
    SkipReason.NO_JSON_OBJECT: "its line is not a JSON object",
    SkipReason.NO_CLASS_FOLDER: "it lies in no class folder",
    SkipReason.OUTSIDE_FOLDER: "its path leads out of the folder",
    SkipReason.LOOP_OF_LINKS: "it is a loop of symbolic links",
    SkipReason.NO_FILE: "there is no such file, or its link leads nowhere",
    SkipReason.NO_PATH: "its path is none",
    SkipReason.NO_REGULAR_FILE: "it is not a regular file",
    SkipReason.CANNOT_BE_OPENED: "it cannot be opened",
    SkipReason.ID_EMPTY: "its id is empty",
    SkipReason.ID_NO_TEXT: "its id is neither a text nor an integer",
    SkipReason.ID_NOT_UTF8: "its id is not UTF-8",
    SkipReason.LABEL_NO_TEXT: "its label is neither a text nor an integer",
    SkipReason.LABEL_NOT_UTF8: "its label is not UTF-8",
    SkipReason.PERSON_MISSING: "it has no field for the id of its person",
    SkipReason.PERSON_NO_TEXT: "its person id is neither a text nor a whole number",
    SkipReason.PERSON_NOT_UTF8: "its person id is not UTF-8",
    SkipReason.PERSON_INEXACT: "its person id is a float, which is not exact from 2**53 on",
    SkipReason.MISSING: "it is missing",
    SkipReason.EMPTY: "it is empty",
    SkipReason.NO_TEXT: "it has no text",
    SkipReason.NOT_UTF8: "it is not UTF-8",
    SkipReason.NUL_CHARACTERS: "it is not a text: it holds NUL characters",
    SkipReason.LONG_TEXT: "it is longer than {max_bytes} bytes",
    SkipReason.LARGE_FILE: "it is larger than {max_bytes} bytes",
    SkipReason.TOO_MANY_PIXELS: "it has more than {max_pixels} pixels",
    SkipReason.NO_IMAGE: "it is no image",
    SkipReason.NO_UINT8_PIXELS: "it has no uint8 pixels",
    SkipReason.UNKNOWN_FORMAT: "it is not an image of a known format",
    SkipReason.DAMAGED_IMAGE: "it is a damaged or truncated image",
    SkipReason.SIGNED_NUMBERS: "its numbers are signed, and no file says which is black",
    SkipReason.NUMBERS_OUT_OF_RANGE: "its numbers are not from 0 to {top}, as its type has them",
    SkipReason.UNKNOWN_COLOURS: "its colours are of a kind that cannot be read",
    SkipReason.NOT_PREPARED: "the encoder cannot prepare it",
    SkipReason.NOT_EMBEDDED: "the encoder cannot embed it",
    SkipReason.NOT_FINITE: "its embedding is not finite in {rows}",
    SkipReason.ALL_ZEROS: "its embedding is all zeros",
    SkipReason.NO_DIRECTION: "it has no direction (NaN, infinity, only zeros)",
    SkipReason.UNKNOWN_LABEL: "its label is not in the list of classes",
    SkipReason.UNKNOWN_LABELS_DROPPED: "used, but without its labels outside the list of classes",
}

NO_LABELS: Mapping[Code, str] = {
    NoLabel.NOT_SURE: "The model is not sure.",
    NoLabel.NONE_OF_THESE: "It seems to be none of these classes.",
    NoLabel.UNUSABLE: "It cannot be used.",
}

NO_SUMS: Mapping[Code, str] = {
    NoSum.OTHER_NOTIONS: "their costs do not add",
    NoSum.MODEL_OF_PERSONS: "the model protects persons, and this evaluation records",
    NoSum.MODEL_OF_RECORDS: "the model protects records, and this evaluation persons",
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
    SkipReason: SKIP_REASONS,
    NoLabel: NO_LABELS,
    NoSum: NO_SUMS,
}

DECIMAL = "."
SEPARATOR = "; "

# The page for a data protection officer. Each other language has a file of its own with
# the same names.
PAGE: Mapping[str, str] = {
    "title": "Data protection summary of {file}",
    "for": (
        "For the data protection officer. It is made from the statement in the model file and is no legal advice."
    ),
    "for_by": (
        "For the data protection officer, by {by}. It is made from the statement in the model file and is no legal "
        "advice."
    ),
    "purpose": "Purpose",
    "no_purpose": "To be filled in by the controller: {blank}",
    "text": "a text",
    "image": "an image",
    "row": "a row of a table",
    "embedding": "a vector that stands for a record",
    "gives_class": "The model assigns one of {n_classes} classes to {item}.",
    "gives_labels": (
        "The model assigns any of {n_classes} labels to {item}; where labels of a record are counted, at most {max_labels} "
        "are."
    ),
    "method_encoder": (
        "Method: {method}, on vectors by a public encoder that no private record has changed."
    ),
    "method_network": "Method: {method}, which trains some weights of a public network.",
    "protection": "Whom it protects",
    "protects_record": (
        "Each record. A person with several records is protected less, the more they have."
    ),
    "protects_person": "Each person, with all of their records.",
    "protects_person_in_tasks": "Each person, with at most one record in each task.",
    "record_replaced": (
        "What a record says is protected. The number of records is treated as public."
    ),
    "record_added": (
        "The guarantee covers whether the record was in the data at all, and with it everything that the record says."
    ),
    "person_added": (
        "The guarantee covers whether the person was in the data at all, and with it everything that their records say."
    ),
    "tasks": "The guarantee is for the models after each of {n} tasks together.",
    "guarantee": "What is guaranteed",
    "nothing_released": (
        "Nothing was released from private records: the model is a function of public inputs alone."
    ),
    "seeded": (
        "Not for release: the noise came from a seed, so whoever guesses the seed can remove it."
    ),
    "research": (
        "For research alone: the noise that was drawn is not exactly the noise that was accounted."
    ),
    "guess_record_replaced": (
        "Someone who holds the model, and may know all other records, guesses which of two possible records was in the "
        "training data."
    ),
    "guess_record": (
        "Someone who holds the model, and may know all other records, guesses whether a record was in the training "
        "data."
    ),
    "guess_person": (
        "Someone who holds the model, and may know all other records, guesses whether a person was in the training "
        "data."
    ),
    "guess_bound": (
        "With both equally likely beforehand, the guess is right in at most {best} of cases; a coin is right in 50 %."
    ),
    "test_bound": (
        "An attack that wrongly accuses {rate} of outsiders finds at most {found} of the members."
    ),
    "epsilon": "This is differential privacy with epsilon = {epsilon} at delta = {delta}.",
    "epsilon_mu": (
        "This is differential privacy with epsilon = {epsilon} at delta = {delta} (mu = {mu})."
    ),
    "holds_unless_guessed": "It holds only against those who cannot guess the seed.",
    "holds_always": (
        "It holds against every attack, known today or not, however often the model is used."
    ),
    "access": "Who could see what",
    "training": (
        "**In training**, the program and whoever runs it read the records, on the owner's machine or cluster. It sends "
        "them nowhere else."
    ),
    "training_of_parties": (
        "**In training**, the program of each institution read its own records, on its own machine, and sent answers "
        "with noise to a coordinator. Institutions: {parties}. Each added its own noise to each answer; the figures "
        "hold at each of them, for its own records, towards everybody, the coordinator and the other institutions "
        "included."
    ),
    "left": "{name}, without its answers from ask {ask} on",
    "file": (
        "**In the model file** are results with noise, and public values. Treated as public: {public_inputs}."
    ),
    "file_without_releases": (
        "**In the model file** are public values. Treated as public: {public_inputs}."
    ),
    "service": (
        "**Over the service**, an answer is computed from the model file, so it tells no more of the training records "
        "than the file. What is sent for prediction is not protected by the guarantee. dppl serve writes none of it to "
        "disk, nor to its log."
    ),
    "retention": "What to keep, and for how long",
    "keep_report": (
        "**{file}.private.jsonl** lists the records that could not be used. It is personal data, for the owner alone: "
        "read it once, and delete it."
    ),
    "keep_work": (
        "**{file}.work** and tables of vectors are as private as the records. Training removes its folder when the "
        "model is saved; after an interruption that was given up, delete it. The state file of a stream with correlated "
        "noise is private, too."
    ),
    "keep_ledger": (
        "**The ledger** holds costs and public values, no records. Keep it as long as the data or a model of them "
        "exists."
    ),
    "account": "{dataset}: {spent} of {budget} is spent.",
    "charged": "Charged as: {charges}.",
    "charge": "{dataset}, release {number}",
    "charge_of_party": "{party}: {dataset}, release {number}",
    "not_charged": "The file names no charge: ask what else was released from these records.",
    "erase_record": (
        "**A record that is to be erased** cannot be taken out of a released model. The guarantee bounds what the model "
        "tells of it; later models are trained without it."
    ),
    "erase_person": (
        "**A person who is to be erased** cannot be taken out of a released model. The guarantee bounds what the model "
        "tells of them; later models are trained without them."
    ),
    "risk": "What risk remains",
    "other_releases": "Other releases from the same records add to the figures above.",
    "measured_exactly": (
        "Exact accuracies were measured; if the records were private, do not publish them."
    ),
    "measured_privately": (
        "How good the model is was measured with a separate guarantee, for the records that were tested."
    ),
    "assumed": "Assumed, and to be ensured by the controller: {assumptions}.",
    "not_covered": "Not covered: {not_covered}.",
    "law": "Terms of the GDPR",
    "gdpr": (
        "Training processes personal data (Art. 4) and needs a legal basis (Art. 6; for health data also Art. 9). "
        "Whether the model is anonymous (Recital 26) is for the controller to judge; EDPB Opinion 28/2024 asks how "
        "likely a model tells something about a person, and the figures above bound that for what they cover. The noise "
        "is a measure of data protection by design (Art. 25) and of security (Art. 32); it belongs in the records of "
        "processing (Art. 30) and the impact assessment (Art. 35). The files above fall under storage limitation "
        "(Art. 5(1)(e)), and requests for erasure under Art. 17."
    ),
    "checks": "How to check it",
    "check": (
        "SHA-256 of the file: {sha256}. The command dppl verify computes the figures again from the file, and dppl show "
        "prints the whole statement."
    ),
}
