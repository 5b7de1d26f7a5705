/**
 * Reads the changes that an external processor requests, and rejects those that are not supported.
 */
import { HeaderList } from "../../http/headers.ts";
import { applyHeaders, checkHeaderCount, type HeaderChange, mayChange, toHeaderChanges } from "../service-headers.ts";
import type { CommonResponse, HeaderMutation, ImmediateResponse, ModeOverride, Step } from "./protocol.ts";

export type BodyMode = "none" | "buffered" | "streamed" | "fullDuplexStreamed";

export interface Modes {
  readonly requestHeaders: boolean;
  readonly requestBody: BodyMode;
  readonly responseHeaders: boolean;
  readonly responseBody: BodyMode;
}

export interface HeaderChanges {
  readonly set: readonly HeaderChange[];
  readonly remove: readonly string[];
}

export interface Changes extends HeaderChanges {
  /** Undefined if the body does not change. */
  readonly body: Buffer | undefined;
  /** True if the body replaces one that is not sent to the processor. */
  readonly replacesAll: boolean;
  /** The processor's value of `:status`. */
  readonly status: number | undefined;
}

/** Throws if the response requests something that is not supported. */
export function readChanges(response: CommonResponse | null, step: Step): Changes {
  const { status = 0, headerMutation = null, bodyMutation = null, trailers = null } = response ?? {};
  if (status !== 0 && status !== 1) throw new Error(`the unknown status ${status}`);
  if (trailers !== null) throw new Error("trailers, which are not supported");
  if (bodyMutation?.streamedResponse !== undefined)
    throw new Error("a streamed body mutation in another mode than FULL_DUPLEX_STREAMED");
  const replacesAll = status === 1;
  if (replacesAll && step !== "requestHeaders" && step !== "responseHeaders")
    throw new Error("CONTINUE_AND_REPLACE in response to a body");
  const body = readBody(bodyMutation);
  if (body !== undefined && !replacesAll && (step === "requestHeaders" || step === "responseHeaders"))
    throw new Error("a body mutation in response to headers without CONTINUE_AND_REPLACE");
  return {
    ...readHeaderMutation(headerMutation),
    body: replacesAll ? (body ?? Buffer.alloc(0)) : body,
    replacesAll,
    status: step === "responseHeaders" ? readStatus(headerMutation) : undefined,
  };
}

function readBody(mutation: CommonResponse["bodyMutation"]): Buffer | undefined {
  if (mutation === null) return undefined;
  if (mutation.clearBody === true) return Buffer.alloc(0);
  return mutation.body === undefined ? undefined : Buffer.from(mutation.body);
}

function readHeaderMutation(mutation: HeaderMutation | null): HeaderChanges {
  const { setHeaders = [], removeHeaders = [] } = mutation ?? {};
  checkHeaderCount(removeHeaders);
  return {
    set: withoutRepetitions(toHeaderChanges(setHeaders, "replace")),
    remove: removeHeaders.map((name) => name.toLowerCase()).filter(mayChange),
  };
}

/** A processor may set a header that it also sends back, as pickers do with the headers of a response. */
function withoutRepetitions(changes: readonly HeaderChange[]): HeaderChange[] {
  return changes.filter(
    ({ name, value, action }, i) =>
      action !== "replace" ||
      changes.findIndex((one) => one.name === name && one.value === value && one.action === action) === i,
  );
}

function readStatus(mutation: HeaderMutation | null): number | undefined {
  const found = mutation?.setHeaders.find(({ header }) => header?.key === ":status")?.header;
  if (!found) return undefined;
  const text = found.value === "" ? Buffer.from(found.rawValue).toString("latin1") : found.value;
  return checkedStatus(/^\d{3}$/.test(text) ? Number(text) : undefined);
}

/** The gateway frames messages itself, so informational statuses cannot be responses. */
function checkedStatus(status: number | undefined): number {
  if (status === undefined || !Number.isInteger(status) || status < 200 || status > 599)
    throw new Error("a status that is not from 200 to 599");
  return status;
}

export function applyChanges(headers: HeaderList, { set, remove }: HeaderChanges): void {
  for (const name of remove) headers.delete(name);
  applyHeaders(headers, set);
}

export interface Immediate {
  readonly status: number;
  readonly headers: HeaderList;
  readonly body: Buffer;
  readonly details: string;
}

export function readImmediate({ status, headers, body, details }: ImmediateResponse): Immediate {
  const list = new HeaderList();
  applyHeaders(list, readHeaderMutation(headers).set);
  return {
    status: checkedStatus(status?.code),
    headers: list,
    body: Buffer.from(body),
    details: details.slice(0, 500),
  };
}

/** BUFFERED_PARTIAL (3) is not supported. */
const BODY_MODES: readonly (BodyMode | undefined)[] = ["none", "streamed", "buffered", undefined, "fullDuplexStreamed"];

/** Returns the number of the mode in Envoy's protocol. */
export function bodyModeNumber(mode: BodyMode): number {
  return BODY_MODES.indexOf(mode);
}

const DEFAULT_MODE = 0;
const SKIP = 2;

/**
 * Returns the modes after an override. Throws if the override is not allowed, requests an unsupported mode, or comes too
 * late.
 */
export function overriddenModes(modes: Modes, override: ModeOverride, step: Step, isAllowed: boolean): Modes {
  if (override.requestTrailerMode === 1 || override.responseTrailerMode === 1)
    throw new Error("mode_override requests trailers, which are not supported");
  const bodyMode = (value: number): BodyMode => {
    const mode = BODY_MODES[value];
    if (mode === undefined) throw new Error(`mode_override requests the body mode ${value}, which is not supported`);
    return mode;
  };
  const isRequest = step === "requestHeaders";
  const next: Modes = {
    requestHeaders: modes.requestHeaders,
    requestBody: isRequest ? bodyMode(override.requestBodyMode) : modes.requestBody,
    responseHeaders:
      isRequest && override.responseHeaderMode !== DEFAULT_MODE
        ? override.responseHeaderMode !== SKIP
        : modes.responseHeaders,
    responseBody: bodyMode(override.responseBodyMode),
  };
  const isSame = (Object.keys(next) as (keyof Modes)[]).every((name) => next[name] === modes[name]);
  if (isSame) return modes;
  if (!isAllowed) throw new Error("mode_override, which `allowModeOverride` does not allow");
  if (!isRequest && next.responseBody === "buffered" && modes.responseBody !== "buffered")
    throw new Error("mode_override requests to buffer a response body that is already being sent");
  return next;
}
