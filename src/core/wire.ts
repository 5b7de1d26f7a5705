/**
 * The reports of a backend about the requests it sends and the responses it receives, for the trace's `final request` and
 * `raw response`. Backends report only for a traced request.
 */
import type { HeaderList } from "../http/headers.ts";
import type { OutgoingRequest } from "../http/http-client.ts";

export type Sent =
  | {
      readonly over: "http";
      readonly scheme: "http" | "https";
      readonly request: OutgoingRequest;
      /** Headers (lower case) and query parameters by which the configuration adds credentials to every request. */
      readonly hiddenHeaders?: readonly string[];
      readonly hiddenQuery?: readonly string[];
    }
  /** One line on the standard input of a child process, without the newline. */
  | { readonly over: "stdio"; readonly line: string };

/** Receives the reports. */
export interface WireTap {
  /** I/O starts. `target` is `host:port`, `stdio:<name>` or `internal:<name>`; `sent` is set if the request is traced. */
  attempt(target: string, sent?: Sent): void;
  /** A response head as received. Not needed if the receiver of the response gets the same head. */
  received(status: number, headers: HeaderList, target?: string): void;
  /** A target did not respond. Not needed if the receiver of the response gets the failure. */
  missed(reason: string, target?: string): void;
}
