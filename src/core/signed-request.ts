/**
 * Defines the request that a signer, such as that of AWS, reads and adds its headers to. It must be in its final form.
 */
import type { HeaderList } from "../http/headers.ts";

export interface SignedRequest {
  readonly method: string;
  readonly protocol: "http" | "https";
  readonly hostname: string;
  readonly port: number | undefined;
  readonly path: string;
  readonly headers: HeaderList;
  readonly body: readonly Buffer[];
}

export interface SignRequest {
  /** Adds the signature to the headers. */
  (request: SignedRequest): Promise<void>;
  /**
   * Compares the clocks if the server rejected a request. Returns true if they differed, so that the same request, signed
   * again, may be accepted.
   */
  correctClock(status: number, headers: HeaderList): boolean;
}
