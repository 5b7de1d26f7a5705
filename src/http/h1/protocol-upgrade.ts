/**
 * Decides which upgrades are requested from backends, and whether a 101 response accepts the requested one. Otherwise,
 * a backend that can be made to send any status would turn the connection into a tunnel that no rule reads.
 */
import { createHash } from "node:crypto";
import type { HeaderList } from "../headers.ts";
import { listsToken } from "./message-framing.ts";
import { type Framing, ResponseError } from "./parse-response-head.ts";

export interface RequestedUpgrade {
  /** A lowercase token, for example `websocket`. */
  readonly protocol: string;
  /** The `sec-websocket-key` of the request. */
  readonly key: string | undefined;
}

/** RFC 6455 section 1.3. */
const WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Only WebSocket is forwarded, because other upgrades such as h2c would bypass the gateway's policies. */
export function asksForWebSocket(method: string, headers: HeaderList): boolean {
  return method === "GET" && headers.get("upgrade")?.toLowerCase() === "websocket";
}

/** Throws a ResponseError if the response does not accept the requested upgrade (RFC 9110 section 7.8). */
export function checkUpgradeResponse(
  headers: HeaderList,
  framing: Framing,
  requested: RequestedUpgrade | undefined,
): void {
  if (requested === undefined) throw new ResponseError("an unexpected upgrade");
  const { protocol, key } = requested;
  if (headers.get("upgrade")?.toLowerCase() !== protocol)
    throw new ResponseError(`an upgrade to another protocol than ${protocol}`);
  if (!listsToken(headers.get("connection")?.toLowerCase() ?? "", "upgrade"))
    throw new ResponseError("an upgrade without the header connection: upgrade");
  // Another parser could read the first bytes of the new protocol as the declared body.
  if (framing.chunked || (framing.length ?? 0) > 0) throw new ResponseError("an upgrade with a body");
  if (protocol !== "websocket") return;
  if (key === undefined) throw new ResponseError("an upgrade to websocket without a key in the request");
  if (headers.get("sec-websocket-accept") !== acceptFor(key))
    throw new ResponseError("an upgrade to websocket whose sec-websocket-accept does not match the request's key");
}

function acceptFor(key: string): string {
  return createHash("sha1").update(key).update(WEBSOCKET_GUID).digest("base64");
}
