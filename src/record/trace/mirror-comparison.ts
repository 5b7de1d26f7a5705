/**
 * Defines the result of comparing a mirror's response with the backend's, for the trace and the mirror report.
 */

export interface MirrorComparison {
  readonly mirror: string;
  readonly failed?: string;
  /** A difference looks like `status 200 → 500` or `$.items[].id: number → string`. */
  readonly status?: string;
  readonly shape?: readonly string[];
  /** False if the JSON shapes could not be compared, for example because a body was too large or not JSON. */
  readonly hasShape: boolean;
  /** Times are measured from the request to the response head. */
  readonly backendMs: number;
  readonly mirrorMs: number;
  readonly isSlower: boolean;
}

export interface Mirrored {
  readonly found: MirrorComparison[];
  pending: number;
  onLate: ((found: MirrorComparison) => void) | undefined;
}
