/** Lists that come in pages. */

import type { Page } from "./results.js";

/** The items of all pages; each page is asked for when it is needed. */
export async function* allItems<T>(
  pageAfter: (pageToken: string) => Promise<Page<T>>,
): AsyncGenerator<T, void, undefined> {
  let token = "";
  do {
    const page = await pageAfter(token);
    yield* page.items;
    token = page.nextPageToken;
  } while (token !== "");
}
