/**
 * What spans say about a request, under the names of the semantic conventions for HTTP, generative AI and MCP. Only what
 * the trace may show, too: no header, no body, no argument; queries, reasons and URIs are redacted as there.
 */
import {
  ATTR_CLIENT_ADDRESS,
  ATTR_ERROR_TYPE,
  ATTR_HTTP_REQUEST_METHOD,
  ATTR_HTTP_RESPONSE_STATUS_CODE,
  ATTR_NETWORK_PROTOCOL_VERSION,
  ATTR_SERVER_ADDRESS,
  ATTR_SERVER_PORT,
  ATTR_URL_PATH,
  ATTR_URL_QUERY,
  ATTR_URL_SCHEME,
  ATTR_USER_AGENT_ORIGINAL,
} from "@opentelemetry/semantic-conventions";
import {
  ATTR_GEN_AI_OPERATION_NAME,
  ATTR_GEN_AI_PROVIDER_NAME,
  ATTR_GEN_AI_REQUEST_MODEL,
  ATTR_GEN_AI_RESPONSE_MODEL,
  ATTR_GEN_AI_TOOL_NAME,
  ATTR_GEN_AI_USAGE_INPUT_TOKENS,
  ATTR_GEN_AI_USAGE_OUTPUT_TOKENS,
  ATTR_MCP_METHOD_NAME,
  ATTR_MCP_RESOURCE_URI,
  ATTR_MCP_SESSION_ID,
} from "@opentelemetry/semantic-conventions/incubating";
import type { Exchange } from "../core/exchange.ts";
import type { LlmFacts, McpFacts } from "../core/facts.ts";
import type { Outcome } from "../core/policy.ts";
import { type Redaction, shownUrl } from "../trace/redact.ts";
import type { Attributes } from "./signals.ts";

export function httpAttributes(exchange: Exchange, outcome: Outcome, redaction: Redaction): Attributes {
  const { arrived, facts, failure } = exchange;
  const attributes: Attributes = {
    [ATTR_HTTP_REQUEST_METHOD]: arrived.method,
    [ATTR_URL_SCHEME]: arrived.scheme,
    [ATTR_URL_PATH]: exchange.originalPath,
    [ATTR_NETWORK_PROTOCOL_VERSION]: arrived.version,
    [ATTR_CLIENT_ADDRESS]: exchange.source.address,
    "gateway.listener": exchange.listener,
    "gateway.request.id": exchange.id,
  };
  const [host, port] = hostAndPort(exchange.originalHost);
  if (host !== "") attributes[ATTR_SERVER_ADDRESS] = host;
  if (port !== undefined) attributes[ATTR_SERVER_PORT] = port;
  if (exchange.originalQuery !== "")
    attributes[ATTR_URL_QUERY] = redaction.query(exchange.originalQuery, exchange.credentialQuery);
  const agent = arrived.headers.get("user-agent");
  if (agent !== undefined) attributes[ATTR_USER_AGENT_ORIGINAL] = agent;
  if (outcome.status !== undefined) attributes[ATTR_HTTP_RESPONSE_STATUS_CODE] = outcome.status;
  if (exchange.route !== undefined) attributes["gateway.route"] = exchange.route;
  if (facts.backend !== undefined) attributes["gateway.backend"] = facts.backend.name;
  const errorType = failure?.code ?? ((outcome.status ?? 0) >= 500 ? String(outcome.status) : undefined);
  if (errorType !== undefined) attributes[ATTR_ERROR_TYPE] = errorType;
  return attributes;
}

export function targetAttributes(method: string, target: string): Attributes {
  if (target.startsWith("stdio:")) return { "network.transport": "pipe", "gateway.target": target };
  if (target.startsWith("internal:")) return { "gateway.target": target };
  if (target.startsWith("unix:"))
    return { [ATTR_HTTP_REQUEST_METHOD]: method, "network.transport": "unix", [ATTR_SERVER_ADDRESS]: target.slice(5) };
  const [host, port] = hostAndPort(target);
  return {
    [ATTR_HTTP_REQUEST_METHOD]: method,
    [ATTR_SERVER_ADDRESS]: host,
    ...(port === undefined ? {} : { [ATTR_SERVER_PORT]: port }),
  };
}

export function addLlm(to: Attributes, llm: LlmFacts, path: string): void {
  to[ATTR_GEN_AI_OPERATION_NAME] = operationOf(path);
  add(to, ATTR_GEN_AI_PROVIDER_NAME, llm.provider);
  add(to, ATTR_GEN_AI_REQUEST_MODEL, llm.requestModel);
  add(to, ATTR_GEN_AI_RESPONSE_MODEL, llm.responseModel);
  add(to, ATTR_GEN_AI_USAGE_INPUT_TOKENS, llm.inputTokens);
  add(to, ATTR_GEN_AI_USAGE_OUTPUT_TOKENS, llm.outputTokens);
  add(to, "gen_ai.usage.cache_read.input_tokens", llm.cachedInputTokens);
  add(to, "gen_ai.usage.cache_creation.input_tokens", llm.cacheCreationInputTokens);
  add(to, "gateway.llm.cost_usd", llm.cost);
}

export function operationOf(path: string): string {
  if (path.endsWith("/embeddings")) return "embeddings";
  return /:(?:stream)?[gG]enerateContent$/.test(path) ? "generate_content" : "chat";
}

export function addMcp(to: Attributes, mcp: McpFacts): void {
  add(to, ATTR_MCP_METHOD_NAME, mcp.methodName);
  if (mcp.sessionId !== undefined) to[ATTR_MCP_SESSION_ID] = shortened(mcp.sessionId);
  if (mcp.tool !== undefined) {
    to[ATTR_GEN_AI_TOOL_NAME] = mcp.tool.name;
    to[ATTR_GEN_AI_OPERATION_NAME] = "execute_tool";
  }
  add(to, "gen_ai.prompt.name", mcp.prompt?.name);
  if (mcp.resource !== undefined) to[ATTR_MCP_RESOURCE_URI] = shownUrl(mcp.resource.uri);
  add(to, "gateway.mcp.target", mcp.tool?.target ?? mcp.prompt?.target ?? mcp.resource?.target ?? mcp.target);
  add(to, "gateway.mcp.outcome", mcp.outcome);
  if (mcp.outcome !== undefined && mcp.outcome !== "ok") to[ATTR_ERROR_TYPE] = mcp.outcome;
}

/** One after the other into one object: spreading several into one costs more than writing the span. */
function add(to: Attributes, name: string, value: string | number | undefined): void {
  if (value !== undefined) to[name] = value;
}

/** Whoever has the whole id can use the session. */
function shortened(sessionId: string): string {
  return sessionId.length <= 8 ? sessionId : `${sessionId.slice(0, 8)}…`;
}

export function hostAndPort(authority: string): readonly [host: string, port: number | undefined] {
  const colon = authority.lastIndexOf(":");
  const digits = colon < 0 ? "" : authority.slice(colon + 1);
  const hasPort = /^\d{1,5}$/.test(digits) && (authority.indexOf(":") === colon || authority[colon - 1] === "]");
  const host = hasPort ? authority.slice(0, colon) : authority;
  return [host.startsWith("[") ? host.slice(1, -1) : host, hasPort ? Number(digits) : undefined];
}
