/**
 * Defines how a backend reports the requests it sends and the responses it receives, for traces and spans.
 */
import type { HeaderList } from "../http/headers.ts";
import type { OutgoingRequest } from "../http/http-client.ts";
import type { ServedModel } from "./exchange.ts";
import type { Targets } from "./targets.ts";

export type Sent =
  | {
      readonly over: "http";
      readonly scheme: "http" | "https";
      readonly request: OutgoingRequest;
      /** The configuration adds credentials to every request in these lowercase headers and query parameters. */
      readonly hiddenHeaders?: readonly string[];
      readonly hiddenQuery?: readonly string[];
      /**
       * True if the backend reports the server's response or its absence, because the client receives a different head.
       */
      readonly isReported?: boolean;
    }
  /**
   * The line was written to the standard input of a child process and excludes the newline. If `hasResult` is true, the
   * backend reports the response or its absence.
   */
  | { readonly over: "stdio"; readonly line: string; readonly hasResult: boolean };

export interface WireTap {
  /** True if the request is traced or sampled. Otherwise only the times are used. */
  readonly isWatched: boolean;
  /** Starts the time of the server, unless an earlier message of the same attempt started it. */
  requestSent(): void;
  /** Ends the time of the server. Called once for each `requestSent`, also if there is no result. */
  resultReceived(): void;
  /** Reports that I/O starts. `targets` are those of the backend, if it can call another one. */
  attempt(target: string, sent?: Sent, served?: ServedModel, targets?: Targets): void;
  /** Reports a response head, unless the receiver of the response gets the same head. */
  received(status: number, headers: HeaderList, target?: string): void;
  /** Reports that a target did not respond, unless the receiver of the response gets the failure. */
  missed(reason: string, target: string): void;
}
