/**
 * What the copy of the UI on a gateway may ask of the process. The composition root passes one in; the backend
 * itself knows neither the admin interface nor the configuration, so nothing beyond these calls can leak through it.
 */
import type { UiFiles } from "./files.ts";

export interface UiResponse {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
}

/** `viewer`: sees. `operator`: also ends sessions, makes keys, sets the log level, accepts tools. */
export type UiRole = "viewer" | "operator";

export interface UiUser {
  readonly role: UiRole;
  /** As the page shows the user; undefined if nobody is known. */
  readonly name: string | undefined;
  /** Where a POST signs out, for a user who signed in with the browser. */
  readonly logoutPath: string | undefined;
}

export interface UiCall {
  readonly method: "GET" | "POST";
  /** What follows `/ui/api/`. */
  readonly name: string;
  readonly query: URLSearchParams;
  body(): Promise<Buffer>;
}

export interface UiSource {
  readonly files: UiFiles;
  /** Undefined if this copy does not offer it to the user; `denied` if it is for operators. */
  call(call: UiCall, user: UiUser): Promise<UiResponse | "denied" | undefined>;
}
