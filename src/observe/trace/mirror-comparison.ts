/**
 * The result of comparing a mirror's response with the backend's, for the trace and the mirror report.
 */

export interface MirrorComparison {
  /** The mirror's address, or the name of its Service. */
  readonly mirror: string;
  /** The reason why the mirror did not respond. */
  readonly failed?: string;
  /** Differences look like `status 200 → 500` and `$.items[].id: number → string`. */
  readonly status?: string;
  readonly shape?: readonly string[];
  /** False if only the content type was compared, because a body was too large, encoded, streamed, or not JSON. */
  readonly hasShape: boolean;
  /** The time from the request to the response head. */
  readonly backendMs: number;
  readonly mirrorMs: number;
  readonly isSlower: boolean;
}

/** The comparisons of one mirrored request. */
export interface Mirrored {
  readonly found: MirrorComparison[];
  /** The number of copies that were not yet compared when the request ended. */
  pending: number;
  /** Receives the comparisons that finish after the request. */
  onLate: ((found: MirrorComparison) => void) | undefined;
}
