/**
 * Defines the operations that the UI on a gateway can use. The composition root implements them.
 */
import type { Form } from "../../base/form.ts";
import type { UiFiles } from "./files.ts";

export interface UiResponse {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
}

/** Viewers can only read. Operators can also make changes. */
export type UiRole = "viewer" | "operator";

export interface UiUser {
  readonly role: UiRole;
  readonly name: string | undefined;
  /** A POST to this path signs the user out. */
  readonly logoutPath: string | undefined;
}

export interface UiCall {
  readonly method: "GET" | "POST";
  readonly name: string;
  readonly query: Form;
  body(): Promise<Buffer>;
}

export interface UiSource {
  readonly files: UiFiles;
  /**
   * Resolves with undefined if the UI has no such operation, and with `denied` if the operation requires the operator
   * role and the user lacks it.
   */
  call(call: UiCall, user: UiUser): Promise<UiResponse | "denied" | undefined>;
}
