/**
 * Small outgoing requests of the gateway itself: key sets, discovery documents, registration, token endpoints.
 * Bounded in time and size, and redirects are never followed: what an identity provider answers must not be
 * able to send us elsewhere.
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
  /** A document of a cluster names the URL: addresses of this machine are refused. */
  readonly isConfined?: boolean;
}

export interface FetchResponse {
  readonly status: number;
  readonly headers: HeaderList;
  readonly body: Buffer;
}

export class FetchError extends ExpectedError {
  readonly reason: "timeout" | "too-large" | "network" | "bad-url";

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

/** Only http and https, and no credentials in the URL. */
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
