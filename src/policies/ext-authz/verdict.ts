/**
 * The decision of an external service about a request, whichever protocol it speaks. Its response comes from outside:
 * headers that HTTP does not allow, or that belong to the connection, are left out. A header that replaces the client's
 * is removed if its value cannot be sent, so that the client's own value does not take its place.
 */

import { isHeaderName } from "../../base/header-names.ts";
import { mayServiceChange } from "../../http/header-rules.ts";
import { type HeaderList, isHeaderValue } from "../../http/headers.ts";

/** As many as servers usually accept. More is no response of such a service, and slow to apply. */
const MAX_CHANGED_HEADERS = 100;

/**
 * `replace`: the values of the service, however many, replace those of the client. `overwrite` also replaces earlier
 * values of the service.
 */
export type HeaderAction = "replace" | "append" | "addIfAbsent" | "overwrite" | "overwriteIfExists";

export interface HeaderChange {
  readonly name: string;
  /** Undefined: the service sent one that HTTP does not allow. */
  readonly value: string | undefined;
  readonly action: HeaderAction;
}

export interface Allowed {
  readonly allowed: true;
  /** Applied to the request. */
  readonly set: readonly HeaderChange[];
  readonly remove: readonly string[];
  /** Applied to the response. */
  readonly respond: readonly HeaderChange[];
}

export interface Denied {
  readonly allowed: false;
  readonly status: number;
  readonly headers: readonly HeaderChange[];
  readonly body: string;
  /** For the operator. */
  readonly reason: string;
}

export type Verdict = Allowed | Denied;

/** Undefined if only the gateway may set the header. */
export function headerChange(name: string, value: string, action: HeaderAction): HeaderChange | undefined {
  const lower = name.toLowerCase();
  if (!mayChange(lower)) return undefined;
  return { name: lower, value: isHeaderValue(value) ? value : undefined, action };
}

export function mayChange(name: string): boolean {
  return isHeaderName(name) && mayServiceChange(name);
}

/** Throws if there are too many. */
export function checkHeaderCount(headers: readonly unknown[]): void {
  if (headers.length > MAX_CHANGED_HEADERS)
    throw new Error(`${headers.length} headers, more than ${MAX_CHANGED_HEADERS}`);
}

/** Other spellings of a changed header are always removed: a server may take them for the same header. */
export function applyHeaders(headers: HeaderList, changes: readonly HeaderChange[]): void {
  const replaced = new Set<string>();
  for (const { name, value, action } of changes) {
    if (action === "overwrite") headers.assert(name, value);
    else if (action === "overwriteIfExists") {
      if (headers.hasAnySpelling(name)) headers.assert(name, value);
    } else {
      if (action === "replace" && !replaced.has(name)) headers.delete(name);
      replaced.add(name);
      headers.append(name, action === "addIfAbsent" && headers.has(name) ? undefined : value);
    }
  }
}

/** A denial is never taken for a successful response. */
export function refusalStatus(status: number | undefined): number {
  return status !== undefined && Number.isInteger(status) && status >= 300 && status <= 599 ? status : 403;
}
