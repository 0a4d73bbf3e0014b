"""Unicode: one form for equal texts, and nothing in them that nobody sees."""

import functools
import re
import unicodedata
from typing import Any, Literal

import pydantic
import re2

from entracte_server.agents.processors import texts
from entracte_server.agents.processors.base import Processor
from entracte_server.agents.processors.views import Input, ToolOutput

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\u3164\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_MOST_MARKS = 30
_JOINER = "\u034f"
_SPACES = re.compile(r"[^\S\n]+")


class UnicodeNormalizer(Processor):
    """Brings text to one Unicode form and takes out of it what is not seen: control characters, and the
    invisible ones in which instructions are smuggled past readers (tags, overrides of the direction of
    writing, spaces of no width; the joiners of emoji and scripts stay).

    As an input processor it changes the input, as an output processor the results of tools.

    Parameters:
        form: `NFC` (the default), `NFKC` (which also replaces look-alikes of compatibility, such as
            full-width letters), `NFD` or `NFKD`.
        strip_control: Take control characters out, but tabs and line ends. Default true.
        strip_invisible: Take invisible characters out. Default true.
        collapse_spaces: One space for several. Default false.
    """

    name = "unicode"
    can_rewrite = True
    sees_tool_errors = True

    class Parameters(pydantic.BaseModel):
        """See the class."""

        model_config = pydantic.ConfigDict(extra="forbid")

        form: Literal["NFC", "NFKC", "NFD", "NFKD"] = "NFC"
        strip_control: bool = True
        strip_invisible: bool = True
        collapse_spaces: bool = False

    parameters: Parameters

    def normalized(self, text: str) -> str:
        """One text as it is after this."""
        options = self.parameters
        text = unicodedata.normalize(options.form, _in_pieces(text))
        if options.strip_control:
            text = _CONTROL.sub("", text.replace("\r\n", "\n"))
        if options.strip_invisible:
            text = _INVISIBLE.sub("", text)
        if options.collapse_spaces:
            text = _SPACES.sub(" ", text)
        return text

    async def process_input(self, given: Input) -> Input:
        """What the caller says."""
        return given.replace(messages=texts.in_messages(given.messages, self.normalized))

    async def process_tool_result(self, result: ToolOutput) -> ToolOutput:
        """What a tool returned."""
        return result.replace(value=texts.in_json(result.value, self.normalized))


@functools.cache
def _long_row() -> Any:
    return re2.compile(rf"\pM{{{_MOST_MARKS + 1},}}")


def _in_pieces(text: str) -> str:
    """The text with joiners in long rows of marks, as in Unicode's format for streams: to put a row in order
    takes time with the square of its length, in which nothing else of the process runs."""
    if text.isascii():
        return text
    pieces: list[str] = []
    position = 0
    for match in _long_row().finditer(text):
        start, end = match.span()
        row = (text[i : min(i + _MOST_MARKS, end)] for i in range(start, end, _MOST_MARKS))
        pieces += (text[position:start], _JOINER.join(row))
        position = end
    return "".join((*pieces, text[position:]))
