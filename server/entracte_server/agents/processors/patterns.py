"""Finding what identifies people or opens doors: by patterns that are matched in linear time, and by the
checksums that such numbers have."""

import bisect
import functools
import ipaddress
import operator
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, get_args

import re2

from entracte_server.domain.data import Data

Kind = Literal["email", "phone", "card", "iban", "ip", "ssn", "key"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Found(Data, frozen=True):
    """Something that was found, and where."""

    kind: Kind
    start: int
    end: int


def _digits(text: str) -> str:
    return "".join(char for char in text if "0" <= char <= "9")


def _luhn(text: str) -> bool:
    digits = _digits(text)
    if not 12 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    doubled = (sum(divmod(2 * int(d), 10)) for d in digits[-2::-2])
    return (sum(int(d) for d in digits[-1::-2]) + sum(doubled)) % 10 == 0


def _iban(text: str) -> bool:
    text = "".join(text.split())
    if not 15 <= len(text) <= 34:
        return False
    turned = text[4:] + text[:4]
    return int("".join(str(int(char, 36)) for char in turned)) % 97 == 1


def _phone(text: str) -> bool:
    return 7 <= len(_digits(text)) <= 15


def _ip(text: str) -> bool:
    # Two groups are too likely to be something of a programming language.
    if ":" in text and sum(map(bool, text.split(":"))) < 3:
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _ssn(text: str) -> bool:
    area, group, serial = text.split("-")
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def _any(text: str) -> bool:
    return True


_KEYS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{30,}",
    r"\bgithub_pat_[A-Za-z0-9_]{30,}",
    r"\bglpat-[A-Za-z0-9_-]{20,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\bAIza[A-Za-z0-9_-]{35}",
    r"\b(?:npm|hf|pypi)[-_][A-Za-z0-9_-]{30,}",
)

_RULES: tuple[tuple[Kind, str, Callable[[str], bool]], ...] = (
    ("key", "|".join(_KEYS), _any),
    (
        "email",
        r"[A-Za-z0-9][A-Za-z0-9._%+'-]*@(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,}",
        _any,
    ),
    ("iban", r"\b[A-Z]{2}[0-9]{2}(?:[ ]?[A-Z0-9]{2,4}){3,8}\b", _iban),
    ("ip", r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b|\b(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}\b", _ip),
    ("ssn", r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b", _ssn),
    ("card", r"\b[2-6](?:[ -]?[0-9]){11,18}\b", _luhn),
    (
        "phone",
        r"(?:\+|\b00)[1-9][0-9]{0,2}(?:[ ./-]{0,2}\(?[0-9]{1,5}\)?){2,6}\b"
        r"|\(?\b[2-9][0-9]{2}\)?[ .-][0-9]{3}[ .-][0-9]{4}\b"
        r"|\b0[1-9][0-9]{1,4}[ /-]{1,3}[0-9]{3,8}(?:[ -][0-9]{1,5}){0,2}\b",
        _phone,
    ),
)


_start_of = operator.attrgetter("start")
_end_of = operator.attrgetter("end")


@functools.cache
def _compiled(pattern: str) -> Any:
    return re2.compile(pattern)


def find(text: str, kinds: Collection[Kind] = KINDS) -> list[Found]:
    """What is found in a text, from its start to its end; of two that overlap the first rule's."""
    found: list[Found] = []
    for kind, pattern, is_one in _RULES:
        if kind not in kinds:
            continue
        more: list[Found] = []
        for match in _compiled(pattern).finditer(text):
            start, end = match.span()
            # Those found before do not overlap: the first one that ends behind the start is the nearest.
            nearest = bisect.bisect_right(found, start, key=_end_of)
            is_free = nearest == len(found) or found[nearest].start >= end
            if is_free and is_one(text[start:end]):
                more.append(Found(kind, start, end))
        found = sorted((*found, *more), key=_start_of)
    return found


def replaced(text: str, found: Iterable[Found], replacement: str) -> str:
    """The text with each place replaced; `{kind}` in the replacement is what was there, in capitals."""
    pieces: list[str] = []
    position = 0
    for one in found:
        pieces += (text[position : one.start], replacement.replace("{kind}", one.kind.upper()))
        position = one.end
    return "".join((*pieces, text[position:]))


_OPEN_END = r"(?:\A|\s)((?:[0-9A-Z+().:/-]+[ \t\x{a0}])*\S*)\z"
"""The end of a text that may be the beginning of something: its last word, and groups of digits and
capitals before it."""

_BEGIN = r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
_END = r"-----END [A-Z ]*PRIVATE KEY-----"
MAX_GROUPS = 128
"""Characters of groups before the last word that are waited for."""

MAX_WORD = 16_384
"""Characters of one word, or of a private key, that are waited for."""


def settled(text: str) -> int:
    """How much of a text that goes on can be searched now: what follows may be the beginning of something
    that is not complete."""
    end = _before_open_end(text)
    if "-----" in text:
        for header in _compiled(_BEGIN).finditer(text):
            begin: int = header.start()
            if begin < end and len(text) - begin <= MAX_WORD and not _compiled(_END).search(text[begin:end]):
                return begin
    return end


def _before_open_end(text: str) -> int:
    match = _compiled(_OPEN_END).search(text)
    if match is None:  # it ends in a space, or in nothing at all
        return len(text)
    start: int = match.start(1)
    word = len(text) - max(text.rfind(" "), text.rfind("\n"), text.rfind("\t"), text.rfind("\u00a0")) - 1
    if word > MAX_WORD:
        return len(text)
    return max(start, len(text) - word - MAX_GROUPS)
