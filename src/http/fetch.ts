/**
 * Defines small outgoing requests of the gateway itself, for example for key sets, discovery documents, and tokens.
 * They are bounded in time and size and do not follow redirects.
 */

import { ExpectedError } from "../base/errors.ts";
import type { HeaderList } from "./headers.ts";
import type { TlsOptions } from "./http-client.ts";

export interface FetchRequest {
  readonly url: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer;
  readonly timeoutMs: number;
  readonly maxBytes: number;
  readonly tls?: TlsOptions;
  /** Connects to a unix socket instead of the host in `url`, which stays the Host header. */
  readonly socketPath?: string | undefined;
  /** True if connections to refused addresses must fail (local-address.ts). */
  readonly isConfined?: boolean;
  /** Refuses other addresses: `public` are those of the internet, `private` all others. Default: all are allowed. */
  readonly network?: "public" | "private" | undefined;
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

export interface Fetcher {
  readonly fetch: Fetch;
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
