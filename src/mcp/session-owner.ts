/**
 * Who opened a session: only he may go on with it. The issuer and subject of a token count, never its bytes, so
 * that a refreshed token keeps its session (decisions.md).
 */
import { createHash } from "node:crypto";
import type { Exchange } from "../core/exchange.ts";

/** Undefined for a client that showed no credential. */
export function ownerOf(exchange: Exchange): string | undefined {
  const { jwt, apiKey, basicAuth } = exchange.facts;
  if (jwt) {
    const subject = jwt.sub ?? jwt.azp ?? jwt.client_id ?? jwt.appid;
    if (typeof subject === "string") return `jwt:${String(jwt.iss)}|${subject}`;
    return `jwt:${digest(JSON.stringify(jwt))}`;
  }
  if (basicAuth) return `basic:${basicAuth.username}`;
  if (apiKey) return `key:${digest(JSON.stringify(apiKey))}`;
  const authorization = exchange.request.headers.get("authorization");
  return authorization === undefined ? undefined : `header:${digest(authorization)}`;
}

export function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}
