/** Ids made by the SDK. */

import { randomUUID } from "node:crypto";

/** An id for a run or a request that nobody has used: 32 hexadecimal digits. */
export function newId(): string {
  return randomUUID().replaceAll("-", "");
}
