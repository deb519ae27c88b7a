"""Why a record is skipped or gets no label, or costs have no sum: codes with public values, as those of guarantees."""

from dppl.kernel.privacy.terms import Code


class SkipReason(Code):
    """Why a record is skipped; nothing of the record is quoted but how many cells or lines its row has."""

    # Its row, line or place
    UNREADABLE_CELL = "unreadable_cell"
    OTHER_WIDTH = "other_width", {"n_cells": int, "n_columns": int}
    OPEN_QUOTE = "open_quote", {"n_lines_after": int}
    MISPLACED_QUOTE = "misplaced_quote", {"n_lines_after": int}
    LONG_ROW = "long_row"
    NO_JSON_OBJECT = "no_json_object"
    NO_CLASS_FOLDER = "no_class_folder"
    OUTSIDE_FOLDER = "outside_folder"
    LOOP_OF_LINKS = "loop_of_links"
    NO_FILE = "no_file"
    NO_PATH = "no_path"
    NO_REGULAR_FILE = "no_regular_file"
    CANNOT_BE_OPENED = "cannot_be_opened"
    # Its id, label and person
    ID_EMPTY = "id_empty"
    ID_NO_TEXT = "id_no_text"
    ID_NOT_UTF8 = "id_not_utf8"
    LABEL_NO_TEXT = "label_no_text"
    LABEL_NOT_UTF8 = "label_not_utf8"
    PERSON_MISSING = "person_missing"
    PERSON_NO_TEXT = "person_no_text"
    PERSON_NOT_UTF8 = "person_not_utf8"
    PERSON_INEXACT = "person_inexact"
    # Its content
    MISSING = "missing"
    EMPTY = "empty"
    NO_TEXT = "no_text"
    NOT_UTF8 = "not_utf8"
    NUL_CHARACTERS = "nul_characters"
    LONG_TEXT = "long_text", {"max_bytes": int}
    LARGE_FILE = "large_file", {"max_bytes": int}
    TOO_MANY_PIXELS = "too_many_pixels", {"max_pixels": int}
    NO_IMAGE = "no_image"
    NO_UINT8_PIXELS = "no_uint8_pixels"
    UNKNOWN_FORMAT = "unknown_format"
    DAMAGED_IMAGE = "damaged_image"
    SIGNED_NUMBERS = "signed_numbers"
    NUMBERS_OUT_OF_RANGE = "numbers_out_of_range", {"top": int}
    UNKNOWN_COLOURS = "unknown_colours"
    # Its embedding, and what a fit makes of it
    NOT_PREPARED = "not_prepared"
    NOT_EMBEDDED = "not_embedded"
    NOT_FINITE = "not_finite", {"rows": str}
    ALL_ZEROS = "all_zeros"
    NO_DIRECTION = "no_direction"
    UNKNOWN_LABEL = "unknown_label"
    UNKNOWN_LABELS_DROPPED = "unknown_labels_dropped"


class NoLabel(Code):
    """Why a record that can be used, or cannot, gets no label."""

    NOT_SURE = "not_sure"
    NONE_OF_THESE = "none_of_these"
    UNUSABLE = "unusable"


class NoSum(Code):
    """Why it is not known what a model and its evaluation cost together."""

    OTHER_NOTIONS = "other_notions"
    MODEL_OF_PERSONS = "model_of_persons"
    MODEL_OF_RECORDS = "model_of_records"
