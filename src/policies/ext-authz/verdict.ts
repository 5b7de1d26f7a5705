/**
 * Defines and applies an external service's decision about a request, independent of the check protocol.
 */

import { isHeaderName } from "../../base/header-names.ts";
import { canServiceChange } from "../../http/header-rules.ts";
import { type HeaderList, isHeaderValue } from "../../http/headers.ts";

/** A response that changes more headers is treated as a failure. */
const MAX_CHANGED_HEADERS = 100;

/**
 * `replace` replaces the client's values and keeps every value that the service sends. `overwrite` also replaces
 * earlier values from the service.
 */
export type HeaderAction = "replace" | "append" | "addIfAbsent" | "overwrite" | "overwriteIfExists";

export interface HeaderChange {
  readonly name: string;
  /** If it is undefined, the service sent a value that HTTP does not allow. */
  readonly value: string | undefined;
  readonly action: HeaderAction;
}

export interface Allowed {
  readonly allowed: true;
  readonly set: readonly HeaderChange[];
  readonly remove: readonly string[];
  readonly respond: readonly HeaderChange[];
  /** Expressions read these values as `extauthz.*`. */
  readonly metadata?: Readonly<Record<string, unknown>>;
}

export interface Denied {
  readonly allowed: false;
  readonly status: number;
  readonly headers: readonly HeaderChange[];
  readonly body: string;
  /** The reason is for the operator. */
  readonly reason: string;
}

export type Verdict = Allowed | Denied;

/** Returns undefined if the name is invalid or the service may not set the header. */
export function headerChange(name: string, value: string, action: HeaderAction): HeaderChange | undefined {
  const lower = name.toLowerCase();
  if (!mayChange(lower)) return undefined;
  return { name: lower, value: isHeaderValue(value) ? value : undefined, action };
}

export function mayChange(name: string): boolean {
  return isHeaderName(name) && canServiceChange(name);
}

export function checkHeaderCount(headers: readonly unknown[]): void {
  if (headers.length > MAX_CHANGED_HEADERS)
    throw new Error(`${headers.length} headers, more than ${MAX_CHANGED_HEADERS}`);
}

/** Removes other spellings of a changed header, because a server may treat them as the same header. */
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

/** Returns 403 unless the status is from 300 to 599, so that a denial is never a successful response. */
export function denialStatus(status: number | undefined): number {
  return status !== undefined && Number.isInteger(status) && status >= 300 && status <= 599 ? status : 403;
}
