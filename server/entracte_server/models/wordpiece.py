"""Texts to the numbers of BERT's vocabulary, upper and lower case alike."""

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

MAX_WORD = 100
"""Characters of a word; a longer one is unknown."""

_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """A vocabulary: one word or piece of a word a line, numbered from 0; pieces that go on begin with ##."""

    def __init__(self, path: Path) -> None:
        words = path.read_text(encoding="utf-8").splitlines()
        self._numbers: Mapping[str, int] = {word: number for number, word in enumerate(words)}
        self._unknown = self._numbers["[UNK]"]
        self._begin = self._numbers["[CLS]"]
        self._end = self._numbers["[SEP]"]

    def encode(self, text: str, limit: int) -> list[int]:
        """The numbers of a text, with the marks of its beginning and end, at most `limit` of them."""
        found = [self._begin]
        for word in _words(text):
            found += self._pieces(word)
            if len(found) >= limit:
                break
        return [*found[: limit - 1], self._end]

    def _pieces(self, word: str) -> list[int]:
        """The longest pieces that a word is made of, from its beginning."""
        if len(word) > MAX_WORD:
            return [self._unknown]
        pieces, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self._numbers.get(("##" if start else "") + word[start:end])
                if number is not None:
                    break
            else:
                return [self._unknown]
            pieces.append(number)
            start = end
        return pieces


def _words(text: str) -> Iterator[str]:
    """Words in lower case and without accents; punctuation and ideographs stand alone."""
    word = ""
    for char in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(char)
        if kind == "Mn" or char in "\0\ufffd":
            continue
        if char in "\t\n\r" or kind[0] == "Z":
            alone, char = True, ""
        elif kind in ("Cc", "Cf", "Co"):
            continue
        else:
            alone = _stands_alone(char, kind)
        if not alone:
            word += char.lower()
            continue
        if word:
            yield word
            word = ""
        if char:
            yield char
    if word:
        yield word


def _stands_alone(char: str, kind: str) -> bool:
    if kind[0] == "P" or (char.isascii() and not char.isalnum()):
        return True
    code = ord(char)
    return code >= 0x3400 and any(first <= code <= last for first, last in _IDEOGRAPHS)
