/**
 * Defines the operations that the UI on a gateway can use. The composition root implements them. The backend depends
 * neither on the admin interface nor on the configuration, so it cannot expose anything else.
 */
import type { UiFiles } from "./files.ts";

export interface UiResponse {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
}

/** Viewers can only read. Operators can also end sessions, create keys, set the log level, and accept tools. */
export type UiRole = "viewer" | "operator";

export interface UiUser {
  readonly role: UiRole;
  /** The value is undefined if the user is anonymous. */
  readonly name: string | undefined;
  /** A POST to this path signs the user out. */
  readonly logoutPath: string | undefined;
}

export interface UiCall {
  readonly method: "GET" | "POST";
  readonly name: string;
  readonly query: URLSearchParams;
  body(): Promise<Buffer>;
}

export interface UiSource {
  readonly files: UiFiles;
  /**
   * Resolves with undefined if the operation does not exist for this user, and with `denied` if it requires the
   * operator role.
   */
  call(call: UiCall, user: UiUser): Promise<UiResponse | "denied" | undefined>;
}
