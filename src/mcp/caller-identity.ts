/**
 * Sends the caller's identity to remote servers (`targets[].mcp.identity`).
 */

import { peerInput } from "../base/peer-inputs.ts";
import type { Expression } from "../cel/expression.ts";
import type { BackendEnv } from "../core/backend.ts";
import type { Exchange } from "../core/exchange.ts";
import { isHeaderValue } from "../http/headers.ts";
import type { KeptTokens } from "../identity/oauth/kept-tokens.ts";
import { readJson } from "../json/read-json.ts";
import type { Logger } from "../record/log/logger.ts";
import { RequestRejection } from "./client-side/http-request.ts";
import { tokenExchange } from "./logins/oauth-client.ts";
import { INTERNAL_ERROR } from "./protocol/json-rpc.ts";
import { setCallerHeaders } from "./server-side/target.ts";
import type { ExchangeConfig, McpConfig } from "./server-side/target-config.ts";

const TOKEN = peerInput("client/token");

interface CompiledIdentity {
  readonly target: string;
  readonly passesToken: boolean;
  readonly exchange: KeptTokens | undefined;
  readonly headers: readonly (readonly [name: string, value: Expression])[];
}

export interface CallerIdentity {
  /**
   * Attaches the identity headers. If the backend has one target and its token cannot be provided, rejects with a
   * `RequestRejection`.
   */
  attach(exchange: Exchange): Promise<void>;
}

/** Returns undefined if no target uses `identity`. */
export function callerIdentity(config: McpConfig, env: BackendEnv): CallerIdentity | undefined {
  const identities = config.targets.flatMap(({ name, mcp }): CompiledIdentity[] => {
    const identity = mcp?.identity;
    if (identity === undefined) return [];
    if (!env.requiresCredential)
      throw new Error("`identity` sends the caller's identity: the route needs an authentication policy");
    const { exchange, token, headers } = identity;
    return [
      {
        target: name,
        passesToken: token === true,
        exchange: exchange && keptExchange(name, exchange, env),
        headers: Object.entries(headers ?? {}).map(([header, source]) => [header, env.cel(source)] as const),
      },
    ];
  });
  if (identities.length === 0) return undefined;
  const logger = env.logger.for("mcp");
  const isAlone = config.targets.length === 1;
  return { attach: (exchange) => attach(exchange, identities, isAlone, logger) };
}

function keptExchange(name: string, config: ExchangeConfig, env: BackendEnv): KeptTokens {
  return env.acquire(`mcp token exchange ${env.name}/${name}`, JSON.stringify(config), () =>
    tokenExchange(config, env.fetch, env.clock),
  );
}

async function attach(
  exchange: Exchange,
  identities: readonly CompiledIdentity[],
  isAlone: boolean,
  logger: Logger,
): Promise<void> {
  const token = callersToken(exchange);
  const given = new Map<string, readonly string[]>();
  await Promise.all(
    identities.map(async (identity) => {
      const headers = identity.headers.flatMap(([name, value]) => evaluateHeader(name, value, exchange));
      try {
        const shown = await shownToken(identity, token);
        if (shown !== undefined) headers.push("authorization", `Bearer ${shown}`);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        logger.warn("a caller's token could not be exchanged", { target: identity.target, reason });
        if (isAlone)
          throw new RequestRejection(200, INTERNAL_ERROR, `target "${identity.target}": the token exchange failed`, {
            failure: "backend_unavailable",
          });
      }
      given.set(identity.target, headers);
    }),
  );
  setCallerHeaders(exchange.request.headers, given);
}

async function shownToken(
  { passesToken, exchange }: CompiledIdentity,
  token: string | undefined,
): Promise<string | undefined> {
  if (!passesToken && exchange === undefined) return undefined;
  if (token === undefined) throw new Error("the caller was authenticated without a token");
  return exchange === undefined ? token : exchange.get(token);
}

/** The presented credential may be an API key, so it is compared with the verified claims. */
function callersToken({ credentials: { presented: credential }, attributes }: Exchange): string | undefined {
  const claims = attributes.jwt;
  const text = credential?.value.replace(/^\S+\s+/, "");
  const payload = text?.split(".")[1];
  if (claims === undefined || text === undefined || payload === undefined) return undefined;
  try {
    const own = readJson(TOKEN, Buffer.from(payload, "base64url")) as Readonly<Record<string, unknown>>;
    return JSON.stringify(own) === JSON.stringify(claims) ? text : undefined;
  } catch {
    return undefined;
  }
}

function evaluateHeader(name: string, value: Expression, exchange: Exchange): string[] {
  const found = value.evaluate(exchange.celAttributes);
  if (!found.ok) return [];
  const { value: shown } = found;
  const text =
    typeof shown === "string" || typeof shown === "boolean" || typeof shown === "bigint" ? String(shown) : "";
  return text !== "" && isHeaderValue(text) ? [name, text] : [];
}
