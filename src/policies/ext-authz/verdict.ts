/**
 * What a service decided of a request, whichever protocol it speaks. Its answer comes from outside: names and values that
 * HTTP does not allow, and headers that belong to the connection, are left out.
 */

import { isHeaderName } from "../../base/header-names.ts";
import { mayServiceChange } from "../../http/header-rules.ts";
import { isHeaderValue } from "../../http/headers.ts";

export interface Allowed {
  readonly allowed: true;
  /** Set on the request, in place of what the client sent under these names. */
  readonly set: readonly (readonly [string, string])[];
  readonly remove: readonly string[];
  /** Added to the response. */
  readonly respond: readonly (readonly [string, string])[];
}

export interface Denied {
  readonly allowed: false;
  readonly status: number;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
  /** For the operator. */
  readonly reason: string;
}

export type Verdict = Allowed | Denied;

/** Undefined if nobody but the gateway may set it so. */
export function changedHeader(name: string, value: string): readonly [string, string] | undefined {
  const lower = name.toLowerCase();
  return isHeaderName(lower) && isHeaderValue(value) && mayServiceChange(lower) ? [lower, value] : undefined;
}

export function mayRemove(name: string): boolean {
  return isHeaderName(name) && mayServiceChange(name);
}

/** A refusal is never taken for an answer that went well. */
export function refusalStatus(status: number | undefined): number {
  return status !== undefined && Number.isInteger(status) && status >= 300 && status <= 599 ? status : 403;
}
