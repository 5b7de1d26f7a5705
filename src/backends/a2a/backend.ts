/**
 * Implements the `a2a` backend, which is an agent that supports A2A over JSON-RPC.
 */
import { isUtf8 } from "node:buffer";
import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import { type Backend, defineBackend, type Prepared } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { publicOrigin } from "../../core/public-origin.ts";
import { readBody } from "../../core/read-body.ts";
import { jsonReply, type Reply } from "../../core/reply.ts";
import type { A2aAttributes } from "../../core/request-attributes.ts";
import { serverUrl } from "../../core/schema.ts";
import { hiddenBody } from "../../http/charset.ts";
import { HostHealth, openHttpPool } from "../../http/client/http-pool.ts";
import { hostToConnect } from "../../http/host.ts";
import { errorText, JsonRpcProblem, parseClientMessages } from "../../mcp/protocol/json-rpc.ts";
import { canonicalA2aMethod, misspelledA2aMethod } from "../../policy-parts/a2a-methods.ts";
import { healthEvents, sendTo } from "../host/backend.ts";
import { withHttpChoice } from "../host/http-choice.ts";
import { type AgentCard, AgentCards, CARD_PATHS, shownCard, skillsOf } from "./agent-card.ts";
import { callAttributes } from "./call-attributes.ts";

const MESSAGE = peerInput("client/a2a-message");

/** An agent can work for minutes before it responds. */
const RESPONSE_HEAD_TIMEOUT_MS = 300_000;
const INVALID_REQUEST = -32600;
const INTERNAL_ERROR = -32603;
const PARSE_ERROR = -32700;
/** Rules see this method when a client requests the agent card. */
const CARD = "agent/card";
/** The response would contain a card with the agent's own address, which clients could use to bypass the gateway. */
const EXTENDED_CARD = "agent/getAuthenticatedExtendedCard";
const METHOD_NOT_FOUND = -32601;

export const a2a = defineBackend({
  key: "a2a",
  doc: "An A2A agent (JSON-RPC): its agent card, calls, and event streams.",
  schema: z.strictObject({
    url: serverUrl().describe("The agent's JSON-RPC endpoint, for example `https://agent.example.com/a2a`."),
    card: serverUrl()
      .optional()
      .describe("The URL of the agent card. Default: `.well-known/agent-card.json` below `url`, or at its host."),
  }),
  protection: () => "none",

  compile(config, env): Backend {
    const url = new URL(config.url);
    const isTls = url.protocol === "https:";
    const host = hostToConnect(url);
    const port = url.port === "" ? (isTls ? 443 : 80) : Number(url.port);
    const scheme = isTls ? ("https" as const) : ("http" as const);
    const target = withHttpChoice(
      {
        protocol: scheme,
        host,
        port,
        ...(isTls && env.tls ? { tls: env.tls } : {}),
        egress: env.egress,
      },
      env.protocol,
    );
    const pool = env.acquire(
      `http-pool ${url.origin}`,
      target,
      () => openHttpPool(target, env.clock),
      (open) => open.close(),
    );
    const health = env.acquire(
      `http-health ${url.origin}`,
      target,
      () => new HostHealth(env.clock, healthEvents(url.host, env)),
    );
    const cards = env.acquire(
      `a2a card ${config.card ?? ""} ${config.url}`,
      "card",
      () => new AgentCards(config.url, config.card, env.fetch, env.clock),
    );
    const logger = env.logger.for("a2a");
    const prefixes = env.matchedPrefixes
      .map((prefix) => prefix.replace(/\/+$/, ""))
      .sort((a, b) => b.length - a.length);

    function placeOf(path: string): { readonly prefix: string; readonly rest: string } {
      const prefix = prefixes.find((one) => path === one || path.startsWith(`${one}/`)) ?? "";
      return { prefix, rest: path.slice(prefix.length) };
    }

    async function card(exchange: Exchange, prefix: string): Promise<Reply> {
      try {
        const address = `${publicOrigin(exchange)}${prefix === "" ? "/" : prefix}`;
        const known = await cards.get();
        exchange.attributes.a2a = { method: CARD, ...aboutAgent(known) };
        return jsonReply(200, shownCard(known, address), { "cache-control": "no-cache" });
      } catch (error) {
        throw new GatewayError("backend_unavailable", {
          detail: error instanceof Error ? error.message : String(error),
        });
      }
    }

    async function parseCall(exchange: Exchange): Promise<Prepared> {
      const { request } = exchange;
      const { body } = request;
      // The agent must parse the same request from these bytes and headers as the rules.
      const hidden = hiddenBody(request.headers);
      if (hidden !== undefined)
        throw new GatewayError("unsupported_media_type", { message: `${hidden}; send JSON in UTF-8` });
      const bytes =
        body.kind === "bytes" ? body.bytes : body.kind === "stream" ? await readBody(exchange, body, MESSAGE) : EMPTY;
      if (bytes.length > MESSAGE.maxBytes) throw new GatewayError("body_too_large");
      request.body = { kind: "bytes", bytes };
      let attributes: A2aAttributes;
      try {
        if (!isUtf8(bytes)) throw new JsonRpcProblem(PARSE_ERROR, "Parse error: the body is not UTF-8");
        const message = parseClientMessages(bytes.toString("utf8"), MESSAGE);
        if (!("kind" in message) || message.kind === "response")
          throw new JsonRpcProblem(INVALID_REQUEST, "Invalid Request: expected one JSON-RPC request");
        const known = canonicalA2aMethod(message.method);
        const id = message.kind === "request" ? message.id : undefined;
        // The attributes are set before the checks, so that rejected requests are also recorded with them.
        exchange.attributes.a2a = { method: known ?? message.method };
        attributes = callAttributes(message.method, known ?? message.method, message.params, id);
        exchange.attributes.a2a = attributes;
        const meant = misspelledA2aMethod(message.method);
        if (meant !== undefined)
          return refusal(METHOD_NOT_FOUND, `Method not found: ${message.method}. Did you mean ${meant}?`, id);
        if (known === EXTENDED_CARD)
          return refusal(METHOD_NOT_FOUND, `Method not found: ${message.method} is not passed on`, id);
      } catch (error) {
        if (!(error instanceof JsonRpcProblem)) throw error;
        return refusal(error.code, error.message, error.id);
      }
      try {
        Object.assign(attributes, aboutAgent(await cards.get()));
      } catch (error) {
        logger.debug("the agent's card is not known", {
          reason: error instanceof Error ? error.message : String(error),
        });
      }
      request.host = url.host;
      request.path = url.pathname;
      request.query = url.search.slice(1);
      return { call: (receiver) => sendTo(pool, url.host, scheme, exchange, receiver, health) };
    }

    return {
      attributes: { name: env.name, type: "static", protocol: "http" },
      routing: { health },
      defaultTimeoutMs: RESPONSE_HEAD_TIMEOUT_MS,
      parsesBody: true,
      prepare(exchange) {
        const { prefix, rest } = placeOf(exchange.request.path);
        const { method } = exchange.request;
        if (CARD_PATHS.includes(rest)) {
          if (method === "GET" || method === "HEAD") return card(exchange, prefix);
          throw new GatewayError("method_not_allowed", { headers: { allow: "GET, HEAD" } });
        }
        if (rest !== "" && rest !== "/")
          throw new GatewayError("not_found", { detail: "an A2A agent has its card and its JSON-RPC endpoint" });
        if (method !== "POST") throw new GatewayError("method_not_allowed", { headers: { allow: "POST" } });
        return parseCall(exchange);
      },
      errorReply: a2aErrorReply,
      describe: () => ({
        a2a: { url: url.origin + url.pathname },
        connections: pool.connections(),
        ...health.describe(),
      }),
    };
  },
});

const EMPTY = Buffer.alloc(0);

function aboutAgent(card: AgentCard): Pick<A2aAttributes, "agent" | "skills"> {
  return { ...(typeof card.name === "string" ? { agent: card.name } : {}), skills: skillsOf(card) };
}

function refusal(code: number, message: string, id: string | undefined): Reply {
  const reply = jsonReply(code === METHOD_NOT_FOUND ? 200 : 400, {});
  return { ...reply, body: Buffer.from(errorText(id, code, message)) };
}

/** Formats errors with a 5xx status as JSON-RPC if the request is a call. Other errors use the common format. */
function a2aErrorReply({ request }: Exchange, error: GatewayError): Reply | undefined {
  if (error.status < 500 || request.method !== "POST") return undefined;
  const headers = { "x-gateway-error": error.code, ...error.headers };
  const id = request.body.kind === "bytes" ? idOf(request.body.bytes.toString("utf8")) : undefined;
  return { ...jsonReply(error.status, {}, headers), body: Buffer.from(errorText(id, INTERNAL_ERROR, error.message)) };
}

function idOf(text: string): string | undefined {
  try {
    const message = parseClientMessages(text, MESSAGE);
    return "kind" in message && message.kind === "request" ? message.id : undefined;
  } catch {
    return undefined;
  }
}
