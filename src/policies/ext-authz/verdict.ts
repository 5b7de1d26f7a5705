/**
 * Defines an external service's decision about a request, independent of the check protocol.
 */
import type { HeaderChange } from "../../policy-parts/service-headers.ts";

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

/** Returns 403 unless the status is from 300 to 599, so that a denial is never a successful response. */
export function denialStatus(status: number | undefined): number {
  return status !== undefined && Number.isInteger(status) && status >= 300 && status <= 599 ? status : 403;
}
