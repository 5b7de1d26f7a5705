/**
 * What goes over the wire to a server and what comes back, as a backend reports it (spec 6: `final request` is the
 * request as sent, `raw response` the one received). A report is made only for a request that somebody watches.
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
  /** One line on the standard input of a child process, without its end. */
  | { readonly over: "stdio"; readonly line: string };

/** Takes the reports. */
export interface WireTap {
  /** I/O begins: `host:port`, `stdio:<name>` or `internal:<name>`, and what is sent, if the request is traced. */
  attempt(target: string, sent?: Sent): void;
  /** A response head as it came. Not needed where `BackendCall.head` gets the same one. */
  received(status: number, headers: HeaderList, target?: string): void;
  /** A target that was asked gave no response. Not needed where `BackendCall.fail` says so. */
  missed(reason: string, target?: string): void;
}
