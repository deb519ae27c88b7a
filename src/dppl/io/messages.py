"""Made-up messages to a bank, to try classifiers of texts on without a download."""

from itertools import product

_PHRASES = {
    "delivery": ("when will {} arrive?", "{} has not come yet", "was {} posted?", "track the delivery of {}"),
    "loss": ("I have lost {}", "someone stole {}", "please block {}", "{} fell out of my pocket"),
    "limit": ("how much can I spend with {}?", "raise the limit of {}", "{} was declined, why?", "what may {} cost?"),
}
_OWNERS = ("my", "our", "the new", "my son's", "my wife's", "the company's", "his", "her", "a second", "the old")
_CARDS = ("card", "credit card", "debit card", "bank card", "travel card")

INTENTS = tuple(_PHRASES)
NEW_MESSAGES = ("Is my card in the post?", "A thief took my purse", "What is the most I can pay?")


def load_messages() -> list[tuple[str, str]]:
    """Return 600 pairs of a message and its intent, one of `INTENTS`."""
    return [
        (phrase.format(f"{owner} {card}"), intent)
        for intent, phrases in _PHRASES.items()
        for phrase, owner, card in product(phrases, _OWNERS, _CARDS)
    ]
