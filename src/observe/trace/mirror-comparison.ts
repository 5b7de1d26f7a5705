/**
 * What is found when answers of a mirror are compared with the backend's own: told to the trace and to the report.
 */

export interface MirrorComparison {
  /** The mirror's address, or the name of its Service. */
  readonly mirror: string;
  /** Why there was no answer of the mirror. */
  readonly failed?: string;
  /** As one text each, the same for the same difference: `status 200 → 500`, `$.items[].id: number → string`. */
  readonly status?: string;
  readonly shape?: readonly string[];
  /** False where a body is too large, encoded, a stream, or no JSON: only its content type was compared. */
  readonly hasShape: boolean;
  /** From the request to the head of the answer. */
  readonly backendMs: number;
  readonly mirrorMs: number;
  readonly isSlower: boolean;
}

/** Of a request that was mirrored to be compared. */
export interface Mirrored {
  readonly found: MirrorComparison[];
  /** Copies that have not been compared when the request ended. */
  pending: number;
  /** Hears of those. */
  onLate: ((found: MirrorComparison) => void) | undefined;
}
