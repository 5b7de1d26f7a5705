/**
 * What the gateway and the process of rehearsals say to each other.
 */
import type { Rehearsal, RehearsalInput } from "./rehearse.ts";

/** What the process gets. */
export interface RehearsalData {
  readonly input: RehearsalInput;
  readonly segments: readonly Uint8Array[];
}

/** What it says. */
export type FromRehearsal =
  | { readonly isReady: true }
  | { readonly found: Rehearsal }
  /** Why there is no report. */
  | { readonly error: string };
