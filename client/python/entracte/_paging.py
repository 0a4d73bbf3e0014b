"""Lists that come in pages."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from entracte._results import Page

T = TypeVar("T")


async def all_items(page_after: Callable[[str], Awaitable[Page[T]]]) -> AsyncGenerator[T, None]:
    """The items of all pages; each page is asked for when it is needed."""
    token = ""
    while True:
        page = await page_after(token)
        for item in page.items:
            yield item
        token = page.next_page_token
        if not token:
            return
