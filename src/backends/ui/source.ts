/**
 * The operations that the UI on a gateway may use. The composition root provides them; the backend depends neither on
 * the admin interface nor on the configuration, so nothing else can leak through it.
 */
import type { UiFiles } from "./files.ts";

export interface UiResponse {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
}

/** `viewer`: read-only. `operator`: may also end sessions, create keys, set the log level, and accept tools. */
export type UiRole = "viewer" | "operator";

export interface UiUser {
  readonly role: UiRole;
  /** The displayed name; undefined if the user is unknown. */
  readonly name: string | undefined;
  /** The path where a POST signs out a user who signed in with the browser. */
  readonly logoutPath: string | undefined;
}

export interface UiCall {
  readonly method: "GET" | "POST";
  /** The part after `/ui/api/`. */
  readonly name: string;
  readonly query: URLSearchParams;
  body(): Promise<Buffer>;
}

export interface UiSource {
  readonly files: UiFiles;
  /** Returns undefined if the operation is not offered to the user, and `denied` if it requires the operator role. */
  call(call: UiCall, user: UiUser): Promise<UiResponse | "denied" | undefined>;
}
