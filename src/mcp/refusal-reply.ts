/**
 * Refusals of the MCP protocol as HTTP answers of its own form; the log and `explain` say why all the same.
 */
import type { ErrorCode } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import type { Reply } from "../core/reply.ts";
import { Refused } from "./client-side/downstream.ts";
import type { LoginRelay } from "./login-relay.ts";

const REFUSALS: Readonly<Record<number, ErrorCode>> = {
  404: "not_found",
  405: "method_not_allowed",
  413: "body_too_large",
  415: "unsupported_media_type",
  503: "overloaded",
};

/** Throws whatever else it is given. */
export function asReply(exchange: Exchange, error: unknown, relay: LoginRelay | undefined): Reply {
  if (!(error instanceof Refused)) throw error;
  const challenge = error.reply.headers.get("www-authenticate");
  if (challenge !== undefined && relay)
    error.reply.headers.set("www-authenticate", relay.challenge(challenge, exchange));
  const code = error.failure ?? REFUSALS[error.reply.status] ?? "bad_request";
  exchange.failure ??= {
    code,
    source: error.failure ? "upstream" : code === "overloaded" ? "gateway" : "client",
    message: error.message,
    detail: undefined,
  };
  error.reply.headers.set("x-gateway-error", code);
  return error.reply;
}
