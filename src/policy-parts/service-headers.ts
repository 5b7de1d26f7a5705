/**
 * Applies the header changes of external services (authorization, processing) to requests and responses.
 */

import { isHeaderName } from "../base/header-names.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { canServiceChange } from "../http/header-rules.ts";
import { type HeaderList, isHeaderValue } from "../http/headers.ts";

/** A response that changes more headers is treated as a failure. */
const MAX_CHANGED_HEADERS = peerInput("ext-authz/grpc-response").maxItems;

/**
 * `replace` replaces the client's values and keeps every value that the service sends. `overwrite` also replaces
 * earlier values from the service.
 */
export type HeaderAction = "replace" | "append" | "addIfAbsent" | "overwrite" | "overwriteIfExists";

export interface HeaderChange {
  readonly name: string;
  /** If it is undefined, the service sent a value that HTTP does not allow. */
  readonly value: string | undefined;
  readonly action: HeaderAction;
}

/** Returns undefined if the name is invalid or the service may not set the header. */
export function headerChange(name: string, value: string, action: HeaderAction): HeaderChange | undefined {
  const lower = name.toLowerCase();
  if (!mayChange(lower)) return undefined;
  return { name: lower, value: isHeaderValue(value) ? value : undefined, action };
}

export function mayChange(name: string): boolean {
  return isHeaderName(name) && canServiceChange(name);
}

export function checkHeaderCount(headers: readonly unknown[]): void {
  if (headers.length > MAX_CHANGED_HEADERS)
    throw new Error(`${headers.length} headers, more than ${MAX_CHANGED_HEADERS}`);
}

/** Removes other spellings of a changed header, because a server may treat them as the same header. */
export function applyHeaders(headers: HeaderList, changes: readonly HeaderChange[]): void {
  const replaced = new Set<string>();
  for (const { name, value, action } of changes) {
    if (action === "overwrite") headers.assert(name, value);
    else if (action === "overwriteIfExists") {
      if (headers.hasAnySpelling(name)) headers.assert(name, value);
    } else {
      if (action === "replace" && !replaced.has(name)) headers.delete(name);
      replaced.add(name);
      headers.append(name, action === "addIfAbsent" && headers.has(name) ? undefined : value);
    }
  }
}

/** Envoy's `HeaderValueOption`. */
export interface HeaderOption {
  readonly header: { readonly key: string; readonly value: string; readonly rawValue: Uint8Array } | null;
  readonly append: { readonly value: boolean } | null;
  /** The enum value is not mapped, so that the caller can reject unknown values. */
  readonly appendAction: number;
}

/** Throws if there are too many headers or an action is unknown. `unset` applies to headers without an action. */
export function toHeaderChanges(options: readonly HeaderOption[], unset: HeaderAction): HeaderChange[] {
  checkHeaderCount(options);
  return options.flatMap(({ header, append, appendAction }) => {
    if (header === null) return [];
    const { key, value, rawValue } = header;
    const bytes = value === "" && rawValue.length > 0 ? Buffer.from(rawValue) : Buffer.from(value);
    return headerChange(key, bytes.toString("latin1"), headerAction(append, appendAction, unset)) ?? [];
  });
}

/**
 * Maps Envoy's `append_action` values. On the wire, 0 (append) equals an unset field, so it selects the default of the
 * list. Request headers are not appended by default, and response headers are.
 */
const ACTIONS: readonly (HeaderAction | undefined)[] = [undefined, "addIfAbsent", "overwrite", "overwriteIfExists"];

function headerAction(append: HeaderOption["append"], appendAction: number, unset: HeaderAction): HeaderAction {
  if (append !== null) return append.value ? "append" : "overwrite";
  if (!(appendAction in ACTIONS)) throw new Error(`the unknown append_action ${appendAction}`);
  return ACTIONS[appendAction] ?? unset;
}

/** Decodes a latin1 string, which has one character per byte, as UTF-8. */
export function utf8Text(bytes: string): string {
  return Buffer.from(bytes, "latin1").toString("utf8");
}
