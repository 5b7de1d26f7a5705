/**
 * Defines small outgoing requests of the gateway itself, for example for key sets, discovery documents, and tokens.
 * They are bounded in time and size and do not follow redirects.
 */

import { ExpectedError } from "../base/errors.ts";
import type { Owner } from "../base/owner.ts";
import type { PeerInput } from "../base/peer-inputs.ts";
import type { EgressGuard } from "./egress-guard.ts";
import type { HeaderList } from "./headers.ts";
import type { TlsOptions } from "./http-client.ts";

export interface FetchRequest {
  readonly url: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer;
  readonly timeoutMs: number;
  /** Limits the size of the response. */
  readonly input: PeerInput;
  readonly tls?: TlsOptions;
  /** Connects to a unix socket instead of the host in `url`, which stays the Host header. */
  readonly socketPath?: string | undefined;
  /** Restricts the addresses further than the guard of the `Fetch` does, for a URL that a remote server named. */
  readonly egress?: EgressGuard | undefined;
}

export interface FetchResponse {
  readonly status: number;
  readonly headers: HeaderList;
  readonly body: Buffer;
}

export class FetchError extends ExpectedError {
  readonly reason: "timeout" | "too-large" | "network" | "refused" | "bad-url";

  constructor(reason: FetchError["reason"], message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "FetchError";
    this.reason = reason;
  }
}

export type Fetch = (request: FetchRequest) => Promise<FetchResponse>;

/** Returns a `Fetch` that permits only what the guard permits, too. */
export function guardedFetch(fetch: Fetch, egress: EgressGuard): Fetch {
  if (egress.isOpen && egress.allowsUnixSockets) return fetch;
  return (request) => fetch({ ...request, egress: egress.and(request.egress) });
}

export interface Fetcher {
  /** Connections are not shared with requests of other owners. */
  of(owner: Owner): Fetch;
  close(): void;
}

export function parseHttpUrl(text: string): URL | undefined {
  try {
    const url = new URL(text);
    return (url.protocol === "http:" || url.protocol === "https:") && url.username === "" && url.password === ""
      ? url
      : undefined;
  } catch {
    return undefined;
  }
}
