/**
 * Signs with `jose`. Loaded at the first signature (base/on-demand.ts).
 */
import type { KeyObject } from "node:crypto";
import { type CompactJWSHeaderParameters, CompactSign } from "jose";

export function signCompact(header: CompactJWSHeaderParameters, payload: string, key: KeyObject): Promise<string> {
  return new CompactSign(Buffer.from(payload)).setProtectedHeader(header).sign(key);
}
