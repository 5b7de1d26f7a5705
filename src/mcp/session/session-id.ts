/**
 * The id of a session that can go on in another process: unguessable, signed, and with what the handshake needs inside.
 * The signature also covers the backend and the owner: shown by another principal, or at another route, it is no id.
 * What does not fit into a header is kept in the store (`session-records.ts`).
 */
import { deflateRawSync, inflateRawSync } from "node:zlib";
import type { SigningKey } from "../../store/signing-key.ts";

/** Beyond this the parameters are kept in the store: ids travel with every request. */
const MAX_INSIDE_BYTES = 600;
/** A signed text of ours never unpacks to more. */
const MAX_PARAMS_BYTES = 256 * 1024;
const ID = /^([0-9a-f]{32})\.([A-Za-z0-9_-]{7,1200})\.([A-Za-z0-9_-]{22})$/;
const TIME_BYTES = 4;
const FLAG_INSIDE = 1;

export interface SessionIdentity {
  /** Names the session in the store and, in part, in logs. */
  readonly name: string;
  readonly issuedAtMs: number;
  /** The parameters of `initialize` as JSON; undefined if the store has them. */
  readonly params: string | undefined;
}

export interface SessionBinding {
  readonly backend: string;
  readonly owner: string | undefined;
}

export function sessionId(
  key: SigningKey,
  { name, issuedAtMs, params }: SessionIdentity,
  binding: SessionBinding,
): string {
  const packed = params === undefined ? undefined : deflateRawSync(params);
  const head = Buffer.alloc(TIME_BYTES + 1);
  head.writeUInt32BE(Math.floor(issuedAtMs / 1000));
  head.writeUInt8(packed === undefined ? 0 : FLAG_INSIDE, TIME_BYTES);
  const text = `${name}.${Buffer.concat([head, packed ?? Buffer.alloc(0)]).toString("base64url")}`;
  return `${text}.${key.sign(signedText(text, binding))}`;
}

/** Whether the parameters travel inside of the id. */
export function fitsInside(params: string): boolean {
  return params.length <= MAX_PARAMS_BYTES && deflateRawSync(params).length <= MAX_INSIDE_BYTES;
}

/** Undefined if it is none, was changed, or belongs to another owner or backend. */
export function readSessionId(key: SigningKey, id: string, binding: SessionBinding): SessionIdentity | undefined {
  const match = ID.exec(id);
  if (match === null) return undefined;
  const [, name = "", payload = "", signature = ""] = match;
  if (!key.isSignature(signedText(`${name}.${payload}`, binding), signature)) return undefined;
  const bytes = Buffer.from(payload, "base64url");
  const issuedAtMs = bytes.readUInt32BE(0) * 1000;
  if (bytes.readUInt8(TIME_BYTES) !== FLAG_INSIDE) return { name, issuedAtMs, params: undefined };
  const params = inflateRawSync(bytes.subarray(TIME_BYTES + 1), { maxOutputLength: MAX_PARAMS_BYTES }).toString();
  return { name, issuedAtMs, params };
}

/** No part can be taken for another: neither names nor owners hold a line break that JSON does not escape. */
function signedText(text: string, { backend, owner }: SessionBinding): string {
  return JSON.stringify(["mcp session", backend, owner ?? null, text]);
}
