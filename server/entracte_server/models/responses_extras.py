"""What an answer of the Responses API cites, and the files it made."""

import base64
import binascii
from typing import Any

from entracte_server.domain import json_text
from entracte_server.domain.chunks import File, Source
from entracte_server.models.base import ModelEvent
from entracte_server.models.provider_json import json_of


class ItemExtras:
    """Sources and files of one answer; each source is given once, however often it is cited."""

    def __init__(self) -> None:
        self._cited: set[str] = set()

    def cite(self, annotation: Any, out: list[ModelEvent]) -> bool:
        """Takes an annotation of a text: a page, or a file that the provider has, which has no URL. Tells
        whether it is a new source."""
        if not isinstance(annotation, dict):
            return False
        url, file_id = annotation.get("url"), annotation.get("file_id")
        key = url or file_id
        if not isinstance(key, str) or not key or key in self._cited:
            return False
        self._cited.add(key)
        title = annotation.get("title") or annotation.get("filename")
        out.append(
            Source(
                f"s{len(self._cited) - 1}",
                json_text.scrub(url) if isinstance(url, str) else "",
                json_text.scrub(title) if isinstance(title, str) else "",
                json_of(annotation),
            )
        )
        return True

    def made(self, item: dict[str, Any], out: list[ModelEvent]) -> None:
        """Takes what a tool of the provider made."""
        result = item.get("result")
        if item.get("type") == "image_generation_call" and isinstance(result, str) and result:
            kind = item.get("output_format")
            media_type = f"image/{json_text.scrub(kind) if isinstance(kind, str) and kind else 'png'}"
            try:
                out.append(File(media_type, base64.b64decode(result + "=" * (-len(result) % 4))))
            except (binascii.Error, ValueError):
                return
        outputs = item.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            url = output.get("url") if isinstance(output, dict) else None
            if isinstance(url, str) and url:
                out.append(File("image/*", url=json_text.scrub(url)))
