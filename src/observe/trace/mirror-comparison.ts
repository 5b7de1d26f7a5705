/**
 * The result of comparing a mirror's response with that of the backend, for the trace and the mirror report.
 */

export interface MirrorComparison {
  /** The mirror's address, or the name of its Service. */
  readonly mirror: string;
  /** Why the mirror did not respond. */
  readonly failed?: string;
  /** One string per kind of difference: `status 200 → 500`, `$.items[].id: number → string`. */
  readonly status?: string;
  readonly shape?: readonly string[];
  /**
   * False for bodies that are too large, encoded, streamed, or not JSON, of which only the content type was compared.
   */
  readonly hasShape: boolean;
  /** From the request to the response head. */
  readonly backendMs: number;
  readonly mirrorMs: number;
  readonly isSlower: boolean;
}

/** The comparisons of one mirrored request. */
export interface Mirrored {
  readonly found: MirrorComparison[];
  /** The number of copies that were not compared when the request ended. */
  pending: number;
  /** Receives the comparisons that finish after the request. */
  onLate: ((found: MirrorComparison) => void) | undefined;
}
