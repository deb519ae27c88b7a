"""Names in a ledger: what can be one, and which names a reader would take for another.

Two names that look the same would split one account in two, each with the whole budget, or make two parts, of which
only the larger cost counts, of records that are the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from dppl.errors import ParameterError

__all__ = ["check_name", "refuse_look_alike", "skeleton"]

# Printable characters that show nothing: variation selectors, fillers, joiners, the blank of Braille.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
# A dot on a letter that has one, or on that letter without it.
_DOTLESS = str.maketrans("\u0131\u0237", "ij")
_DOTTED = re.compile("([ij\u0131\u0237])\u0307")
_MARK = "\u200e"  # stands around letters of right-to-left scripts in the table of confusable_homoglyphs


def check_name(parameter: str, name: object) -> None:
    """Refuse what databases would store as something else: numbers, or texts that they cut or cannot encode.

    Parameters
    ----------
    parameter : str
        What the name is given as, for the message.
    name : object

    Raises
    ------
    ParameterError
        If `name` is not a text of 1 to 255 printable characters in Unicode NFC without blanks around it.
    """
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= 255
        or not name.isprintable()
        or name != unicodedata.normalize("NFC", name).strip()
    ):
        raise ParameterError(
            "must be a name of 1 to 255 printable characters, without blanks around it and with accents in one piece "
            f"(Unicode NFC), so that no two names look the same; got {name!a}.",
            parameter=parameter,
        )


def refuse_look_alike(parameter: str, name: str, others: Iterable[str]) -> None:
    """Refuse a new name that looks like one that is in use, or differs from it in case alone.

    Parameters
    ----------
    parameter : str
        What the name is given as, for the message.
    name : str
    others : iterable of str
        Names in use.

    Raises
    ------
    ParameterError
        If there is such a name among `others`; the message shows both in ASCII.
    """
    taken = sorted(set(others) - {name})
    if not taken:
        return  # the usual case, which need not load the table
    mine, folded = skeleton(name), skeleton(name.casefold())
    for other in taken:
        if skeleton(other) == mine or skeleton(other.casefold()) == folded:
            raise ParameterError(
                f"must not look like a name that is in use; got {name!a}, which looks like {other!a}, so that costs "
                f"which add up would be counted apart. For the same records give {other!a}; for others choose a name "
                "that looks different.",
                parameter=parameter,
            )


def skeleton(name: str) -> str:
    """Return a text that is the same for names that look the same (Unicode Technical Standard 39, section 4).

    Compatibility forms, such as full-width letters, count as what they are forms of.

    Examples
    --------
    >>> skeleton("w\u0430rds") == skeleton("wards"), skeleton("north") == skeleton("south")
    (True, False)
    """
    prototypes, text, before = _prototypes(), name, None
    while text != before:  # a prototype may have one itself
        before = text
        seen = _UNSEEN.sub("", unicodedata.normalize("NFD", text))
        # Prototypes first: compatibility forms of quotes and accents are a blank with an accent.
        mapped = "".join(prototypes.get(character, character) for character in seen)
        text = _DOTTED.sub(r"\1", unicodedata.normalize("NFKD", mapped)).translate(_DOTLESS)
    return " ".join(text.split())


@cache
def _prototypes() -> dict[str, str]:
    """Return the one that stands for all that look like it, by character.

    The package lists for each character its prototype, and for each prototype all its characters.
    """
    from confusable_homoglyphs.confusables import confusables_data  # 30 ms, and few names are new

    alike = {key.strip(_MARK): [one["c"].strip(_MARK) for one in found] for key, found in confusables_data.items()}
    prototypes = {}
    for key, found in alike.items():
        if len(found) == 1:
            (other,) = found
            # Of two that have each other only, the longer, or else the first, stands for both.
            alone = alike[other] == [key]
            prototypes[key] = min(key, other, key=lambda text: (-len(text), text)) if alone else other
    return prototypes
